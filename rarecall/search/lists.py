"""The lists of similar keys that the approximate search reads, kept by the C++ extension; see native/lists.h."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from rarecall.native import loaded, pointer

if TYPE_CHECKING:
    from rarecall.memory import Memory

BLOCK = 32  # places of a block
SHORTEST = 12  # no list but the only one is shorter, so there are at most capacity / SHORTEST + 1


class Places(nn.Module):
    """Where each key is: this is the state that is saved; codes and centres follow from it and from the keys."""

    places: Tensor
    next: Tensor
    owner: Tensor
    head: Tensor
    length: Tensor
    counts: Tensor

    def __init__(self, capacity: int) -> None:
        super().__init__()
        lists = capacity // SHORTEST + 2
        blocks = capacity // BLOCK + lists
        sizes = {"places": capacity, "next": blocks, "owner": blocks, "head": lists, "length": lists, "counts": 6}
        for name, size in sizes.items():
            self.register_buffer(name, torch.empty(size, dtype=torch.int32))
        self.clear()

    def clear(self) -> None:
        """No key is in any list."""
        for tensor in self.buffers():
            tensor.fill_(-1)
        self.counts[1:] = 0


class Codes(NamedTuple):
    """A vector at each place: int8 code, scale (vector = code * scale) and sign code, those of 32 places together."""

    codes: Tensor
    scales: Tensor
    signs: Tensor


class Lists:
    """The codes of a memory's keys in their lists, and the lists' centres.

    They follow from `Places` and the keys, so they are neither saved nor copied: where they are not of the very tensors
    that the memory holds now (a memory loaded, copied, moved, or edited by hand), they are made anew.
    """

    def __init__(self, memory: Memory, state: Places, changed: Tensor | None = None) -> None:
        """Takes up the lists of `state`; keys that are in none join one, unless they are in `changed` ((n,) int64)."""
        self._native = loaded()
        width = -(-memory.key_size // 32) * 32
        bits = 128 if width <= 128 else 256

        def codes(count: int) -> Codes:
            count = -(-count // BLOCK) * BLOCK
            return Codes(
                torch.empty(count, width, dtype=torch.int8),
                torch.empty(count),
                torch.zeros(count, bits // 8, dtype=torch.uint8),
            )

        blocks, lists = len(state.next), len(state.head)
        self.at, self.centres = codes(blocks * BLOCK), codes(lists)
        self.slots = torch.empty(blocks * BLOCK, dtype=torch.int32)
        self.sums = torch.empty(lists, width, dtype=torch.int32)
        for tensor in (*self.at, self.slots):
            self._native.large_pages(tensor.data_ptr(), tensor.nbytes, False)
        self._native.large_pages(memory.keys.data_ptr(), memory.keys.nbytes, True)
        of_places = (state.places, state.next, state.owner, state.head, state.length)
        tensors = (*self.at, self.slots, *of_places, self.sums, *self.centres, state.counts)
        self._fields = (
            *(memory.key_size, width, bits, memory.capacity, blocks, lists),
            pointer(memory.keys, memory.capacity, memory.key_size),
            *(pointer(tensor, memory.capacity) for tensor in (memory.values, memory.sources)),
            *(tensor.data_ptr() for tensor in tensors),
        )
        if not self.valid():
            state.clear()
        self._native.lists_restore(self._fields, torch.get_num_threads())
        astray = (memory.values < 0) == (state.places >= 0)
        if changed is not None:
            astray[changed] = False
        self._state = _state(memory, state)
        self.change(memory, state, astray.nonzero().squeeze(1))

    def valid(self) -> bool:
        """Whether all that says where the keys are fits together."""
        return bool(self._native.lists_valid(self._fields))

    def is_of(self, memory: Memory, state: Places) -> bool:
        """Whether these are the lists of the keys as they are now."""
        return self._state == _state(memory, state)

    def can_follow(self, memory: Memory, state: Places) -> bool:
        """Whether the tensors are still the same, so that `change` is enough."""
        return self._state[0] == _state(memory, state)[0]

    def change(self, memory: Memory, state: Places, slots: Tensor) -> None:
        """Takes up the keys of `slots` ((n,) int64, distinct) as they are now."""
        slots = slots.contiguous()
        self._native.lists_change(self._fields, pointer(slots, len(slots)), len(slots), torch.get_num_threads())
        self._state = _state(memory, state)

    def find(self, query: Tensor, k: int, exclude: Tensor | None, probes: int) -> Tensor:
        """(n, k) int64: the k slots nearest to each query in the `probes` nearest lists, -1 where there are fewer."""
        n, key_size = query.shape
        found = torch.empty(n, k, dtype=torch.int64)
        query = query.contiguous()
        exclude = None if exclude is None else exclude.contiguous()
        self._native.lists_search(
            self._fields,
            pointer(query, n, key_size),
            n,
            k,
            0 if exclude is None else pointer(exclude, n),
            probes,
            torch.get_num_threads(),
            found.data_ptr(),
        )
        return found

    def ranks(self, query: Tensor, exclude: Tensor | None) -> Tensor:
        """(n,) int32: how many lists each query has to read to find its nearest key; 0 where there is none."""
        n, key_size = query.shape
        found = torch.empty(n, dtype=torch.int32)
        query = query.contiguous()
        exclude = None if exclude is None else exclude.contiguous()
        self._native.lists_ranks(
            self._fields,
            pointer(query, n, key_size),
            n,
            0 if exclude is None else pointer(exclude, n),
            torch.get_num_threads(),
            found.data_ptr(),
        )
        return found


def _state(memory: Memory, state: Places) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Where the tensors are, and how often torch wrote to them; the extension's own writes do not count."""
    tensors = (memory.keys, memory.values, memory.sources, state.places)
    where = tuple(tensor.data_ptr() for tensor in tensors)
    return where, tuple(0 if tensor.is_inference() else tensor._version for tensor in tensors)
