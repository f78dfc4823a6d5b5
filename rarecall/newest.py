"""Which slot of a value is the newest: the positive of the loss where no neighbour is right.

`rules.find_newest` finds it on any device, by a look at all values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rarecall.native import fields_of, loaded, packed, slots_of

if TYPE_CHECKING:
    from rarecall.memory import Memory


class Chains:
    """The slots of a memory on the CPU in chains by their value, the one that was touched last at the head.

    So the newest slot of a value is found in a time that does not grow with the memory. Chains follow from the values
    and the clock: they are made at the first need, and anew where the memory's tensors are not those they were made of
    (a memory loaded, copied, moved, or edited by hand).
    """

    def __init__(self, memory: Memory) -> None:
        bits = max(memory.capacity - 1, 1).bit_length()
        self._heads = torch.full((2**bits,), -1, dtype=torch.int32)
        self._links = torch.full((2, memory.capacity), -1, dtype=torch.int32)  # next, previous
        self.fields = packed(self._heads.data_ptr(), self._links[0].data_ptr(), self._links[1].data_ptr(), bits)
        filled = (memory.values[: memory.used] >= 0).nonzero().squeeze(1)
        by_time = memory.clock.touched[filled].sort(stable=True).indices
        slots = filled[by_time]
        loaded().link(self.fields, fields_of(memory), slots)
        self.follow(memory)

    def is_of(self, memory: Memory) -> bool:
        """Whether these are the chains of the slots as they were when `slots_of` was asked last."""
        slots = memory.known_slots
        return slots is not None and self._slots is slots and self._version == slots.version

    def unlink(self, memory: Memory, slots: Tensor) -> None:
        """Takes out `slots` ((n,) int64, distinct) before they are emptied."""
        loaded().unlink(self.fields, fields_of(memory), slots)

    def follow(self, memory: Memory) -> None:
        """Is called when slots and chains have changed together."""
        slots = slots_of(memory)
        assert slots is not None
        self._slots, self._version = slots, slots.version

    def find(self, memory: Memory, target: Tensor, exclude: Tensor | None) -> Tensor:
        """(n,) int64: the newest slot with each target's value (not founded by its excluded source), -1 where none."""
        slots = torch.empty(len(target), dtype=torch.int64)
        exclude = None if exclude is None else exclude.contiguous()
        loaded().newest(self.fields, fields_of(memory), target.contiguous(), exclude, slots)
        return slots
