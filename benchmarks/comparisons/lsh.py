"""The step with LSH against the exact step, and how many of the true neighbours LSH finds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from benchmarks import workloads
from benchmarks.settings import SETTING, Settings
from benchmarks.stream import STEP, recalls, step
from benchmarks.timing import Stopwatch

TITLE = "LSH: times as fast as exact search, and its recall"
COLUMNS = SETTING | {
    "search": "memory(query)",
    "step": "whole step",
    "recall@1": "recall@1",
    "recall@k": "recall@k",
}
JUDGED = 512  # queries that tell the recall


def run(settings: Settings, progress: Any) -> Iterator[dict[str, Any]]:
    """One row for each workload, size, key size, k and batch: both memories get the same queries and targets."""
    for name, size, key_size in product(settings.workloads, settings.sizes, settings.key_sizes):
        for k, batch in product(settings.ks, settings.batches):
            load = workloads.make(name, size, key_size, max(JUDGED, batch * (settings.steps + 2)), settings.seed)
            memories = {method: load.memory(k, batch, method) for method in ("exact", "lsh")}
            # While both hold the same keys.
            found = {method: memory(load.queries[:JUDGED]).slots for method, memory in memories.items()}
            first, all_k = recalls(found["lsh"], found["exact"])
            watches = {method: Stopwatch(warmup=2) for method in memories}
            for number in range(settings.steps + 2):
                for method, memory in memories.items():
                    step(memory, *load.step(number, batch), watches[method])
                progress.update()
            times = {
                parts: {method: watch.milliseconds(*parts) for method, watch in watches.items()}
                for parts in (STEP[:1], STEP)
            }
            yield {
                "workload": name,
                "size": size,
                "key_size": key_size,
                "k": k,
                "batch": batch,
                "search": times[STEP[:1]]["exact"] / times[STEP[:1]]["lsh"],
                "step": times[STEP]["exact"] / times[STEP]["lsh"],
                "recall@1": first,
                "recall@k": all_k,
                "step_ms": times[STEP]["lsh"],
            }


def steps(settings: Settings) -> int:
    """How many steps of progress a run has."""
    rows = product(settings.workloads, settings.sizes, settings.key_sizes, settings.ks, settings.batches)
    return len(list(rows)) * (settings.steps + 2)
