"""Which slot of a value is the newest: the positive of the loss where no neighbour is right.

`rules.find_newest` finds it on any device, by a look at all values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rarecall.native import loaded, pointer, tensors_of

if TYPE_CHECKING:
    from rarecall.memory import Memory


# In place of the fields of chains that are not there.
NO_CHAINS = (0, 0, 0, 0)


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
        self.fields = (self._heads.data_ptr(), self._links[0].data_ptr(), self._links[1].data_ptr(), bits)
        filled = (memory.values[: memory.used] >= 0).nonzero().squeeze(1)
        by_time = memory.clock.touched[filled].sort(stable=True).indices
        slots = filled[by_time]
        loaded().link(self.fields, pointer(memory.values, memory.capacity), pointer(slots, len(slots)), len(slots))
        self.follow(memory)

    def is_of(self, memory: Memory) -> bool:
        """Whether these are the chains of the values as they are now."""
        return self._state == _state(memory)

    def unlink(self, memory: Memory, slots: Tensor) -> None:
        """Takes out `slots` ((n,) int64, distinct) before they are emptied."""
        loaded().unlink(self.fields, memory.values.data_ptr(), pointer(slots, len(slots)), len(slots))

    def follow(self, memory: Memory) -> None:
        """Is called when values and chains have changed together."""
        self._state = _state(memory)

    def find(self, memory: Memory, target: Tensor, exclude: Tensor | None) -> Tensor:
        """(n,) int64: the newest slot with each target's value (not founded by its excluded source), -1 where none."""
        n = len(target)
        slots = torch.empty(n, dtype=torch.int64)
        target = target.contiguous()
        exclude = None if exclude is None else exclude.contiguous()
        loaded().newest(
            self.fields,
            pointer(memory.values, memory.capacity),
            pointer(memory.sources, memory.capacity),
            pointer(target, n),
            0 if exclude is None else pointer(exclude, n),
            n,
            slots.data_ptr(),
        )
        return slots


def _state(memory: Memory) -> tuple[int, int]:
    """Where the values are, and how often they were written to."""
    _, values, _ = tensors_of(memory)
    return values.data_ptr(), 0 if values.is_inference() else values._version
