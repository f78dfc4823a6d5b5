"""The step with search="auto" in memories of several sizes, against the same in one of 500,000 keys."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import torch

from benchmarks import workloads
from benchmarks.settings import SETTING, Settings
from benchmarks.stream import (
    JUDGED,
    SETTLING,
    TURNS,
    WANTED,
    WARMUP,
    TimedSearch,
    judge,
    nearest,
    steady,
    steps_of,
    turn,
    warm,
)
from benchmarks.timing import Stopwatch

TITLE = 'search="auto": time in a memory over the time in one of 500,000 keys'
COLUMNS = SETTING | {
    "step": "recall + loss + update",
    "search_step": "search + its update",
    "recall@1": "recall@1",
    "recall@k": "recall@k",
    "probes": "lists looked for",
    "step_ms": "whole step, ms",
}
MIDDLE = 500_000
SIZES = (100_000, 500_000, 1_000_000, 5_000_000)


def run(settings: Settings, progress: Any) -> Iterator[dict[str, Any]]:
    """One row for each workload, size and batch, all sizes in turns."""
    sizes = sorted({MIDDLE, *(settings.sizes if len(settings.sizes) > 1 else SIZES)})
    for name, key_size, k in product(settings.workloads, settings.key_sizes, settings.ks):
        counts = {batch: steps_of(settings.steps, batch) for batch in settings.batches}
        many = JUDGED + SETTLING + sum(batch * count * TURNS for batch, count in counts.items())
        memories, recalls = {}, {}
        for size in sizes:
            load = workloads.make(name, size, key_size, many, settings.seed)
            search = TimedSearch(key_size, size, recall=WANTED)
            memory = steady(load, k, search)
            judged = load.queries[:JUDGED]
            recalls[size] = judge(memory, judged, nearest(load.keys, judged, k))
            load.keys = torch.empty(0, key_size)  # the memory has its own
            memories[size] = load, memory, search
        for load, memory, search in memories.values():
            warm(load, memory, search)
        begin = JUDGED + SETTLING
        for batch, steps in counts.items():
            watches = {size: Stopwatch(warmup=WARMUP) for size in sizes}
            for number in range(TURNS):
                for size, (load, memory, search) in memories.items():
                    search.watch = watches[size] if number % 2 else None
                    for _ in turn(load, memory, search, range(begin, begin + steps * batch, batch), watches[size]):
                        progress.update()
                    search.watch = None
                begin += steps * batch
            for size, (_, _, search) in memories.items():
                whole, searching = (
                    {size: watches[size].milliseconds(*parts) for size in (size, MIDDLE)}
                    for parts in (("recall", "loss", "update"), ("search", "changed"))
                )
                yield {
                    "workload": name,
                    "size": size,
                    "key_size": key_size,
                    "k": k,
                    "batch": batch,
                    "step": whole[size] / whole[MIDDLE],
                    "search_step": searching[size] / searching[MIDDLE],
                    "recall@1": recalls[size][0],
                    "recall@k": recalls[size][1],
                    "probes": search.probes,
                    "step_ms": whole[size],
                    "search_ms": watches[size].milliseconds("search"),
                    "changed_ms": watches[size].milliseconds("changed"),
                }


def steps(settings: Settings) -> int:
    """How many steps of progress a run has."""
    sizes = {MIDDLE, *(settings.sizes if len(settings.sizes) > 1 else SIZES)}
    rows = product(settings.workloads, sizes, settings.key_sizes, settings.ks, settings.batches)
    return sum(steps_of(settings.steps, batch) * TURNS for *_, batch in rows)
