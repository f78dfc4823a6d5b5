"""One query at a time while a process spins on the other core: p99 over the median when it is quiet."""

from __future__ import annotations

import multiprocessing
import os
import signal
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import torch

from benchmarks import workloads
from benchmarks.settings import SETTING, Settings
from benchmarks.stream import SETTLING, settle

TITLE = "One recalled query: p99 over the median when quiet"
COLUMNS = {name: label for name, label in SETTING.items() if name != "batch"} | {
    "search": "search",
    "threads": "threads",
    "busy": "p99, other core busy",
    "busy_median": "median, other core busy",
    "quiet": "p99, quiet",
    "median_ms": "median when quiet, ms",
}
DEFAULTS = {"workloads": ("clustered",)}
SEARCHES, THREADS = ("exact", "auto"), (1, 2)
TURNS = 10  # of each, quiet and busy
EACH = 10  # recalls of a turn for every step that is asked for: 20 steps make 2,000 recalls of each


def run(settings: Settings, progress: Any) -> Iterator[dict[str, Any]]:
    """One row for each workload, size, key size, k, search and number of threads."""
    rows = product(settings.workloads, settings.sizes, settings.key_sizes, settings.ks, SEARCHES)
    for name, size, key_size, k, search in rows:
        load = workloads.make(name, size, key_size, SETTLING, settings.seed)
        memory = load.memory(k, 16, search)
        if search == "auto":
            settle(memory, load.queries, load.targets)
        for threads in THREADS:
            torch.set_num_threads(threads)
            times: dict[bool, list[float]] = {False: [], True: []}
            with _spinning() as spin:
                for number in range(2 * TURNS):
                    busy = number % 2 == 1
                    spin(busy)
                    times[busy] += _recalls(memory, load, number * EACH * settings.steps, EACH * settings.steps)
                    progress.update()
            middle = statistics.median(times[False])
            yield {
                "workload": name,
                "size": size,
                "key_size": key_size,
                "k": k,
                "search": search,
                "threads": threads,
                "busy": statistics.quantiles(times[True], n=100)[98] / middle,
                "busy_median": statistics.median(times[True]) / middle,
                "quiet": statistics.quantiles(times[False], n=100)[98] / middle,
                "median_ms": middle * 1e3,
            }
        torch.set_num_threads(settings.threads)


def _recalls(memory: Any, load: workloads.Workload, first: int, count: int) -> list[float]:
    """Seconds of each."""
    times = []
    for number in range(first, first + count):
        query, _ = load.step(number, 1)
        start = time.perf_counter()
        memory(query)
        times.append(time.perf_counter() - start)
    return times


@contextmanager
def _spinning() -> Iterator[Any]:
    """A process that takes one core while it is told to."""
    process = multiprocessing.get_context("spawn").Process(target=_spin, daemon=True)
    process.start()
    assert process.pid is not None
    number = process.pid

    def spin(busy: bool) -> None:
        os.kill(number, signal.SIGCONT if busy else signal.SIGSTOP)

    try:
        yield spin
    finally:
        process.kill()
        process.join()


def _spin() -> None:
    while True:
        pass


def steps(settings: Settings) -> int:
    """How many steps of progress a run has: turns."""
    rows = product(settings.workloads, settings.sizes, settings.key_sizes, settings.ks, SEARCHES, THREADS)
    return len(list(rows)) * 2 * TURNS
