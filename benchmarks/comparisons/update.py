"""The update alone in a large memory against a small one: what it costs must not grow with the capacity."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from itertools import product
from typing import Any

import torch

from benchmarks import workloads
from benchmarks.settings import Settings
from benchmarks.timing import Stopwatch

TITLE = "Update alone: time in a large memory over the time in one of 50,000 keys"
COLUMNS = {
    "size": "keys",
    "key_size": "numbers",
    "batch": "batch",
    "update": "update",
    "grown_mb": "most memory more than before, MB",
}
SMALL = 50_000


def run(settings: Settings, progress: Any) -> Iterator[dict[str, Any]]:
    """One row for each size and batch: uniform keys, so that most queries are new and an old slot gives way."""
    for size, batch in product(settings.sizes, settings.batches):
        loads = [workloads.make("uniform", s, 128, batch * (settings.steps + 5), settings.seed) for s in (SMALL, size)]
        memories = [load.memory(settings.ks[0], batch) for load in loads]
        for memory, load in zip(memories, loads, strict=True):
            memory(load.queries[:batch])  # the first search makes the copy of the keys
            load.keys = load.keys[:0]
        for tensor in (tensor for memory in memories for tensor in memory.buffers()):
            tensor.sum()  # some virtual machines find a page slowly the first time since others were built
        other = torch.ones(2**25)  # 128 MB, more than the caches hold
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        watch = Stopwatch(warmup=5)
        for number in range(settings.steps + 5):
            for memory, load in zip(memories, loads, strict=True):
                query, target = load.step(number, batch)
                recall = memory(query)
                # A search of a large memory leaves nothing in the caches, not even Python: one of a small one does.
                other.sum()
                with watch.time(str(memory.capacity)):
                    memory.update(recall, target)
            progress.update()
        yield {
            "size": size,
            "key_size": 128,
            "batch": batch,
            "update": watch.ratio(str(size), str(SMALL)),
            "update_ms": watch.milliseconds(str(size)),
            "grown_mb": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
        }


def steps(settings: Settings) -> int:
    """How many steps of progress a run has."""
    return len(settings.sizes) * len(settings.batches) * (settings.steps + 5)
