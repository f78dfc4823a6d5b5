"""Exact recall and the whole exact step against `faiss.IndexFlatIP`, and recall against a product and topk in torch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import faiss
import torch

from benchmarks import versions, workloads
from benchmarks.settings import SETTING, Settings
from benchmarks.stream import STEP
from benchmarks.timing import Stopwatch

TITLE = "Exact search: times as fast as faiss.IndexFlatIP"
COLUMNS = SETTING | {
    "recall": "memory(query)",
    "step": "whole step",
    "torch": "memory(query) against torch",
    "share": "loss + update, share of the step",
    "faiss_ms": "faiss, ms",
    "step_ms": "whole step, ms",
}


def run(settings: Settings, progress: Any) -> Iterator[dict[str, Any]]:
    """One row for each workload, size, key size, k and batch.

    FAISS searches and then writes the same changed keys into its storage, the cheapest update it can have.
    """
    faiss.omp_set_num_threads(settings.threads)
    for name, size, key_size in product(settings.workloads, settings.sizes, settings.key_sizes):
        for k, batch in product(settings.ks, settings.batches):
            load = workloads.make(name, size, key_size, batch * (settings.steps + 2), settings.seed)
            memory = load.memory(k, batch)
            index = faiss.IndexFlatIP(key_size)
            index.add(load.keys.numpy())
            storage = faiss.rev_swig_ptr(index.get_xb(), size * key_size).reshape(size, key_size)
            watch = Stopwatch(warmup=2)
            for number in range(settings.steps + 2):
                query, target = load.step(number, batch)
                with watch.time("faiss search"):
                    theirs = index.search(query.numpy(), k)[0]
                with watch.time("recall"):
                    recall = memory(query)
                with watch.time("loss"):
                    memory.loss(recall, target)
                with watch.time("torch"):
                    torch.topk(query @ memory.keys.T, k)
                torch.testing.assert_close(recall.similarities, torch.from_numpy(theirs), atol=1e-5, rtol=0)
                with watch.time("update"):
                    memory.update(recall, target)
                slots = (versions.last_touched(memory) == versions.updates(memory)).nonzero().squeeze(1)
                with watch.time("faiss update"):
                    storage[slots.numpy()] = memory.keys[slots].numpy()
                progress.update()
            yield {
                "workload": name,
                "size": size,
                "key_size": key_size,
                "k": k,
                "batch": batch,
                "recall": watch.ratio("faiss search", "recall"),
                "step": watch.ratio(("faiss search", "faiss update"), STEP),
                "torch": watch.ratio("torch", "recall"),
                "share": watch.ratio(("loss", "update"), STEP),
                "faiss_ms": watch.milliseconds("faiss search"),
                "step_ms": watch.milliseconds(*STEP),
            }


def steps(settings: Settings) -> int:
    """How many steps of progress a run has."""
    rows = product(settings.workloads, settings.sizes, settings.key_sizes, settings.ks, settings.batches)
    return len(list(rows)) * (settings.steps + 2)
