"""Reading a recall by the blend, as a classifier does: its time on top of that of the recall."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from itertools import product
from typing import Any

import torch

from benchmarks import workloads
from benchmarks.settings import SETTING, Settings
from benchmarks.stream import SETTLING, settle
from benchmarks.timing import Stopwatch
from rarecall import Blend

TITLE = "Reading by the blend, on top of the recall"
COLUMNS = SETTING | {
    "search": "search",
    "classes": "classes",
    "cost": "blend, % of the recall",
    "recall_ms": "recall, ms",
    "blend_ms": "blend, ms",
}
DEFAULTS = {"batches": (16,), "steps": 100}
SEARCHES, CLASSES = ("exact", "auto"), (100, 5_000)


def run(settings: Settings, progress: Any) -> Iterator[dict[str, Any]]:
    """One row for each workload, size, key size, k, batch, search and number of classes."""
    for name, size, key_size, search, classes in product(
        settings.workloads, settings.sizes, settings.key_sizes, SEARCHES, CLASSES
    ):
        load = workloads.make(name, size, key_size, SETTLING, settings.seed)
        load = dataclasses.replace(load, values=load.values % classes, targets=load.targets % classes)
        for k, batch in product(settings.ks, settings.batches):
            memory, blend, watch = load.memory(k, batch, search), Blend(), Stopwatch(warmup=2)
            if search == "auto":
                settle(memory, load.queries, load.targets)
            blend.fit(memory)
            with torch.no_grad():
                for number in range(settings.steps + 2):
                    query, _ = load.step(number, batch)
                    with watch.time("recall"):
                        recall = memory(query)
                    with watch.time("blend"):
                        blend(memory, recall)
                    progress.update()
            yield {
                "workload": name,
                "size": size,
                "key_size": key_size,
                "k": k,
                "batch": batch,
                "search": search,
                "classes": classes,
                "cost": 100 * watch.ratio("blend", "recall"),
                "recall_ms": watch.milliseconds("recall"),
                "blend_ms": watch.milliseconds("blend"),
            }


def steps(settings: Settings) -> int:
    """How many steps of progress a run has."""
    rows = product(settings.workloads, settings.sizes, settings.key_sizes, SEARCHES, CLASSES)
    return len(list(rows)) * len(settings.ks) * len(settings.batches) * (settings.steps + 2)
