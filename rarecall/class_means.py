"""The mean of each value's keys, kept up as slots change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from rarecall.slots import SlotBuffers

# Keys are added up as integers of this many units to 1, so that a sum is the same in any order and nothing is lost when
# a key is taken out again. There is room for 2**31 examples of a class.
UNITS = 2**32
BLOCK = 2**10  # slots taken up at once: what is made of their keys stays in the cache


class ClassMeans:
    """Sums of the keys of each value, each key times the examples that its slot stands for.

    Follows the slots of a memory step by step: a change costs what it touches, and a question nothing but the product
    with the means' directions. It remembers of each slot to which sum it was added, and how many times.
    """

    def __init__(self, memory: SlotBuffers, version: int) -> None:
        self.version, self.dtype = version, memory.keys.dtype
        with torch.inference_mode(False):
            self.row_of: dict[int, int] = {}  # of each value
            self.sums = torch.empty_like(memory.keys[:0], dtype=torch.int64)  # (rows, key_size)
            self.examples = torch.empty_like(memory.values[:0])  # (rows,)
            self.values = torch.empty_like(memory.values[:0])  # (rows,); -1 where it has no slot
            self.directions = torch.empty_like(memory.keys[:0])  # (rows, key_size), of length 1
            self.rows = torch.full_like(memory.values, -1)
            self.counts = torch.zeros_like(memory.counts)
        filled = (memory.values >= 0).nonzero().squeeze(1)
        for slots in filled.split(BLOCK):
            self._put(memory, slots)
        self._renew(torch.arange(len(self.row_of), device=memory.values.device))

    def follow(self, memory: SlotBuffers, slots: Tensor, before: Tensor, version: int) -> None:
        """Take up slots that were changed, (n,) int64, whose keys were `before`, (n, key_size)."""
        rows, left = len(self.sums), self.rows[slots]
        self._add(left, before, -self.counts[slots])
        self._put(memory, slots)
        touched = torch.cat([left, self.rows[slots]])
        self._renew(touched[touched >= 0])
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
        rows = self._look_up(values)
        none = rows < 0
        return self.sums[rows].masked_fill_(none[:, None], 0), self.examples[rows].masked_fill_(none, 0)

    def mean(self, sums: Tensor, examples: Tensor) -> Tensor:
        """Return the means, (n, key_size), from `totals`."""
        examples = examples[:, None]
        return (sums.to(self.dtype) / (UNITS * examples)).masked_fill_(examples == 0, 0.0)

    def scores(self, query: Tensor, slots: Tensor, values: Tensor) -> Tensor:
        """Return the products, (n, k), of queries, (n, key_size), with their neighbours' means made of length 1.

        Args:
            slots: (n, k) int64, the neighbours when the memory was asked, and
            values: (n, k) int64, what they held then; -inf where no slot holds that by now.
        """
        if not len(self.sums):
            return torch.full_like(values, -torch.inf, dtype=query.dtype)
        rows = self.rows[slots].clamp_(min=0)
        gone = self.values[rows] != values
        if gone.any():  # the slots were changed since, or there are fewer neighbours
            changed = gone & (values >= 0)
            rows[changed] = self._look_up(values[changed]).clamp_(min=0)
            gone = self.values[rows] != values
        directions = self.directions.index_select(0, rows.flatten()).view(*rows.shape, -1)
        return torch.bmm(query[:, None], directions.mT).squeeze(1).masked_fill_(gone, -torch.inf)

    def _put(self, memory: SlotBuffers, slots: Tensor) -> None:
        values, counts = memory.values[slots], memory.counts[slots]
        rows = self._rows(values)
        self.rows[slots], self.counts[slots] = rows, counts
        self._add(rows, memory.keys[slots], counts)
        self.values[rows[rows >= 0]] = values[rows >= 0]

    def _add(self, rows: Tensor, keys: Tensor, times: Tensor) -> None:
        there = rows >= 0
        rows, times = rows[there], times[there]
        units = (keys[there].double() * UNITS).round_().long()
        self.sums.index_add_(0, rows, units * times[:, None])
        self.examples.index_add_(0, rows, times)

    def _renew(self, rows: Tensor) -> None:
        self.directions[rows] = functional.normalize(self.sums[rows].double()).to(self.dtype)
        self.values[rows[self.examples[rows] == 0]] = -1

    def _look_up(self, values: Tensor) -> Tensor:
        """(n,) int64: the row of each value; -1 where it has none."""
        rows = [self.row_of.get(value, -1) for value in values.tolist()]
        return torch.tensor(rows, dtype=torch.int64, device=values.device)

    def _rows(self, values: Tensor) -> Tensor:
        """(n,) int64: the row of each value, a new one where it has none; -1 where the value is."""
        known = self.row_of
        rows = [known.setdefault(value, len(known)) if value >= 0 else -1 for value in values.tolist()]
        if len(known) > len(self.sums):
            more = max(len(known) - len(self.sums), len(self.sums))
            with torch.inference_mode(False):
                for name, empty in (("sums", 0), ("directions", 0), ("examples", 0), ("values", -1)):
                    table = getattr(self, name)
                    setattr(self, name, torch.cat([table, table.new_full((more, *table.shape[1:]), empty)]))
        return torch.tensor(rows, dtype=torch.int64, device=values.device)
