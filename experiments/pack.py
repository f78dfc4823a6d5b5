"""Reduce a trained memory to its newest slots, to publish it as a small file."""

from __future__ import annotations

from rarecall import Memory


def keep_newest(memory: Memory, slots: int) -> int:
    """Forget all but the newest `slots` slots. Returns the number of slots left."""
    oldest_first = memory.ages.argsort(descending=True, stable=True)
    filled = oldest_first[memory.ages[oldest_first] >= 0]
    memory.forget(slots=filled[: max(0, len(filled) - slots)])
    return len(memory)
