"""Trained memories made small enough to be given away."""

from __future__ import annotations

from rarecall import Memory


def keep_newest(memory: Memory, slots: int) -> int:
    """Forgets all slots but the newest; returns how many are left."""
    oldest_first = memory.ages.argsort(descending=True, stable=True)
    filled = oldest_first[memory.ages[oldest_first] >= 0]
    memory.forget(slots=filled[: max(0, len(filled) - slots)])
    return len(memory)
