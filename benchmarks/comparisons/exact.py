"""Exact recall and the whole exact step against `faiss.IndexFlatIP`; the extension against torch; the step's shares."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import faiss
import torch

from benchmarks import workloads
from benchmarks.settings import SETTING, Settings
from benchmarks.timing import Stopwatch
from rarecall import ExactSearch

TITLE = "Exact search: times as fast as faiss.IndexFlatIP"
COLUMNS = SETTING | {
    "search": "search",
    "recall": "memory(query)",
    "step": "whole step",
    "torch": "search: extension against torch",
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
            search = memory.search
            if not isinstance(search, ExactSearch):
                raise TypeError(f"Got a memory that searches by {type(search).__name__}; expected ExactSearch.")
            index = faiss.IndexFlatIP(key_size)
            index.add(load.keys.numpy())
            storage = faiss.rev_swig_ptr(index.get_xb(), size * key_size).reshape(size, key_size)
            watch = Stopwatch(warmup=2)
            for number in range(settings.steps + 2):
                query, target = load.step(number, batch)
                with watch.time("faiss search"):
                    theirs = index.search(query.numpy(), k)[0]
                with watch.time("search"), torch.no_grad():
                    search(memory, query, k, None)
                with watch.time("recall"):
                    recall = memory(query)
                with watch.time("loss"):
                    memory.loss(recall, target)
                with watch.time("torch"), torch.no_grad():
                    search._multiply(memory, query, k, None)
                torch.testing.assert_close(recall.similarities, torch.from_numpy(theirs), atol=1e-5, rtol=0)
                with watch.time("update"):
                    memory.update(recall, target)
                slots = (memory.clock.touched == memory.clock.now).nonzero().squeeze(1)
                with watch.time("faiss update"):
                    storage[slots.numpy()] = memory.keys[slots].numpy()
                progress.update()
            step = ("recall", "loss", "update")
            yield {
                "workload": name,
                "size": size,
                "key_size": key_size,
                "k": k,
                "batch": batch,
                "search": watch.ratio("faiss search", "search"),
                "recall": watch.ratio("faiss search", "recall"),
                "step": watch.ratio(("faiss search", "faiss update"), step),
                "torch": watch.ratio("torch", "search"),
                "share": watch.ratio(("loss", "update"), step),
                "faiss_ms": watch.milliseconds("faiss search"),
                "step_ms": watch.milliseconds(*step),
            }


def steps(settings: Settings) -> int:
    """How many steps of progress a run has."""
    rows = product(settings.workloads, settings.sizes, settings.key_sizes, settings.ks, settings.batches)
    return len(list(rows)) * (settings.steps + 2)
