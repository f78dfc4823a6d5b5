"""The step with search="auto" in memories of several sizes, against the same in one of 500,000 keys."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import torch

from benchmarks import versions, workloads
from benchmarks.settings import SETTING, Settings
from benchmarks.stream import JUDGED, SETTLING, STEP, TURNS, WARMUP, nearest, recalls, settle, step, steps_of
from benchmarks.timing import Stopwatch

TITLE = 'search="auto": time in a memory over the time in one of 500,000 keys'
COLUMNS = SETTING | {
    "step": "recall + loss + update",
    "recall@1": "recall@1",
    "recall@k": "recall@k",
    "lists": "lists read",
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
        memories, shares = {}, {}
        for size in sizes:
            load = workloads.make(name, size, key_size, many, settings.seed)
            memory = load.memory(k, 16, "auto")
            load.keys = torch.empty(0, key_size)  # the memory has its own
            settle(memory, load.queries[JUDGED:], load.targets[JUDGED:])
            judged = load.queries[:JUDGED]
            shares[size] = recalls(memory(judged).slots, nearest(memory.keys, judged, k))
            memories[size] = load, memory
        for load, memory in memories.values():  # what was built meanwhile has taken the caches
            for query, target in zip(load.queries[:JUDGED].split(128), load.targets[:JUDGED].split(128), strict=True):
                step(memory, query, target, Stopwatch())
        begin = JUDGED + SETTLING
        for batch, steps in counts.items():
            watches = {size: Stopwatch(warmup=WARMUP) for size in sizes}
            for _ in range(TURNS):
                for size, (load, memory) in memories.items():
                    for first in range(begin, begin + steps * batch, batch):
                        rows = slice(first, first + batch)
                        step(memory, load.queries[rows], load.targets[rows], watches[size])
                        progress.update()
                begin += steps * batch
            whole = {size: watch.milliseconds(*STEP) for size, watch in watches.items()}
            for size, (_, memory) in memories.items():
                yield {
                    "workload": name,
                    "size": size,
                    "key_size": key_size,
                    "k": k,
                    "batch": batch,
                    "step": whole[size] / whole[MIDDLE],
                    "recall@1": shares[size][0],
                    "recall@k": shares[size][1],
                    "lists": versions.lists_read(memory) or "all",
                    "step_ms": whole[size],
                }


def steps(settings: Settings) -> int:
    """How many steps of progress a run has."""
    sizes = {MIDDLE, *(settings.sizes if len(settings.sizes) > 1 else SIZES)}
    rows = product(settings.workloads, sizes, settings.key_sizes, settings.ks, settings.batches)
    return sum(steps_of(settings.steps, batch) * TURNS for *_, batch in rows)
