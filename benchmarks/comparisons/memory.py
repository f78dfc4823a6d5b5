"""What a key costs in memory with each search, and what a step needs besides."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from itertools import product
from typing import Any

from torch import Tensor, nn

from benchmarks import workloads
from benchmarks.settings import Settings
from rarecall.search import SEARCHES

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
WARMUP = 5


def run(settings: Settings, progress: Any) -> Iterator[dict[str, Any]]:
    """One row for each search, size and key size: clustered keys, in steps of the largest batch."""
    batch = max(settings.batches)
    for size, key_size, search in product(settings.sizes, settings.key_sizes, SEARCHES):
        load = workloads.make("clustered", size, key_size, batch * (settings.steps + WARMUP), settings.seed)
        memory = load.memory(settings.ks[0], batch, search)
        load.keys = load.keys[:0]
        before = 0
        for number in range(settings.steps + WARMUP):
            if number == WARMUP:  # by now all that is made at the first need is there
                before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            query, target = load.step(number, batch)
            recall = memory(query)
            memory.loss(recall, target)
            memory.update(recall, target)
            del recall
            progress.update()
        yield {
            "search": search,
            "size": size,
            "key_size": key_size,
            "key": 4 * key_size,
            "memory": sum(bytes_of(memory).values()) / size,
            "saved": sum(tensor.nbytes for tensor in memory.state_dict().values()) / size,
            "grown_mb": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
        }


def bytes_of(thing: object, seen: set[int] | None = None) -> dict[int, int]:
    """The bytes of all tensors that a thing holds, however deep, by where they are.

    >>> import torch
    >>> rows = torch.zeros(10, 4)
    >>> list(bytes_of({"all": rows, "some": [rows[2:]]}).values())
    [160]
    """
    seen = set() if seen is None else seen
    if id(thing) in seen:
        return {}
    seen.add(id(thing))
    if isinstance(thing, Tensor):
        storage = thing.untyped_storage()
        return {storage.data_ptr(): storage.nbytes()}
    parts: list[object] = []
    if isinstance(thing, dict):
        parts = list(thing.values())
    elif isinstance(thing, (list, tuple)):
        parts = list(thing)
    elif isinstance(thing, nn.Module) or type(thing).__module__.startswith("rarecall"):
        parts = list(getattr(thing, "__dict__", {}).values())
        parts += [getattr(thing, name, None) for name in getattr(thing, "__slots__", ())]
    found: dict[int, int] = {}
    for part in parts:
        found |= bytes_of(part, seen)
    return found


def steps(settings: Settings) -> int:
    """How many steps of progress a run has."""
    return len(settings.sizes) * len(settings.key_sizes) * len(SEARCHES) * (settings.steps + WARMUP)
