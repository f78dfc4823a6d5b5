"""The HTTP service with MiniLM: one client against `ask` in Python; then 32 clients asking while one teaches.

The server is a process of its own, the clients are threads of this one. It is killed with SIGKILL while it teaches, and
what it had acknowledged is looked for in the folder.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import rarecall
from benchmarks.settings import Settings

TITLE = "The HTTP service: one client, and 32 clients asking while one teaches"
COLUMNS = {
    "ratio": "one client, ask over HTTP / in Python",
    "python_ms": "in Python, ms",
    "http_ms": "over HTTP, ms",
    "clients": "clients asking",
    "asks": "asks a second",
    "p50_ms": "median, ms",
    "p99_ms": "p99, ms",
    "teachings": "teachings a second",
    "errors": "errors",
    "kills": "kills",
    "acknowledged": "acknowledged",
    "lost": "lost",
}
CLIENTS, KILLS = 32, 5
TAUGHT = 1000  # examples before it begins
TURNS, EACH = 10, 20  # alternating turns, and asks of each
WORDS = ("card", "money", "account", "transfer", "lost", "stolen", "limit", "cash", "bank", "fee", "loan", "my", "late")


def run(settings: Settings, progress: Any) -> Iterator[dict[str, Any]]:
    """One row."""
    rng = random.Random(settings.seed)
    with tempfile.TemporaryDirectory() as folder:
        served, local = Path(folder) / "served", Path(folder) / "local"
        texts = [_text(rng) for _ in range(TAUGHT)]
        for each in (served, local):
            with rarecall.open(each, "minilm") as kept:
                kept.teach(texts, [text.split()[0] for text in texts])
        with rarecall.open(local, "minilm") as kept, _serving(served, settings.threads) as (port, _):
            row = _one_client(kept, port, rng, progress)
        row |= _many(served, settings, rng, progress)
        yield row


def steps(settings: Settings) -> int:
    """How far its progress goes."""
    return TURNS + KILLS


def _one_client(kept: Any, port: int, rng: random.Random, progress: Any) -> dict[str, Any]:
    client, times = Client(port), {"python": list[float](), "http": list[float]()}
    for turn in range(TURNS):
        for number in range(EACH):
            question = _text(rng)
            both = [("python", kept.ask), ("http", client.ask)]
            for name, ask in both[:: 1 if number % 2 else -1]:
                start = time.perf_counter()
                ask(question)
                times[name] += [time.perf_counter() - start] if turn else []  # the first turn warms up
        progress.update()
    python, over_http = (statistics.median(times[name]) for name in ("python", "http"))
    return {"ratio": over_http / python, "python_ms": python * 1e3, "http_ms": over_http * 1e3}


def _many(folder: Path, settings: Settings, rng: random.Random, progress: Any) -> dict[str, Any]:
    seconds, asks, errors = 0.0, list[float](), list[str]()
    acknowledged = list[str]()
    for kill in range(KILLS):
        killed = threading.Event()

        def ask(seed: int, port: int, killed: threading.Event = killed) -> None:
            client, own = Client(port), random.Random(seed)
            while not killed.is_set():
                start = time.perf_counter()
                try:
                    client.ask(_text(own))
                    asks.append(time.perf_counter() - start)
                except (OSError, http.client.HTTPException, RuntimeError) as error:
                    if not killed.is_set():
                        errors.append(str(error))

        def teach(port: int, kill: int = kill, killed: threading.Event = killed) -> None:
            client, number = Client(port), 0
            while not killed.is_set():
                text, number = f"{_text(rng)} number {kill} {number}", number + 1
                try:
                    client.post("teach", {"example": text, "label": f"class {number % 50}"})
                    acknowledged.append(text)
                except (OSError, http.client.HTTPException, RuntimeError) as error:
                    if not killed.is_set():
                        errors.append(str(error))

        with _serving(folder, settings.threads) as (port, process):
            threads = [threading.Thread(target=ask, args=(1000 * kill + seed, port)) for seed in range(CLIENTS)]
            threads.append(threading.Thread(target=teach, args=(port,)))
            start = time.perf_counter()
            for thread in threads:
                thread.start()
            time.sleep(settings.steps / 4 + rng.random())
            seconds += time.perf_counter() - start
            killed.set()
            process.kill()
            for thread in threads:
                thread.join()
        progress.update()
    with rarecall.open(folder, "minilm") as kept:
        there = {taught.example for taught in kept.examples()}
    return {
        "clients": CLIENTS,
        "asks": len(asks) / seconds,
        "p50_ms": statistics.median(asks) * 1e3,
        "p99_ms": statistics.quantiles(asks, n=100)[98] * 1e3,
        "teachings": len(acknowledged) / seconds,
        "errors": len(errors),
        "kills": KILLS,
        "acknowledged": len(acknowledged),
        "lost": len(set(acknowledged) - there),
    }


class Client:
    """One connection that is kept."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def post(self, operation: str, body: dict[str, Any]) -> Any:
        """Return the answer's JSON."""
        self.connection.request("POST", f"/api/{operation}", json.dumps(body), {"content-type": "application/json"})
        answer = self.connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{answer.status}: {content!r}")
        return json.loads(content)

    def ask(self, question: str) -> Any:
        """Ask one question."""
        return self.post("ask", {"example": question})


@contextmanager
def _serving(folder: Path, threads: int) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """The port and the process of a server of its own."""
    command = [sys.executable, "-m", "rarecall.cli.main", "serve", str(folder), "--port", "0", "--rate", "0"]
    environment = {"OMP_NUM_THREADS": str(threads)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | environment)
    try:
        assert process.stdout is not None
        found = re.search(r":(\d+)/", process.stdout.readline())
        if found is None:
            raise RuntimeError("The server did not start.")
        yield int(found[1]), process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _text(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(4, 10)))
