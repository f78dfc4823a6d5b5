"""Exact search: the paper's single matrix multiplication, in blocks, or faster and equal by the C++ extension."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rarecall.search.base import Search

if TYPE_CHECKING:
    from rarecall.memory import Memory

# The most similarities that are held at once, 32 MB of float32, whatever the batch and the capacity.
BLOCK = 2**23
# The extension adds up products of codes in integers that a float32 holds exactly: enough for keys of this dimension.
LONGEST_KEY = 16384


class ExactSearch(Search):
    """Scores every key against every query and keeps the k best; of equally similar slots the newest.

    On a CPU the extension does it, with a copy of the keys in 7 bits; everywhere else torch does.
    """

    def __init__(self, key_size: int, capacity: int) -> None:
        super().__init__()

    def rebuild(self, memory: Memory) -> None:
        native, self.native_index = memory.native, None
        if native is not None and memory.key_size <= LONGEST_KEY:
            self.native_index = native.build(self.new_index(native.native, memory))

    def new_index(self, extension: Any, memory: Memory) -> Any:
        """Return an empty index of the extension for these slots."""
        return extension.ExactIndex(memory.key_size, memory.capacity)

    def forward(self, memory: Memory, query: Tensor, k: int, exclude: Tensor | None) -> Tensor:
        return multiply(memory, query, k, exclude)


def multiply(memory: Memory, query: Tensor, k: int, exclude: Tensor | None) -> Tensor:
    """Return the k slots of the largest products with each query, (n, at most k); of equal ones the newest."""
    n, used = len(query), memory.used
    empty = memory.values[:used] < 0
    own_row, own_slot = _excluded(memory.sources[:used], exclude)
    best, slots = query.new_empty((n, 0)), query.new_empty((n, 0), dtype=torch.int64)
    length = max(BLOCK // max(n, 1), k + 1)
    for start in range(0, used, length):
        end = min(start + length, used)
        similarities = query @ memory.keys[start:end].T  # (n, end - start)
        similarities.masked_fill_(empty[start:end], -torch.inf)
        here = (own_slot >= start) & (own_slot < end)
        similarities[own_row[here], own_slot[here] - start] = -torch.inf
        block_best, block_slots = similarities.topk(min(k + 1, end - start))
        best, slots = torch.cat([best, block_best], 1), torch.cat([slots, block_slots + start], 1)
        best, place = best.topk(min(k + 1, best.shape[1]))
        slots = slots.gather(1, place)
    if best.shape[1] > k:
        # matmul may round equal keys differently. Where the last that is taken and the first that is not are as good as
        # equal, all keys are scored again, each in the same way.
        tied = best[:, k - 1] - best[:, k] <= 16 * torch.finfo(best.dtype).eps
        best, slots = best[:, :k], slots[:, :k]
        for row in (tied & best[:, -1].isfinite()).nonzero().squeeze(1).tolist():
            scores = torch.cat([(keys * query[row]).sum(1) for keys in memory.keys[:used].split(2**14)])
            scores = scores.masked_fill(empty, -torch.inf).index_fill(0, own_slot[own_row == row], -torch.inf)
            best[row], slots[row] = k_best(scores[None], torch.arange(used, device=slots.device)[None], k, memory.times)
    return slots.masked_fill(best == -torch.inf, -1)


def k_best(similarities: Tensor, slots: Tensor, k: int, times: Tensor) -> tuple[Tensor, Tensor]:
    """Return the k largest similarities of each row and their slots, (n, k); of equal ones, the newest slots."""
    best = ranking(similarities, times[slots], slots)[:, :k]
    return similarities.gather(1, best), slots.gather(1, best)


def ranking(similarities: Tensor, times: Tensor, slots: Tensor) -> Tensor:
    """Return the columns, (n, m), in the order of neighbours: by similarity; then the newest, then the highest slot."""
    order = slots.argsort(descending=True)
    for by in (times, similarities):  # stable sorts, the first criterion last
        order = order.gather(1, by.gather(1, order).argsort(descending=True, stable=True))
    return order


def _excluded(sources: Tensor, exclude: Tensor | None) -> tuple[Tensor, Tensor]:
    """The pairs (row, slot) in which the slot was founded by the very source that the row's query excludes."""
    if exclude is None:
        return sources[:0], sources[:0]
    slots = torch.isin(sources, exclude[exclude >= 0]).nonzero().squeeze(1)
    rows, which = (exclude[:, None] == sources[slots]).nonzero(as_tuple=True)
    return rows, slots[which]
