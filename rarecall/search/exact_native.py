"""Exact search by the C++ extension: a copy of the keys in 7 bits is scanned, and what could be near is scored.

The proof that the result is exact is in docs/exact-search.md, and beside the code in native/exact.cpp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rarecall import native
from rarecall.native import fields_of, loaded, pointer

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
        self._pointers = (
            *(tensor.data_ptr() for tensor in (self.codes, self.inverse_scale, self.residual, self.longest)),
            memory.key_size,
        )
        self._copy(memory, None)

    def is_of(self, memory: Memory) -> bool:
        """Whether it is a copy of the keys as they are now."""
        return self._state == _state(memory)

    def changed(self, memory: Memory, slots: Tensor) -> KeyCopy | None:
        """Copies the keys in `slots` ((n,) int64) again; None where it cannot follow, and is to be made anew."""
        if not usable(memory) or self._state[0] != _state(memory)[0]:
            return None
        self._copy(memory, slots)
        return self

    def _copy(self, memory: Memory, slots: Tensor | None) -> None:
        slots = None if slots is None else slots.contiguous()
        count = memory.used if slots is None else len(slots)
        keys, values, *_ = fields_of(memory)
        loaded().copy_keys(
            *self._pointers,
            keys,
            values,
            0 if slots is None else pointer(slots, count),
            count,
            torch.get_num_threads(),
        )
        self._state = _state(memory)

    def find(self, memory: Memory, query: Tensor, k: int, exclude: Tensor | None) -> tuple[Tensor, Tensor]:
        """The k slots nearest to each query, (n, k) int64, and their similarities, (n, k); -1 where there are fewer."""
        n = len(query)
        query = query.contiguous()
        exclude = None if exclude is None else exclude.long().contiguous()
        slots = torch.empty(n, k, dtype=torch.int64)
        similarities = torch.empty(n, k)
        keys, _, sources, _ = fields_of(memory)
        loaded().find(
            *self._pointers,
            keys,
            sources,
            memory.used,
            pointer(query, n, memory.key_size),
            0 if exclude is None else pointer(exclude, n),
            n,
            k,
            torch.get_num_threads(),
            slots.data_ptr(),
            similarities.data_ptr(),
        )
        return slots, similarities


def _state(memory: Memory) -> tuple[tuple[int, int], tuple[int, int]]:
    """Where the keys and values are, and how often they were written to."""
    buffers: dict[str, Any] = memory._buffers  # not memory.keys: nn.Module takes its time for that
    tensors = buffers["keys"], buffers["values"]
    # Only a memory that was made in inference mode does not count; it is then up to `changed` alone.
    keys, values = (0 if tensor.is_inference() else tensor._version for tensor in tensors)
    return (tensors[0].data_ptr(), tensors[1].data_ptr()), (keys, values)
