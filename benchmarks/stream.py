"""A stream of steps in a memory with search="auto": what the comparisons of the approximate step share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from benchmarks.peers import Array
from benchmarks.timing import Stopwatch
from benchmarks.workloads import Workload
from rarecall import ExactSearch, Memory
from rarecall.search import AutoSearch

if TYPE_CHECKING:
    from rarecall._native import Found

# What a step was: its queries, the slots that it changed, and their keys since.
Change = tuple[Array, Array, Array]

WANTED = 0.95  # recall@1
# Queries whose true neighbours tell the recall, so many since to find a few more in a thousand takes a peer much
# longer; and those with which the search settles before it is timed.
JUDGED, SETTLING = 8192, 16_384
# Turns that each has, with its steps in a row, as a stream has them: what one leaves in the caches is its own, not that
# of the others. Many turns, since one of small steps is over in some ten milliseconds, for which the machine may have
# been busy elsewhere.
TURNS = 10
WARMUP = 2  # steps that do not count


def steps_of(steps: int, batch: int) -> int:
    """How many steps a turn has: half as many, more of small ones, which are over in no time."""
    return (steps * min(max(128 // batch, 1), 32) + WARMUP) // 2


class TimedSearch(AutoSearch):
    """search="auto" with a stopwatch: its share of a step.

    Attributes:
        watch: or None, in turns that time whole steps: two more times to take are felt in a step of one query.
        touched: (n,) int64, the slots of the last update.
    """

    watch: Stopwatch | None = None
    touched: Tensor

    def found(self, memory: Memory, query: Tensor, exclude: Tensor | None) -> Found:
        if self.watch is None:
            return super().found(memory, query, exclude)
        with self.watch.time("search"):
            return super().found(memory, query, exclude)

    def updated(self, memory: Memory, slots: Tensor) -> None:
        self.__dict__["touched"] = slots
        if self.watch is None:
            return super().updated(memory, slots)
        with self.watch.time("changed"):
            super().updated(memory, slots)


def steady(load: Workload, k: int, search: TimedSearch) -> Memory:
    """A full memory as a long stream leaves it, whose search has found out how much to read.

    Every key was taken up once more after the memory had filled, in no order: those that came first found few lists,
    which have long been cut in two since.
    """
    memory = load.memory(k, 16, search)
    for slots in torch.randperm(memory.capacity, generator=torch.Generator().manual_seed(1)).split(4096):
        search.changed(memory, slots)
    for query in load.queries[JUDGED : JUDGED + SETTLING].split(128):
        memory(query)
        search.changed(memory, torch.tensor([0]))
    return memory


def turn(load: Workload, memory: Memory, search: TimedSearch, rows: range, watch: Stopwatch) -> Iterator[Change]:
    """Steps of a stream, from each of these rows of the workload to the next."""
    for first in rows:
        query, target = (each[first : first + rows.step] for each in (load.queries, load.targets))
        step(memory, query, target, watch)
        yield query.numpy(), search.touched.numpy(), memory.keys[search.touched].numpy()


def warm(load: Workload, memory: Memory, search: TimedSearch) -> list[Change]:
    """A turn that is not timed, with the queries that the search has settled with.

    What was built meanwhile has taken the caches, and on some virtual machines the tables in which pages are found.
    """
    return list(turn(load, memory, search, range(JUDGED, JUDGED + SETTLING, 128), Stopwatch()))


def step(memory: Memory, query: Tensor, target: Tensor, watch: Stopwatch) -> None:
    """A step of training, as far as the memory has to do with it."""
    with watch.time("recall"):
        recall = memory(query)
    with watch.time("loss"):
        memory.loss(recall, target)
    with watch.time("update"):
        memory.update(recall, target)


def nearest(keys: Tensor, query: Tensor, k: int) -> Tensor:
    """(n, k) int64: the true neighbours, the nearest first."""
    memory = Memory(keys.shape[1], len(keys), k=k, search=ExactSearch(keys.shape[1], len(keys)))
    memory.keys.copy_(keys)
    memory.values.zero_()
    memory.clock.touched.zero_()
    memory.clock.rebuild()
    return memory(query).slots


def recalls(found: Tensor, near: Tensor) -> tuple[float, float]:
    """recall@1 and recall@k of found, (n, k), no slot of a row twice, against the true neighbours."""
    ordered = near.sort(1).values
    places = torch.searchsorted(ordered, found.contiguous()).clamp_(max=near.shape[1] - 1)
    hits = (ordered.gather(1, places) == found).sum().item()
    first = (found == near[:, :1]).any(1).float().mean().item()
    return first, hits / near.numel()


def judge(memory: Memory, query: Tensor, near: Tensor) -> tuple[float, float]:
    """recall@1 and recall@k of the memory's search."""
    with torch.no_grad():
        return recalls(memory.search(memory, query, memory.k, None), near)
