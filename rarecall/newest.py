"""Which slot of a value is the newest: the positive of the loss where no neighbour is right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rarecall.native import loaded, pointer

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
        self._fields = (self._heads.data_ptr(), self._links[0].data_ptr(), self._links[1].data_ptr(), bits)
        filled = (memory.values[: memory.used] >= 0).nonzero().squeeze(1)
        by_time = memory.clock.touched[filled].sort(stable=True).indices
        self.link(memory, filled[by_time])

    def is_of(self, memory: Memory) -> bool:
        """Whether these are the chains of the values as they are now."""
        return self._state == _state(memory)

    def unlink(self, memory: Memory, slots: Tensor) -> Chains | None:
        """Takes out `slots` ((n,) int64, distinct) before they change; None where the chains are to be made anew."""
        if not self.is_of(memory):
            return None
        loaded().unlink(*self._fields, memory.values.data_ptr(), pointer(slots, len(slots)), len(slots))
        return self

    def link(self, memory: Memory, slots: Tensor) -> None:
        """Is called after filled `slots` ((n,) int64, distinct) were touched: the last of them are the newest."""
        loaded().link(*self._fields, memory.values.data_ptr(), pointer(slots, len(slots)), len(slots))
        self._state = _state(memory)

    def find(self, memory: Memory, target: Tensor, exclude: Tensor | None) -> Tensor:
        """(n,) int64: the newest slot with each target's value (not founded by its excluded source), -1 where none."""
        n = len(target)
        newest = torch.empty(n, dtype=torch.int64)
        target = target.contiguous()
        exclude = None if exclude is None else exclude.contiguous()
        loaded().find_newest(
            *self._fields,
            pointer(memory.values, memory.capacity),
            pointer(memory.sources, memory.capacity),
            pointer(target, n),
            0 if exclude is None else pointer(exclude, n),
            n,
            newest.data_ptr(),
        )
        return newest


def find_newest(memory: Memory, target: Tensor, exclude: Tensor | None) -> Tensor:
    """What `Chains.find` finds, on any device, by a look at all values."""
    wanted, which = target.unique(return_inverse=True)
    place = torch.searchsorted(wanted, memory.values[: memory.used]).clamp_(max=len(wanted) - 1)
    slots = (wanted[place] == memory.values[: memory.used]).nonzero().squeeze(1)
    place = place[slots]
    # The time of a slot and its number as one number, so that one maximum finds the newest slot.
    times = memory.clock.touched[slots] * memory.capacity + slots

    def newest(times: Tensor) -> Tensor:
        best = times.new_full((len(wanted),), -1).scatter_reduce(0, place, times, "amax")
        return torch.where(best < 0, -1, best % memory.capacity)  # (len(wanted),)

    first = newest(times)
    if exclude is None:
        return first[which]
    # Where the newest slot is the query's own, the newest of any other source is the answer.
    founder = memory.sources[first.clamp(min=0)]
    second = newest(times.masked_fill(memory.sources[slots] == founder[place], -1))
    own = (exclude == founder[which]) & (exclude >= 0)
    return torch.where(own, second[which], first[which])


def _state(memory: Memory) -> tuple[int, int]:
    """Where the values are, and how often they were written to."""
    return memory.values.data_ptr(), 0 if memory.values.is_inference() else memory.values._version
