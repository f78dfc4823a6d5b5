"""recall@1 of search="auto" on streams that make it hard, in every window of 10,000 examples.

A query counts as answered if the first slot recalled is as similar as the best of all (to 1e-5): any of several equal
keys will do. Asked are the stream's own next examples, by the very recall that teaches them, and stored keys once
more. The truth is a product with all keys, for a sample of both kinds in each window. By default 16 examples are one
update, so that a window has 625 updates in which the search can learn: `--batches 1` gives it 10,000.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks import versions
from benchmarks.settings import Settings
from benchmarks.stream import WANTED, Tally
from benchmarks.timing import Stopwatch

TITLE = 'search="auto" where recall@1 of 0.95 was asked: the worst window of 10,000 examples, and the mean'
COLUMNS = {
    "stream": "stream",
    "key_size": "key size",
    "k": "k",
    "worst": "next: worst window",
    "mean": "next: mean",
    "stored_worst": "stored: worst window",
    "stored_mean": "stored: mean",
    "error": "standard error of a window",
    "time": "time / exact",
    "lists": "lists read",
}
WINDOW = 10_000  # examples
SAMPLED = 10  # of so many batches of next examples one is judged, with as many stored keys: 1,000 of each in a window
TIMED = 50  # batches that tell the time against exact search
DEFAULTS = {"key_sizes": (32, 128), "ks": (1, 16, 256), "batches": (16,), "threads": 1}


@dataclass
class Stream:
    """Examples in the order in which they are taught.

    Attributes:
        capacity: slots of the memory.
        queries: (n, key_size) normalised.
        values: (n,) int64.
        forget_at: before the example of this number
        forget: these values are forgotten, (m,) int64.
    """

    capacity: int
    queries: Tensor
    values: Tensor
    forget_at: int = -1
    forget: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))


def run(settings: Settings, progress: Any) -> Iterator[dict[str, Any]]:
    """One row for each stream, key size, k and batch."""
    for name, key_size, k, batch in product(STREAMS, settings.key_sizes, settings.ks, settings.batches):
        stream = STREAMS[name](key_size, torch.Generator().manual_seed(settings.seed))
        memory = versions.make_memory(key_size, stream.capacity, k, "auto", WANTED)
        windows = [Window() for _ in range(math.ceil(len(stream.queries) / WINDOW))]
        teach(memory, stream, batch, windows, progress)
        nexts, storeds = ([getattr(window, kind).share for window in windows] for kind in ("next", "stored"))
        yield {
            "stream": name,
            "key_size": key_size,
            "k": k,
            "size": len(memory),
            "batch": batch,
            "worst": min(nexts),
            "mean": statistics.mean(nexts),
            "stored_worst": min(storeds),
            "stored_mean": statistics.mean(storeds),
            "error": math.sqrt(WANTED * (1 - WANTED) / windows[0].next.asked),
            "time": time_against_exact(memory, stream.queries, batch),
            "lists": versions.lists_read(memory) or "all",
            "windows": nexts,
            "stored_windows": storeds,
        }


@dataclass
class Window:
    """Both kinds of queries."""

    next: Tally = field(default_factory=Tally)
    stored: Tally = field(default_factory=Tally)


@torch.no_grad()
def teach(memory: Any, stream: Stream, batch: int, windows: list[Window], progress: Any) -> None:
    """Teach the whole stream, and judge one in SAMPLED batches of it before it is taught."""
    chance = torch.Generator().manual_seed(1)
    torch.manual_seed(1)
    for first in range(0, len(stream.queries), batch):
        if first <= stream.forget_at < first + batch:
            memory.forget(value=stream.forget)
        query, value = (each[first : first + batch] for each in (stream.queries, stream.values))
        judged = first // batch % SAMPLED == SAMPLED - 1
        window = windows[first // WINDOW]
        if judged:
            filled = (memory.values[: memory.used] >= 0).nonzero()[:, 0]
            stored = memory.keys[filled[torch.randint(len(filled), (len(query),), generator=chance)]]
            window.stored.add(memory, stored, memory(stored).slots[:, 0])
        # The last recall before the update is the stream's own: from it the search learns how much to read.
        recall = memory(query)
        if judged:
            window.next.add(memory, query, recall.slots[:, 0])
        memory.update(recall, value)
        progress.update(len(query))


@torch.no_grad()
def time_against_exact(memory: Any, queries: Tensor, batch: int) -> float:
    """Time of a recall over that of an exact one, in a memory with the same keys."""
    filled = (memory.values >= 0).nonzero()[:, 0]
    exact = versions.make_memory(memory.key_size, len(filled), memory.k)
    versions.fill(exact, memory.keys[filled], memory.values[filled], versions.last_touched(memory)[filled])
    watch = Stopwatch(warmup=2)
    for query in queries[-TIMED * batch :].split(batch):
        with watch.time("exact"):
            exact(query)
        with watch.time("auto"):
            memory(query)
    return watch.ratio("auto", "exact")


def steps(settings: Settings) -> int:
    """How many steps of progress a run has: examples."""
    lengths = (len(make(2, torch.Generator()).queries) for make in STREAMS.values())
    return sum(lengths) * len(settings.key_sizes) * len(settings.ks) * len(settings.batches)


# How the streams are drawn. Where every example has a value of its own, every one is written to a slot; with LABELS
# values at random, one in so many confirms the slot that it recalls, and moves its key.

LABELS = 4


def around(centres: Tensor, cosine: float, generator: torch.Generator) -> Tensor:
    """(n, key_size): one point near each centre; two near the same one have about this cosine."""
    key_size = centres.shape[1]
    noise = normalize(torch.randn(centres.shape, generator=generator) * torch.linspace(1, 0, key_size) ** 2)
    return normalize(centres + noise * (1 / cosine - 1) ** 0.5)


def sphere(count: int, key_size: int, generator: torch.Generator) -> Tensor:
    """(count, key_size): uniform."""
    return normalize(torch.randn(count, key_size, generator=generator))


def pick(low: int, high: int, count: int, generator: torch.Generator) -> Tensor:
    """(count,) int64 of low to high - 1."""
    return torch.randint(low, high, (count,), generator=generator)


def drift(key_size: int, generator: torch.Generator) -> Stream:
    """500 kinds whose centres turn by a right angle from the first example to the last."""
    count, kinds = 60_000, pick(0, 500, 60_000, generator)
    begin, end = (sphere(500, key_size, generator)[kinds] for _ in range(2))
    angle = torch.linspace(0, math.pi / 2, count)[:, None]
    queries = around(normalize(begin * angle.cos() + end * angle.sin()), 0.8, generator)
    return Stream(30_000, queries, pick(0, LABELS, count, generator))


def in_order(key_size: int, generator: torch.Generator) -> Stream:
    """400 kinds of 100 examples, one kind after the other."""
    kinds = torch.arange(40_000) // 100
    queries = around(sphere(400, key_size, generator)[kinds], 0.8, generator)
    return Stream(40_000, queries, torch.arange(40_000))


def along_a_line(key_size: int, generator: torch.Generator) -> Stream:
    """One cloud, in the order of its widest direction: every query is at the edge of what is stored."""
    cloud = normalize(torch.randn(40_000, key_size, generator=generator) * torch.linspace(1, 0, key_size) ** 2)
    return Stream(40_000, cloud[cloud[:, 0].argsort()], torch.arange(40_000))


def alternate(key_size: int, generator: torch.Generator) -> Stream:
    """2,000 examples of 20 wide kinds, then as many of 500 narrow ones, and so on."""
    count = 50_000
    wide = (torch.arange(count) // 2000 % 2 == 0)[:, None]
    kinds = torch.where(wide[:, 0], pick(0, 20, count, generator), pick(20, 520, count, generator))
    centres = sphere(520, key_size, generator)[kinds]
    queries = torch.where(wide, around(centres, 0.4, generator), around(centres, 0.9, generator))
    return Stream(30_000, queries, pick(0, LABELS, count, generator))


def near_duplicates(kinds: int, per_component: bool) -> Callable[[int, torch.Generator], Stream]:
    """15,000 keys of a few kinds, each the kind and noise of 0.03: of that norm, or of so much in each component."""

    def draw(key_size: int, generator: torch.Generator) -> Stream:
        centres = sphere(kinds, key_size, generator)[pick(0, kinds, 25_000, generator)]
        noise = torch.randn(centres.shape, generator=generator)
        noise = noise if per_component else normalize(noise)
        return Stream(15_000, normalize(centres + 0.03 * noise), torch.arange(25_000))

    return draw


def pile_up(key_size: int, generator: torch.Generator) -> Stream:
    """30,000 examples of 500 kinds, then 20,000 at one place."""
    spread = around(sphere(500, key_size, generator)[pick(0, 500, 30_000, generator)], 0.8, generator)
    heap = sphere(1, key_size, generator) + 0.03 * torch.randn(20_000, key_size, generator=generator)
    return Stream(50_000, torch.cat([spread, normalize(heap)]), torch.arange(50_000))


def equal(key_size: int, generator: torch.Generator) -> Stream:
    """Two of three examples are one of 1,000 keys, again and again; the others are near to one of these."""
    count = 40_000
    bases = sphere(1000, key_size, generator)[pick(0, 1000, count, generator)]
    copies = torch.rand(count, 1, generator=generator) < 2 / 3
    return Stream(25_000, torch.where(copies, bases, around(bases, 0.8, generator)), torch.arange(count))


def easy_then_hard(key_size: int, generator: torch.Generator) -> Stream:
    """25,000 examples near to 1,000 centres, then as many of 50 kinds that overlap."""
    easy = around(sphere(1000, key_size, generator)[pick(0, 1000, 25_000, generator)], 0.95, generator)
    hard = around(sphere(50, key_size, generator)[pick(0, 50, 25_000, generator)], 0.3, generator)
    return Stream(50_000, torch.cat([easy, hard]), pick(0, LABELS, 50_000, generator))


def forget(whole_kinds: bool) -> Callable[[int, torch.Generator], Stream]:
    """500 kinds; half of 30,000 examples are forgotten: every second kind, or here and there."""

    def draw(key_size: int, generator: torch.Generator) -> Stream:
        kinds = pick(0, 500, 50_000, generator)
        queries = around(sphere(500, key_size, generator)[kinds], 0.8, generator)
        gone = kinds % 2 == 0 if whole_kinds else torch.rand(50_000, generator=generator) < 0.5
        return Stream(40_000, queries, torch.arange(50_000), 30_000, gone[:30_000].nonzero()[:, 0])

    return draw


STREAMS: dict[str, Callable[[int, torch.Generator], Stream]] = {
    "drift": drift,
    "sorted by kind": in_order,
    "sorted along a line": along_a_line,
    "alternate": alternate,
    "near-duplicates 50 x 300, norm": near_duplicates(50, per_component=False),
    "near-duplicates 50 x 300, component": near_duplicates(50, per_component=True),
    "near-duplicates 5 x 3000, norm": near_duplicates(5, per_component=False),
    "near-duplicates 5 x 3000, component": near_duplicates(5, per_component=True),
    "pile up": pile_up,
    "equal": equal,
    "easy, then hard": easy_then_hard,
    "forget here and there": forget(whole_kinds=False),
    "forget kinds": forget(whole_kinds=True),
}
