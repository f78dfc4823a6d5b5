"""The step with LSH against the exact step, and how many of the true neighbours LSH finds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from benchmarks import workloads
from benchmarks.settings import SETTING, Settings
from benchmarks.timing import Stopwatch
from rarecall import Memory
from rarecall.newest import chained

TITLE = "LSH: times as fast as exact search, and its recall"
COLUMNS = SETTING | {
    "search": "memory(query)",
    "step": "whole step",
    "recall@1": "recall@1",
    "recall@k": "recall@k",
}


def run(settings: Settings, progress: Any) -> Iterator[dict[str, Any]]:
    """One row for each workload, size, key size, k and batch: both memories get the same queries and updates."""
    for name, size, key_size in product(settings.workloads, settings.sizes, settings.key_sizes):
        for k, batch in product(settings.ks, settings.batches):
            load = workloads.make(name, size, key_size, batch * (settings.steps + 2), settings.seed)
            exact, lsh = load.memory(k, batch), load.memory(k, batch, search="lsh")
            watch = Stopwatch(warmup=2)
            first, found, asked = 0, 0, 0
            for number in range(settings.steps + 2):
                query, target = load.step(number, batch)
                recalls = []
                for method, memory in (("exact", exact), ("lsh", lsh)):
                    with watch.time(f"{method} recall"):
                        recalls.append(memory(query))
                    with watch.time(f"{method} loss"):
                        memory.loss(recalls[-1], target)
                for truth, guess in zip(recalls[0].slots, recalls[1].slots, strict=True):
                    near = set(truth.tolist())
                    first += int(truth[0] == guess[0])
                    found += len(near & set(guess.tolist()))
                    asked += 1
                # Both take the exact recall's update, so that they stay equal.
                with watch.time("exact update"):
                    exact.update(recalls[0], target)
                with watch.time("lsh update"):
                    lsh.update(recalls[1], target)
                _copy(exact, lsh)
                progress.update()
            yield {
                "workload": name,
                "size": size,
                "key_size": key_size,
                "k": k,
                "batch": batch,
                "search": watch.ratio("exact recall", "lsh recall"),
                "step": watch.ratio(
                    *(tuple(f"{m} {p}" for p in ("recall", "loss", "update")) for m in ("exact", "lsh"))
                ),
                "recall@1": first / asked,
                "recall@k": found / asked / k,
                "step_ms": watch.milliseconds("lsh recall", "lsh loss", "lsh update"),
            }


def _copy(source: Memory, target: Memory) -> None:
    """Makes the second memory equal to the first, as LSH missed some neighbours and wrote other slots."""
    differs = (source.keys != target.keys).any(1) | (source.values != target.values)
    slots = differs.nonzero().squeeze(1)
    target.keys[slots], target.values[slots], target.sources[slots] = (
        source.keys[slots],
        source.values[slots],
        source.sources[slots],
    )
    target.clock.touched.copy_(source.clock.touched)
    target.clock.rebuild()
    target.search.changed(target, slots)
    chained(target)  # an edit by hand makes chains anew, which is not part of a step


def steps(settings: Settings) -> int:
    """How many steps of progress a run has."""
    rows = product(settings.workloads, settings.sizes, settings.key_sizes, settings.ks, settings.batches)
    return len(list(rows)) * (settings.steps + 2)
