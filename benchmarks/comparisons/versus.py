"""The rarecall of this checkout against that of an older one: `python -m benchmarks versus OLD_CHECKOUT`.

Each has a process of its own, with the same keys and queries. They work in turns, many and short ones, so that both
meet the same machine, and never at the same time.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from tqdm import tqdm

from benchmarks import on, workloads
from benchmarks.settings import SETTING, Settings
from benchmarks.stream import SETTLING, WARMUP, steps_of

TITLE = "Speed of this version over that of the old one (old time / new time)"
COLUMNS = SETTING | {
    "search": "search",
    "gradient": "gradient",
    "recall": "memory(query)",
    "step": "whole step",
    "middle half": "half of the turns, whole step",
    "old_ms": "old step, ms",
    "new_ms": "new step, ms",
}
DEFAULTS = {"workloads": ("clustered", "real")}
TURNS = 20  # of each side in a row of the table
SEARCHES = ("exact", "auto")
BATCH = 16  # slots that an update has written, in the memory to begin with


class Side:
    """A process that has the rarecall of a checkout; see `benchmarks.worker`."""

    def __init__(self, checkout: Path) -> None:
        command, environment = on.process(checkout, "benchmarks.worker")
        pipe = subprocess.PIPE
        self.checkout = checkout
        self.process = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True)

    def tell(self, order: str, **arguments: Any) -> Any:
        """Give an order, wait, and return the answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([order, arguments]) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"The process with the rarecall of {self.checkout} ended while told to {order}.")
        return json.loads(answer)

    def __enter__(self) -> Side:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


def run(settings: Settings, progress: Any) -> Iterator[dict[str, Any]]:
    """One row for each workload, size, key size, k, search and batch, with and without gradient."""
    if settings.old is None:
        raise ValueError("versus needs the checkout of the old version: python -m benchmarks versus OLD_CHECKOUT.")
    for name, size, key_size in product(settings.workloads, settings.sizes, settings.key_sizes):
        try:
            load = workloads.make(name, size, key_size, 2 * SETTLING, settings.seed)
        except FileNotFoundError as error:
            tqdm.write(f"{name}: left out. {error}")
            continue
        with Side(settings.old) as old, Side(on.ROOT) as new, tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "workload.safetensors"
            tensors = {each: getattr(load, each) for each in ("keys", "values", "queries", "targets")}
            save_file(tensors | {"times": load.times(BATCH)}, path)
            for side in (old, new):
                found = Path(side.tell("load", path=str(path), threads=settings.threads))
                if not found.samefile(side.checkout):
                    raise RuntimeError(f"{side.checkout} was asked for its rarecall; {found} answered.")
            for k, search in product(settings.ks, SEARCHES):
                for side in (old, new):
                    side.tell("fill", search=search, k=k)
                for gradient, batch in _kinds(settings):
                    yield {
                        "workload": name,
                        "size": size,
                        "key_size": key_size,
                        "k": k,
                        "batch": batch,
                        "search": search,
                        "gradient": "yes" if gradient else "no",
                        **_compare(old, new, batch, gradient, _steps(settings, batch), progress),
                    }


def _compare(old: Side, new: Side, batch: int, gradient: bool, steps: int, progress: Any) -> dict[str, Any]:
    """Speed of the new over that of the old, in pairs of turns that came one after the other."""
    times: dict[Side, list[list[float]]] = {old: [], new: []}  # of each turn, the medians of recall and whole step
    for number in range(TURNS):
        # Which of them is first in a pair changes from pair to pair.
        for side in (old, new) if number % 2 else (new, old):
            taken = side.tell("turn", batch=batch, gradient=gradient, first=number * steps, steps=steps)
            times[side].append([statistics.median(part) for part in zip(*taken[WARMUP:], strict=True)])
        progress.update()
    ratios = [[a / b for a, b in zip(*both, strict=True)] for both in zip(times[old], times[new], strict=True)]
    recall, step = zip(*ratios, strict=True)
    low, _, high = statistics.quantiles(step, n=4)
    old_ms, new_ms = (statistics.median(turn[1] for turn in times[side]) * 1e3 for side in (old, new))
    return {
        "recall": statistics.median(recall),
        "step": statistics.median(step),
        "middle half": f"{low:.2f} to {high:.2f}",
        "old_ms": old_ms,
        "new_ms": new_ms,
    }


def _kinds(settings: Settings) -> list[tuple[bool, int]]:
    """With gradient or without, and the batch; a single query is never trained on."""
    return [(gradient, batch) for gradient in (False, True) for batch in settings.batches if batch > 1 or not gradient]


def _steps(settings: Settings, batch: int) -> int:
    """How many steps a turn has; those of one query are over soonest."""
    return WARMUP + -(-steps_of(settings.steps, batch) // 2)


def steps(settings: Settings) -> int:
    """How many steps of progress a run has: pairs of turns."""
    rows = product(settings.workloads, settings.sizes, settings.key_sizes, settings.ks, SEARCHES, _kinds(settings))
    return len(list(rows)) * TURNS
