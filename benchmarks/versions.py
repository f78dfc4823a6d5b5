"""All that differs between the versions of rarecall that are compared; the rest of `benchmarks` runs on each of them.

Memories are of type Any here, since no version has the attributes of the other.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rarecall import Memory

CHUNK = 20_000  # keys that are written at once
NEW = hasattr(Memory, "write")


def make_memory(key_size: int, capacity: int, k: int, search: str = "exact", target_recall: float | None = None) -> Any:
    """Return an empty memory."""
    settings: dict[str, Any] = {"k": k, "search": search}
    if target_recall is not None:
        settings["target_recall" if NEW else "recall"] = target_recall
    return Memory(key_size, capacity, **settings)


@torch.no_grad()
def fill(memory: Any, keys: Tensor, values: Tensor, times: Tensor) -> None:
    """Write one key to each slot of an empty memory, from slot 0 on.

    Args:
        memory: with room for all of them.
        keys: (n, key_size) normalised.
        values: (n,) int64.
        times: (n,) int64, the update that is to have written each.
    """
    size, now = len(keys), int(times.max()) + 1
    slots = torch.arange(size)
    if NEW:
        for rows in slots.split(CHUNK):
            memory.write(keys[rows], values[rows], rows)
        _set_times(memory, torch.cat([times, memory.times[size:]]), now)
        return
    memory.keys[:size] = keys
    memory.sources[:size] = slots
    memory.clock.touched[:size] = times
    memory.clock.now.fill_(now)
    memory.clock.rebuild()
    for rows in slots.split(CHUNK):
        memory.values[rows] = values[rows]  # until now they were empty
        memory.search.changed(memory, rows)


@torch.no_grad()
def take_up_again(memory: Any) -> None:
    """Have the search take up every key of a full memory once more, in no order of the slots."""
    chunks = torch.randperm(memory.capacity, generator=torch.Generator().manual_seed(1)).split(CHUNK // 4)
    if not NEW:
        for slots in chunks:
            memory.search.changed(memory, slots)
        return
    times, now = memory.times.clone(), int(memory.now)
    for slots in chunks:
        slots = slots.sort().values  # the order in which empty slots are written
        held = [each[slots] for each in (memory.keys, memory.values, memory.sources, memory.counts)]
        memory.forget(slots=slots)
        memory.write(*held)
    _set_times(memory, times, now)


def _set_times(memory: Any, times: Tensor, now: int) -> None:
    """Edit when slots were touched; as part of a whole state, since an edit by hand has the search begin anew."""
    memory.load_state_dict(memory.state_dict() | {"times": times, "now": torch.tensor(now)})


def last_touched(memory: Any) -> Tensor:
    """(capacity,) int64: the number of the update that last touched each slot, -1 in an empty one."""
    return memory.times if NEW else memory.clock.touched


def updates(memory: Any) -> int:
    """The number of the last update."""
    return int(memory.now if NEW else memory.clock.now)


def lists_read(memory: Any) -> int | None:
    """How many lists a query reads; None where the search does not tell, or reads all keys."""
    state = memory.search.state_dict()
    probes = int(state.get("lists_to_read", 0))
    return probes if 0 < probes < 2**31 - 1 else None
