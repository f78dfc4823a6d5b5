"""Training a network that translates: with a memory of half a million keys against without one."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from benchmarks.settings import Settings
from experiments.training import keep_freed_memory
from experiments.translation import networks
from experiments.translation.evaluate import fill
from experiments.translation.presets import make_run
from experiments.translation.state import State
from experiments.translation.text import DEVELOPMENT, news_test, read, training_files
from experiments.translation.train import prepare

TITLE = "Training a translator: target pieces a second, with memory over without"
COLUMNS = {
    "size": "keys",
    "key_size": "numbers",
    "k": "k",
    "with": "with memory",
    "without": "without",
    "ratio": "with over without",
}
PAIRS = 30_000  # whose pieces fill the memory before it is measured
WARMUP = 5


def run(settings: Settings, progress: Any) -> Iterator[dict[str, Any]]:
    """One row: from the published weights by the `cpu` preset, steps of both in turns, each with batches of its own."""
    keep_freed_memory()
    begin, files = networks.read("translation"), training_files()
    data, _ = prepare(files, news_test(DEVELOPMENT), begin.vocabulary, quiet=True)
    chosen = {name: begin.run[name] for name in ("units", "layers", "reattend")}
    chosen |= {"repeats": files.repeats, "seed": settings.seed}
    states = {
        name: State(make_run("cpu", memory=name == "with", **chosen), data, begin) for name in ("with", "without")
    }
    network = states["with"].network
    assert network.memory is not None
    fill(replace(begin, network=network), read(files.sources, files.targets), PAIRS, quiet=True)
    speeds: dict[str, list[float]] = {name: [] for name in states}
    for _ in range(WARMUP + settings.steps):
        for name, state in states.items():
            speeds[name].append(state.forward_one()["tokens_per_second"])
        progress.update()
    found = {name: statistics.median(values[WARMUP:]) for name, values in speeds.items()}
    yield {
        "size": len(network.memory),
        "key_size": network.units,
        "k": network.memory.k,
        **found,
        "ratio": found["with"] / found["without"],
    }


def steps(settings: Settings) -> int:
    """How many steps of progress a run has."""
    return WARMUP + settings.steps
