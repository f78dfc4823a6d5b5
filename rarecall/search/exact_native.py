"""Exact search by the C++ extension: a copy of the keys in 7 bits is scanned, and what could be near is scored.

The proof that the result is exact is in docs/exact-search.md, and beside the code in native/exact.cpp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rarecall import native
from rarecall.native import known_slots_of, loaded, packed, slots_of

if TYPE_CHECKING:
    from rarecall.memory import Memory

# The products of codes are summed up as numbers that a float32 holds exactly: enough for so long a key.
LONGEST_KEY = 16384


def usable(memory: Memory) -> bool:
    """Whether the extension can search this memory."""
    return memory.key_size <= LONGEST_KEY and native.usable(memory)


class KeyCopy:
    """The keys of a memory in 7 bits, with the scale of each key and the length of what was lost.

    It follows from the keys, so it is neither saved nor moved with the memory: where it is not of the very tensors that
    the memory holds now (a memory loaded, copied, moved, or edited by hand), it is made anew.
    """

    def __init__(self, memory: Memory) -> None:
        slots = -(-memory.capacity // 32) * 32  # the kernels take 32 at a time
        width = -(-memory.key_size // 8) * 8
        self.codes = torch.empty(slots, width, dtype=torch.uint8)
        loaded().large_pages(self.codes.data_ptr(), self.codes.nbytes, False)
        loaded().large_pages(memory.keys.data_ptr(), memory.keys.nbytes, True)
        self.inverse_scale = torch.ones(slots)
        self.residual = torch.full((slots,), -1e30)  # of a slot that is never found
        self.longest = torch.zeros(1)
        tensors = (self.codes, self.inverse_scale, self.residual, self.longest)
        self._fields = packed(*(tensor.data_ptr() for tensor in tensors), memory.key_size)
        self._copy(memory, None)

    def is_of(self, memory: Memory) -> bool:
        """Whether it is a copy of the keys as they were when `usable` was asked last."""
        slots = memory.known_slots
        return slots is not None and self._slots is slots and self._version == slots.version

    def changed(self, memory: Memory, slots: Tensor) -> KeyCopy | None:
        """Copies the keys in `slots` ((n,) int64) again; None where it cannot follow, and is to be made anew."""
        if not usable(memory) or self._slots is not memory.known_slots:
            return None
        self._copy(memory, slots)
        return self

    def _copy(self, memory: Memory, slots: Tensor | None) -> None:
        slots = None if slots is None else slots.contiguous()
        loaded().copy_keys(self._fields, known_slots_of(memory), memory.used, slots, torch.get_num_threads())
        known = slots_of(memory)
        assert known is not None
        self._slots, self._version = known, known.version

    def find(self, memory: Memory, query: Tensor, k: int, exclude: Tensor | None) -> tuple[Tensor, Tensor]:
        """The k slots nearest to each query, (n, k) int64, and their similarities, (n, k); -1 where there are fewer."""
        n = query.shape[0]
        exclude = None if exclude is None else exclude.long().contiguous()
        slots, similarities = torch.empty(n, k, dtype=torch.int64), torch.empty(n, k)
        loaded().find(
            *(self._fields, known_slots_of(memory), memory.used, k, query.contiguous(), exclude),
            *(torch.get_num_threads(), slots, similarities),
        )
        return slots, similarities
