"""What a key costs in memory with each search, and what a step needs besides. Only where there is glibc."""

from __future__ import annotations

import ctypes
import gc
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks import workloads
from benchmarks.settings import Settings

TITLE = "Bytes a key"
COLUMNS = {
    "search": "search",
    "size": "keys",
    "key_size": "numbers",
    "key": "the key itself",
    "memory": "in memory, all in all",
    "saved": "in a file",
    "grown_mb": "most memory more in a step, MB",
}
SEARCHES = ("exact", "auto")
WARMUP = 5


def run(settings: Settings, progress: Any) -> Iterator[dict[str, Any]]:
    """One row for each search, size and key size: clustered keys, in steps of the largest batch."""
    batch = max(settings.batches)
    for size, key_size, search in product(settings.sizes, settings.key_sizes, SEARCHES):
        load = workloads.make("clustered", size, key_size, batch * (settings.steps + WARMUP), settings.seed)
        gc.collect()  # what was measured before is given back
        ctypes.CDLL(None).malloc_trim(0)
        before = process("VmRSS")
        memory = load.memory(settings.ks[0], batch, search)
        for number in range(settings.steps + WARMUP):
            if number == WARMUP:  # by now all that is made at the first need is there
                Path("/proc/self/clear_refs").write_text("5")  # the most so far is what there is now
                held = process("VmRSS")
            query, target = load.step(number, batch)
            recall = memory(query)
            memory.loss(recall, target)
            memory.update(recall, target)
            del recall
            progress.update()
        grown = process("VmHWM") - held
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "memory.safetensors"
            memory.save(path)
            saved = path.stat().st_size
        yield {
            "search": search,
            "size": size,
            "key_size": key_size,
            "key": 4 * key_size,
            "memory": (held - before) / size,
            "saved": saved / size,
            "grown_mb": grown / 2**20,
        }
        del memory, load


def process(name: str) -> int:
    """Bytes of memory that this process has now (VmRSS), or had at the most (VmHWM)."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name)]
    return int(line.split()[1]) * 1024


def steps(settings: Settings) -> int:
    """How many steps of progress a run has."""
    return len(settings.sizes) * len(settings.key_sizes) * len(SEARCHES) * (settings.steps + WARMUP)
