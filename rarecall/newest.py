"""Which slot of a value is the newest: the positive of the loss where no neighbour is right.

`rules.find_newest` finds it on any device, by a look at all values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rarecall.native import loaded, slots_of

if TYPE_CHECKING:
    from rarecall._native import Slots
    from rarecall.memory import Memory


def chained(memory: Memory) -> Slots:
    """The slots of a memory on which the extension works, in chains by their value, the one touched last at the head.

    So the newest slot of a value is found in a time that does not grow with the memory. Chains follow from the values
    and the clock: they are made at the first need, and anew where the memory's tensors are not those they were made of
    (a memory loaded, copied, moved, or edited by hand).
    """
    slots = slots_of(memory)
    assert slots is not None
    if not slots.chained:
        bits = max(memory.capacity - 1, 1).bit_length()
        heads = torch.full((2**bits,), -1, dtype=torch.int32)
        following, previous = torch.full((2, memory.capacity), -1, dtype=torch.int32)
        filled = (memory.values[: memory.used] >= 0).nonzero().squeeze(1)
        by_time = memory.clock.touched[filled].sort(stable=True).indices
        slots.chain(bits, heads, following, previous, filled[by_time])
    return slots


def newest(memory: Memory, target: Tensor, exclude: Tensor | None) -> Tensor:
    """(n,) int64: the newest slot with each target's value (not founded by its excluded source), -1 where none."""
    slots = torch.empty(len(target), dtype=torch.int64)
    exclude = None if exclude is None else exclude.contiguous()
    loaded().newest(chained(memory), target.contiguous(), exclude, slots)
    return slots
