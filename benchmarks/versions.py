"""What differs between the versions of rarecall that are compared: nothing else in `benchmarks` knows of it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rarecall import Memory, Search

CHUNK = 20_000  # keys that are taken in at once


def make_memory(
    key_size: int, capacity: int, k: int = 256, search: str | Search = "exact", target_recall: float | None = None
) -> Any:
    """Return an empty memory."""
    if target_recall is None:
        return Memory(key_size, capacity, k=k, search=search)
    name = "target_recall" if hasattr(Memory, "write") else "recall"
    arguments: dict[str, Any] = {"k": k, "search": search, name: target_recall}
    return Memory(key_size, capacity, **arguments)


def times(memory: Any) -> Tensor:
    """(capacity,) int64: the update that last touched each slot."""
    return memory.times if hasattr(memory, "times") else memory.clock.touched


def touched(memory: Any) -> Tensor:
    """(n,) int64: the slots of the last update."""
    now = memory.now if hasattr(memory, "now") else memory.clock.now
    return (times(memory) == now).nonzero().squeeze(1)


@torch.no_grad()
def fill(memory: Any, keys: Tensor, values: Tensor, written: Tensor | None = None) -> None:
    """Write one key to each slot of an empty memory, from slot 0 on.

    Args:
        keys: (n, key_size) normalised.
        values: (n,) int64.
        written: (n,) int64, the update that is said to have written each; all the same one by default.
    """
    size = len(keys)
    written = torch.zeros(size, dtype=torch.int64) if written is None else written
    sources = torch.arange(size)
    if hasattr(memory, "write"):
        for rows in sources.split(CHUNK):
            memory.write(keys[rows], values[rows], rows)
        memory.times[:size] = written
        memory.now.fill_(int(written.max()) + 1)
        return
    memory.keys[:size] = keys
    memory.sources[:size] = sources
    memory.clock.touched[:size] = written
    memory.clock.now.fill_(int(written.max()) + 1)
    memory.clock.rebuild()
    for rows in sources.split(CHUNK):
        memory.values[rows] = values[rows]  # until now they were empty
        memory.search.changed(memory, rows)


def effort(memory: Any) -> int | None:
    """How many lists a query reads; None where the search does not tell, or reads all keys."""
    probes = getattr(memory.search, "probes", None)
    return probes if isinstance(probes, int) and probes < 2**31 - 1 else None
