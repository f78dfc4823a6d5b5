"""Exact search: the paper's single matrix multiplication, in blocks, or faster and equal by the C++ extension."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rarecall.search.base import Search
from rarecall.search.exact_native import KeyCopy, usable

if TYPE_CHECKING:
    from rarecall.memory import Memory

# The most similarities that are held at once, 32 MB of float32, whatever the batch and the capacity.
BLOCK = 2**23


class ExactSearch(Search):
    """Scores every key against every query and keeps the k best.

    On a CPU the extension does it, with a copy of the keys in 7 bits that it makes at the first search; everywhere else
    torch does. The slots are the same, up to those that are equally similar.
    """

    def __init__(self, key_size: int, capacity: int) -> None:
        super().__init__()
        self._copy: KeyCopy | None = None

    def forward(self, memory: Memory, query: Tensor, k: int, exclude: Tensor | None) -> Tensor:
        n, used = len(query), memory.used
        if n == 0 or used == 0:
            return query.new_empty((n, 0), dtype=torch.int64)
        if usable(memory):
            if self._copy is None or not self._copy.is_of(memory):
                self._copy = None  # its room first, then the new one's
                self._copy = KeyCopy(memory)
            return self._copy.find(memory, query, k, exclude)[0]
        return self._multiply(memory, query, k, exclude)

    def changed(self, memory: Memory, slots: Tensor) -> None:
        if self._copy is not None:
            self._copy = self._copy.changed(memory, slots)

    def forget(self) -> None:
        """Gives up what it keeps of the keys, until it is asked again."""
        self._copy = None

    def __getstate__(self) -> dict[str, Any]:
        # The copy follows from the keys: deepcopy and pickle leave it out.
        return self.__dict__ | {"_copy": None}

    def _multiply(self, memory: Memory, query: Tensor, k: int, exclude: Tensor | None) -> Tensor:
        n, used = len(query), memory.used
        empty = memory.values[:used] < 0
        holes = bool(empty.any())
        own_row, own_slot = _excluded(memory.sources[:used], exclude)
        best, slots = query.new_empty((n, 0)), query.new_empty((n, 0), dtype=torch.int64)
        length = max(BLOCK // n, k)
        for start in range(0, used, length):
            end = min(start + length, used)
            similarities = query @ memory.keys[start:end].T  # (n, end - start)
            if holes:
                similarities.masked_fill_(empty[start:end], -torch.inf)
            if len(own_slot):
                here = (own_slot >= start) & (own_slot < end)
                similarities[own_row[here], own_slot[here] - start] = -torch.inf
            block_best, block_slots = similarities.topk(min(k, end - start), sorted=False)
            best, slots = torch.cat([best, block_best], 1), torch.cat([slots, block_slots + start], 1)
            if best.shape[1] > k:
                best, place = best.topk(k, sorted=False)
                slots = slots.gather(1, place)
        return slots.masked_fill(best == -torch.inf, -1)


def _excluded(sources: Tensor, exclude: Tensor | None) -> tuple[Tensor, Tensor]:
    """The pairs (row, slot) in which the slot was founded by the very source that the row's query excludes.

    Compares each source with the sorted excluded ones, rather than with all of them: there may be half a million.
    """
    none = sources.new_empty(0)
    if exclude is None:
        return none, none
    wanted = exclude[exclude >= 0].unique()
    if len(wanted) == 0:
        return none, none
    place = torch.searchsorted(wanted, sources).clamp_(max=len(wanted) - 1)
    slots = (wanted[place] == sources).nonzero().squeeze(1)
    rows, which = (exclude[:, None] == sources[slots]).nonzero(as_tuple=True)
    return rows, slots[which]
