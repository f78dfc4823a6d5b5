"""A classifier in a folder: python -m benchmarks.kept [--keys 500000] [--out results/kept.json]

Every figure is a ratio of two things that were measured in alternating turns of one run: teachings against appending
the same bytes to a plain SQLite table, batches against `Memory.update` alone, opening against reading the snapshot, and
asking in a process while another teaches against asking alone.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import rarecall
from benchmarks.machine import provenance

SIZE, CLASSES, TAUGHT = 384, 500, 5000
TURNS = 5
TEXT = "the machine ate my card and the bank is closed"


def examples(random: np.random.Generator, count: int) -> tuple[Any, Any]:
    """Return (count, SIZE) keys around CLASSES centres, and their labels."""
    centres = np.random.default_rng(0).normal(size=(CLASSES, SIZE)).astype(np.float32)
    labels = random.integers(CLASSES, size=count)
    return centres[labels] + 0.7 * random.normal(size=(count, SIZE)).astype(np.float32), labels


def timed(run: Callable[..., object], *args: Any) -> float:
    """Return how many seconds a call takes."""
    began = time.perf_counter()
    run(*args)
    return time.perf_counter() - began


def teaching(place: Path, random: np.random.Generator) -> dict[str, Any]:
    """Single teachings against a plain table; batches of 256 against `Memory.update`."""
    plain = sqlite3.connect(place / "plain.sqlite", isolation_level=None)
    plain.execute("PRAGMA journal_mode = WAL")
    plain.execute("PRAGMA synchronous = FULL")
    plain.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, label TEXT, time REAL, key BLOB, content TEXT)")
    memory = rarecall.Memory(SIZE, 8192)
    singles, cpu, batches = [], [], []
    with rarecall.open(place / "taught") as kept:
        keys, labels = examples(random, TAUGHT)
        kept.teach(keys, labels)
        memory.write(torch.from_numpy(keys), torch.from_numpy(labels))

        def append() -> None:
            for key, label in zip(keys, labels.tolist(), strict=True):
                row = (str(label), time.time(), key.tobytes(), TEXT)
                plain.execute("INSERT INTO t (label, time, key, content) VALUES (?, ?, ?, ?)", row)

        def teach() -> None:
            for key, label in zip(keys, labels.tolist(), strict=True):
                kept.teach(TEXT, label, keys=key)

        def update(query: torch.Tensor, target: torch.Tensor) -> None:
            memory.update(memory(query), target)

        for _ in range(TURNS):
            keys, labels = examples(random, 50)
            clock = time.process_time  # what is not the disk's
            began, taken = clock(), timed(append)
            between, taken_by_us = clock(), timed(teach)
            singles.append((taken, taken_by_us))
            cpu.append((between - began, clock() - between))
            keys, labels = examples(random, 256)
            query, target = torch.from_numpy(keys), torch.from_numpy(labels)
            batches.append((timed(update, query, target), timed(kept.teach, keys, labels)))
    plain.close()
    return {
        "single": _ratio(singles, 50, "plain_per_second", "taught_per_second")
        | {"cpu_microseconds": [round(statistics.median(each) / 50 * 1e6) for each in zip(*cpu, strict=True)]},
        "batch_of_256": _ratio(batches, 256, "update_per_second", "taught_per_second"),
    }


def opening(place: Path, random: np.random.Generator, keys: int, entries: int) -> dict[str, Any]:
    """Import, snapshot and open of many keys, with entries after the snapshot."""
    folder = place / "large"
    vectors = random.normal(size=(keys, SIZE)).astype(np.float32)
    labels = random.integers(1000, size=keys)
    kept = rarecall.open(folder)
    imported = timed(lambda: kept.import_(vectors, labels=labels, progress=False))
    kept.compact()
    for _ in range(entries):
        vector = random.normal(size=SIZE).astype(np.float32)
        kept.import_(vector[None], labels=[int(random.integers(1000))], progress=False)
    kept._kept._unsaved = 0  # closing must not write another snapshot: these entries are to be read
    kept.close()
    snapshot, turns, asked = folder / "snapshot.safetensors", [], []
    for _ in range(TURNS):
        into = np.empty(snapshot.stat().st_size, np.uint8)

        def read(into: Any = into) -> None:
            with open(snapshot, "rb", buffering=0) as file:
                assert file.readinto(into) == len(into)

        reading = timed(read)
        del into, read
        began = time.perf_counter()
        with rarecall.open(folder, readonly=True) as opened:
            turns.append((reading, time.perf_counter() - began))
            opened.ask(np.ones(SIZE))
            asked.append(time.perf_counter() - began)
            assert len(opened) == keys + entries
    return {
        "keys": keys,
        "entries_after_the_snapshot": entries,
        "import_seconds": round(imported, 1),
        "read_seconds": round(statistics.median(turn[0] for turn in turns), 3),
        "open_seconds": round(statistics.median(turn[1] for turn in turns), 3),
        "open_and_first_answer_seconds": round(statistics.median(asked), 3),
        "open_in_reads": round(statistics.median(opened / read for read, opened in turns), 2),
        "turns": [[round(seconds, 3) for seconds in turn] for turn in turns],
    }


def asking(place: Path, random: np.random.Generator) -> dict[str, Any]:
    """The 99th percentile of an answer in a follower, alone and while another process teaches 100 a second."""
    folder = place / "taught"
    questions = examples(random, 500)[0]
    alone, beside = [], []
    with rarecall.open(folder, readonly=True) as kept:
        for _ in range(2):
            alone += [timed(kept.ask, question) for question in questions]
            stop = multiprocessing.get_context("spawn").Event()
            ready = multiprocessing.get_context("spawn").Event()
            teacher = multiprocessing.get_context("spawn").Process(target=_teach, args=(folder, ready, stop))
            teacher.start()
            ready.wait()
            beside += [timed(kept.ask, question) for question in questions]
            stop.set()
            teacher.join()
    p99 = [float(np.percentile(times, 99)) for times in (alone, beside)]
    p50 = [float(np.percentile(times, 50)) for times in (alone, beside)]
    return {
        "p50_ms": [round(1000 * each, 3) for each in p50],
        "p99_ms": [round(1000 * each, 3) for each in p99],
        "p99_ratio": round(p99[1] / p99[0], 2),
    }


def _teach(folder: Path, ready: Any, stop: Any) -> None:
    torch.set_num_threads(1)
    random = np.random.default_rng(1)
    with rarecall.open(folder) as kept:
        ready.set()
        while not stop.is_set():
            keys, labels = examples(random, 1)
            kept.teach(keys, labels)
            stop.wait(0.01)


def _ratio(turns: list[tuple[float, float]], count: int, *names: str) -> dict[str, Any]:
    """Rates of both, and how many times as fast the second is: the median of the turns."""
    rates = [round(count / statistics.median(each), 1) for each in zip(*turns, strict=True)]
    ratio = statistics.median(first / second for first, second in turns)
    return dict(zip(names, rates, strict=True)) | {"ratio": round(ratio, 2)}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=500_000)
    parser.add_argument("--entries", type=int, default=10_000)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    origin = provenance() | {"command": f"python -m benchmarks.kept --keys {args.keys} --entries {args.entries}"}
    random = np.random.default_rng(args.seed)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        figures: dict[str, Any] = {}
        figures["teaching"] = teaching(place, random)
        figures["asking"] = asking(place, random)
        print(json.dumps(figures, indent=2), flush=True)
        figures["opening"] = opening(place, random, args.keys, args.entries)
    origin["machine"]["load_after"] = round(os.getloadavg()[0], 1)
    result = origin | {"experiment": "kept", "seed": args.seed} | figures
    print(json.dumps(figures["opening"], indent=2))
    if args.out:
        args.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
