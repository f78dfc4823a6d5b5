"""A stream of steps in a memory with search="auto": what the comparisons of the approximate step share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks import versions
from benchmarks.peers import Array
from benchmarks.timing import Stopwatch

# What a step was: its queries, the slots that it changed, and their keys since.
Change = tuple[Array, Array, Array]

WANTED = 0.95  # recall@1
# Queries whose true neighbours tell the recall, so many since to find a few more in a thousand takes a peer much
# longer; and those with which the search settles before it is timed, at most.
JUDGED, SETTLING = 8192, 16_384
# Turns that each has, with its steps in a row, as a stream has them: what one leaves in the caches is its own, not that
# of the others. Many turns, since one of small steps is over in some ten milliseconds, for which the machine may have
# been busy elsewhere.
TURNS = 10
WARMUP = 2  # steps that do not count
STEP = ("recall", "loss", "update")


def steps_of(steps: int, batch: int) -> int:
    """How many steps a turn has: half as many, more of small ones, which are over in no time."""
    return (steps * min(max(128 // batch, 1), 32) + WARMUP) // 2


@torch.no_grad()
def settle(memory: Any, queries: Tensor, targets: Tensor) -> None:
    """Make a memory that was filled at once one as a long stream leaves it.

    Every key is taken up by the search once more, in no order: those that came first found few lists, which have long
    been cut in two since. Then the search finds out how much to read, from a stream of queries.
    """
    versions.take_up_again(memory)
    for query, target in zip(queries[:SETTLING].split(128), targets[:SETTLING].split(128), strict=True):
        memory.update(memory(query), target)


def turn(memory: Any, queries: Tensor, targets: Tensor, batch: int, watch: Stopwatch) -> list[Change]:
    """Do a step for each batch of the queries; return what they changed, in their order."""
    before = versions.updates(memory)
    for query, target in zip(queries.split(batch), targets.split(batch), strict=True):
        step(memory, query, target, watch)
    # A slot that two steps touched is of the later one: to look after every step would cool the caches.
    touched = versions.last_touched(memory)
    changed = (touched > before).nonzero().squeeze(1)
    of_step = [changed[touched[changed] == before + 1 + number] for number in range(-(-len(queries) // batch))]
    return [
        (query.numpy(), slots.numpy(), memory.keys[slots].numpy())
        for query, slots in zip(queries.split(batch), of_step, strict=True)
    ]


def step(memory: Any, query: Tensor, target: Tensor, watch: Stopwatch) -> None:
    """A step of training, as far as the memory has to do with it."""
    with watch.time("recall"):
        recall = memory(query)
    with watch.time("loss"):
        memory.loss(recall, target)
    with watch.time("update"):
        memory.update(recall, target)


def nearest(keys: Tensor, query: Tensor, k: int) -> Tensor:
    """(n, k) int64: the true neighbours, the nearest first."""
    memory = versions.make_memory(keys.shape[1], len(keys), k)
    nothing = torch.zeros(len(keys), dtype=torch.int64)
    versions.fill(memory, keys, nothing, nothing)
    return memory(query).slots


def recalls(found: Tensor, near: Tensor) -> tuple[float, float]:
    """recall@1 and recall@k of found, (n, k), no slot of a row twice, against the true neighbours."""
    ordered = near.sort(1).values
    places = torch.searchsorted(ordered, found.contiguous()).clamp_(max=near.shape[1] - 1)
    hits = (ordered.gather(1, places) == found).sum().item()
    first = (found == near[:, :1]).any(1).float().mean().item()
    return first, hits / near.numel()


@dataclass
class Tally:
    """How many queries were asked, and answered with a nearest key."""

    asked: int = 0
    found: int = 0

    @property
    def share(self) -> float:
        return self.found / self.asked

    def add(self, memory: Any, query: Tensor, slots: Tensor) -> None:
        """Judge the first slots that were recalled for each query, (n,) int64, -1 where there was none."""
        similar = query @ memory.keys[: memory.used].T
        similar[:, memory.values[: memory.used] < 0] = -2
        got = similar.gather(1, slots.clamp(min=0)[:, None])[:, 0].where(slots >= 0, -2)
        self.found += int((got >= similar.amax(1) - 1e-5).sum())
        self.asked += len(query)
