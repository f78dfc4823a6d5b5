"""The mean of each value's keys, kept up as slots change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from rarecall.slots import SlotBuffers

# Keys are added up as integers of this many units to 1, so that a sum is the same in any order and nothing is lost when
# a key is taken out again. There is room for 2**31 examples of a class.
UNITS = 2**32
BLOCK = 2**10  # slots taken up at once: what is made of their keys stays in the cache


class ClassMeans:
    """Sums of the keys of each value, each key times the examples that its slot stands for.

    Follows the slots of a memory step by step: a change costs what it touches. It remembers of each slot to which sum
    it was added, and how many times.
    """

    def __init__(self, memory: SlotBuffers, version: int) -> None:
        self.version, self.dtype = version, memory.keys.dtype
        with torch.inference_mode(False):
            self.row_of: dict[int, int] = {}  # of each value
            self.sums = torch.empty_like(memory.keys[:0], dtype=torch.int64)  # (rows, key_size)
            self.examples = torch.empty_like(memory.values[:0])  # (rows,)
            self.rows = torch.full_like(memory.values, -1)
            self.counts = torch.zeros_like(memory.counts)
        filled = (memory.values >= 0).nonzero().squeeze(1)
        for slots in filled.split(BLOCK):
            self._put(memory, slots)

    def follow(self, memory: SlotBuffers, slots: Tensor, before: Tensor, version: int) -> None:
        """Take up slots that were changed, (n,) int64, whose keys were `before`, (n, key_size)."""
        rows = len(self.sums)
        self._add(self.rows[slots], before, -self.counts[slots])
        self._put(memory, slots)
        # Rows of values that are gone are kept for their return; where most are, they are worth making anew.
        wasteful = len(self.sums) > rows and 2 * int((self.examples > 0).sum()) < rows
        self.version = -1 if wasteful else version

    def of(self, values: Tensor) -> Tensor:
        """Return the means, (n, key_size), of values, (n,) int64; zeros where a value has no slot."""
        return self.mean(*self.totals(values))

    def totals(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sums, (n, key_size), and the examples, (n,), of values: those of several memories may be added."""
        if not len(self.sums):
            return self.sums.new_zeros((len(values), self.sums.shape[1])), self.examples.new_zeros(len(values))
        rows = [self.row_of.get(value, -1) for value in values.tolist()]
        index = torch.tensor(rows, dtype=torch.int64, device=values.device)
        none = index < 0
        return self.sums[index].masked_fill_(none[:, None], 0), self.examples[index].masked_fill_(none, 0)

    def mean(self, sums: Tensor, examples: Tensor) -> Tensor:
        """Return the means, (n, key_size), from `totals`."""
        examples = examples[:, None]
        return (sums.to(self.dtype) / (UNITS * examples)).masked_fill_(examples == 0, 0.0)

    def _put(self, memory: SlotBuffers, slots: Tensor) -> None:
        self.rows[slots] = self._rows(memory.values[slots])
        self.counts[slots] = memory.counts[slots]
        self._add(self.rows[slots], memory.keys[slots], self.counts[slots])

    def _add(self, rows: Tensor, keys: Tensor, times: Tensor) -> None:
        there = rows >= 0
        rows, times = rows[there], times[there]
        units = (keys[there].double() * UNITS).round_().long()
        self.sums.index_add_(0, rows, units * times[:, None])
        self.examples.index_add_(0, rows, times)

    def _rows(self, values: Tensor) -> Tensor:
        """(n,) int64: the row of each value, a new one where it has none; -1 where the value is."""
        known = self.row_of
        rows = [known.setdefault(value, len(known)) if value >= 0 else -1 for value in values.tolist()]
        if len(known) > len(self.sums):
            more = max(len(known) - len(self.sums), len(self.sums))
            with torch.inference_mode(False):
                self.sums = torch.cat([self.sums, self.sums.new_zeros((more, self.sums.shape[1]))])
                self.examples = torch.cat([self.examples, self.examples.new_zeros(more)])
        return torch.tensor(rows, dtype=torch.int64, device=values.device)
