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
from typing import Any, NamedTuple

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
    "old recall@1": "old recall@1",
    "new recall@1": "new recall@1",
}
DEFAULTS = {"workloads": ("clustered", "real")}
# Processes that each side has, one after the other: where the keys lie in memory, and with it the speed, differs from
# one process to the next by some per cent. In each of them, turns for every row of the table.
ROUNDS, TURNS = 3, 8
SEARCHES = ("exact", "auto")
BATCH = 16  # slots that an update has written, in the memory to begin with


class Kind(NamedTuple):
    """What a row is of, beside the workload."""

    search: str
    gradient: str
    k: int
    batch: int


class Pair(NamedTuple):
    """Two turns, one after the other: median seconds of a recall and of a whole step, and recall@1."""

    old_recall: float
    old_step: float
    new_recall: float
    new_step: float
    old_found: float
    new_found: float


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
        with self.process:  # closes its pipes, and waits
            pass


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
        pairs: dict[Kind, list[list[Pair]]] = {kind: [] for kind in _kinds(settings)}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "workload.safetensors"
            tensors = {each: getattr(load, each) for each in ("keys", "values", "queries", "targets")}
            save_file(tensors | {"times": load.times(BATCH)}, path)
            del load, tensors
            for _ in range(ROUNDS):
                with Side(settings.old) as old, Side(on.ROOT) as new:
                    _measure(old, new, path, settings, pairs, progress)
        for kind, rounds in pairs.items():
            yield {"workload": name, "size": size, "key_size": key_size, **kind._asdict(), **_row(rounds)}


def _measure(
    old: Side, new: Side, path: Path, settings: Settings, pairs: dict[Kind, list[list[Pair]]], progress: Any
) -> None:
    """Add the turns of one round to the pairs of each kind."""
    for side in (old, new):
        found = Path(side.tell("load", path=str(path), threads=settings.threads))
        if not found.samefile(side.checkout):
            raise RuntimeError(f"{side.checkout} was asked for its rarecall; {found} answered.")
    filled = None
    for kind, rounds in pairs.items():
        if filled != (kind.search, kind.k):
            filled = kind.search, kind.k
            recalls = [side.tell("fill", search=kind.search, k=kind.k) for side in (old, new)]
            if kind.search == "exact" and min(recalls) < 1:
                raise RuntimeError(f"An exact search found {recalls} of the nearest keys, the old and the new one.")
        steps, taken = _steps(settings, kind), []
        for number in range(TURNS):
            order = {"batch": kind.batch, "gradient": kind.gradient == "yes", "first": number * steps, "steps": steps}
            # Which of them is first in a pair changes from pair to pair.
            times = {side: side.tell("turn", **order) for side in ((old, new) if number % 2 else (new, old))}
            medians = [[statistics.median(part) for part in zip(*times[s][WARMUP:], strict=True)] for s in (old, new)]
            taken.append(Pair(*medians[0], *medians[1], *recalls))
            progress.update()
        rounds.append(taken)


def _row(rounds: list[list[Pair]]) -> dict[str, Any]:
    """Speed of the new over that of the old: the median of the pairs of turns that came one after the other."""
    pairs = [pair for taken in rounds for pair in taken]
    low, middle, high = statistics.quantiles([pair.old_step / pair.new_step for pair in pairs], n=4)
    return {
        "recall": statistics.median(pair.old_recall / pair.new_recall for pair in pairs),
        "step": middle,
        "middle half": f"{low:.2f} to {high:.2f}",
        "old_ms": statistics.median(pair.old_step for pair in pairs) * 1e3,
        "new_ms": statistics.median(pair.new_step for pair in pairs) * 1e3,
        "old recall@1": statistics.mean(pair.old_found for pair in pairs),
        "new recall@1": statistics.mean(pair.new_found for pair in pairs),
        "rounds": [round(statistics.median(pair.old_step / pair.new_step for pair in taken), 3) for taken in rounds],
    }


def _kinds(settings: Settings) -> list[Kind]:
    """The rows of a workload; a single query is never trained on."""
    return [
        Kind(search, gradient, k, batch)
        for k, search, gradient, batch in product(settings.ks, SEARCHES, ("no", "yes"), settings.batches)
        if batch > 1 or gradient == "no"
    ]


def _steps(settings: Settings, kind: Kind) -> int:
    """How many steps a turn has: more of those that are soon over."""
    return WARMUP + steps_of(settings.steps, kind.batch) * (2 if kind.search == "auto" else 1) // 2


def steps(settings: Settings) -> int:
    """How many steps of progress a run has: pairs of turns."""
    rows = product(settings.workloads, settings.sizes, settings.key_sizes, _kinds(settings))
    return len(list(rows)) * ROUNDS * TURNS
