"""Exact search: the paper's single matrix multiplication, in blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rarecall.search.base import Search

if TYPE_CHECKING:
    from rarecall.memory import Memory

# The most similarities that are held at once, 32 MB of float32, whatever the batch and the capacity.
BLOCK = 2**23


class ExactSearch(Search):
    """Scores every key against every query and keeps the k best. It has no state."""

    def __init__(self, key_size: int, capacity: int) -> None:
        super().__init__()

    def forward(self, memory: Memory, query: Tensor, k: int, exclude: Tensor | None) -> Tensor:
        n, used = len(query), memory.used
        if n == 0 or used == 0:
            return query.new_empty((n, 0), dtype=torch.int64)
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
