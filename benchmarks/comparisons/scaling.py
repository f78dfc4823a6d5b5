"""The step with search="auto" in memories of several sizes, against the same in one of 500,000 keys."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import torch

from benchmarks import workloads
from benchmarks.comparisons.approximate import JUDGED, SETTLING, WANTED, judge, settle
from benchmarks.settings import SETTING, Settings
from benchmarks.timing import Stopwatch
from rarecall.search import AutoSearch

TITLE = 'search="auto": time in a memory over the time in one of 500,000 keys'
COLUMNS = SETTING | {
    "step": "recall + loss + update",
    "search_step": "search + its update",
    "recall@1": "recall@1",
    "recall@k": "recall@k",
    "probes": "lists read",
    "step_ms": "whole step, ms",
}
MIDDLE = 500_000
SIZES = (100_000, 500_000, 1_000_000, 5_000_000)


def run(settings: Settings, progress: Any) -> Iterator[dict[str, Any]]:
    """One row for each workload, size and batch, all sizes in turns."""
    sizes = sorted({MIDDLE, *(settings.sizes if len(settings.sizes) > 1 else SIZES)})
    for name, key_size, k in product(settings.workloads, settings.key_sizes, settings.ks):
        steps = settings.steps + 2
        many = JUDGED + SETTLING + sum(settings.batches) * steps
        memories, recalls = {}, {}
        for size in sizes:
            load = workloads.make(name, size, key_size, many, settings.seed)
            memory = load.memory(k, 16, AutoSearch(key_size, size, recall=WANTED))
            settle(memory, load.queries[JUDGED : JUDGED + SETTLING])
            recalls[size] = judge(memory, load.queries[:JUDGED])
            load.keys = torch.empty(0, key_size)  # the memory has its own
            memories[size] = load, memory
        begin = JUDGED + SETTLING
        for batch in settings.batches:
            watch = Stopwatch(warmup=2)
            for _ in range(steps):
                for size, (load, memory) in memories.items():
                    query, target = load.queries[begin : begin + batch], load.targets[begin : begin + batch]
                    with watch.time(f"{size} search"), torch.no_grad():
                        memory.search(memory, query, k, None)
                    with watch.time(f"{size} step"):
                        recall = memory(query)
                        memory.loss(recall, target)
                        memory.update(recall, target)
                    slots = (memory.clock.touched == memory.clock.now).nonzero().squeeze(1)
                    memory.search(memory, query, k, None)
                    with watch.time(f"{size} changed"):  # once more, to know its share
                        memory.search.updated(memory, slots)
                    progress.update()
                begin += batch
            for size, (_, memory) in memories.items():
                both = (f"{size} search", f"{size} changed")
                yield {
                    "workload": name,
                    "size": size,
                    "key_size": key_size,
                    "k": k,
                    "batch": batch,
                    "step": watch.ratio(f"{size} step", f"{MIDDLE} step"),
                    "search_step": watch.ratio(both, (f"{MIDDLE} search", f"{MIDDLE} changed")),
                    "recall@1": recalls[size][0],
                    "recall@k": recalls[size][1],
                    "probes": memory.search.probes,
                    "step_ms": watch.milliseconds(f"{size} step"),
                    "search_ms": watch.milliseconds(f"{size} search"),
                    "changed_ms": watch.milliseconds(f"{size} changed"),
                }


def steps(settings: Settings) -> int:
    """How many steps of progress a run has."""
    sizes = {MIDDLE, *(settings.sizes if len(settings.sizes) > 1 else SIZES)}
    rows = product(settings.workloads, sizes, settings.key_sizes, settings.ks, settings.batches)
    return len(list(rows)) * (settings.steps + 2)
