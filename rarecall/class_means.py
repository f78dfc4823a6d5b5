"""The mean of each value's keys, kept up as slots change."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

import torch
from torch import Tensor

from rarecall.slots import SlotBuffers

# Makes of means, (c, key_size), what questions are multiplied with, (c, key_size), and what is added then, (c,).
Project: TypeAlias = Callable[[Tensor], tuple[Tensor, Tensor]]
T = TypeVar("T")

# Keys are added up as integers of this many units to 1, so that a sum is the same in any order and nothing is lost when
# a key is taken out again. There is room for 2**31 examples of a class.
UNITS = 2**32
BLOCK = 2**10  # slots taken up at once: what is made of their keys stays in the cache


class ClassMeans:
    """Sums of the keys of each value, each key times the examples that its slot stands for.

    Follows the slots of a memory step by step: a change costs what it touches. It remembers of each slot to which sum
    it was added, and how many times. For the reader that asked last it also has the vectors that questions are
    multiplied with ready, so that a question costs no more than those products.

    Attributes:
        rows: (capacity,) int64, of each slot its value's row in the other tables; -1 where it is empty.
        vectors: (rows, key_size), and
        offsets: (rows,), both made of the means by `project`.
    """

    def __init__(self, memory: SlotBuffers, version: int) -> None:
        self.version, self.dtype = version, memory.keys.dtype
        with torch.inference_mode(False):
            self.row_of: dict[int, int] = {}  # of each value
            self.sums = torch.empty_like(memory.keys[:0], dtype=torch.int64)  # (rows, key_size)
            self.examples = torch.empty_like(memory.values[:0])  # (rows,)
            self.vectors = torch.empty_like(memory.keys[:0])
            self.offsets = self.vectors[:, 0]
            self.rows = torch.full_like(memory.values, -1)
            self.counts = torch.zeros_like(memory.counts)
        self.project: Project | None = None
        filled = (memory.values >= 0).nonzero().squeeze(1)
        for slots in filled.split(BLOCK):
            self._put(memory, slots)

    @torch.no_grad()
    def follow(self, memory: SlotBuffers, slots: Tensor, before: Tensor) -> None:
        """Take up slots that were changed, (n,) int64, whose keys were `before`, (n, key_size)."""
        version = memory._state.version
        if self.version != version - 1:
            return  # out of date already
        rows, left = len(self.sums), self.rows[slots]
        self._add(left, before, -self.counts[slots])
        self._put(memory, slots)
        touched = torch.cat([left, self.rows[slots]])
        touched = touched[touched >= 0]
        self._renew(touched)
        # Rows of values that are gone are kept for their return; where most are, they are worth making anew.
        wasteful = len(self.sums) > rows and 2 * int((self.examples > 0).sum()) < rows
        self.version = -1 if wasteful else version

    def of(self, values: Tensor) -> Tensor:
        """Return the means, (n, key_size), of values, (n,) int64; zeros where a value has no slot."""
        return self.mean(*self.totals(values))

    def totals(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sums, (n, key_size), and the examples, (n,), of values: those of several memories may be added."""
        sums, examples = self._of_rows(values, self.sums, self.examples)
        return sums, examples

    def vectors_of(self, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the vectors, (n, key_size), the offsets, (n,), and the examples, (n,), of values, (n,) int64."""
        vectors, offsets, examples = self._of_rows(values, self.vectors, self.offsets, self.examples)
        return vectors, offsets, examples

    def mean(self, sums: Tensor, examples: Tensor) -> Tensor:
        """Return the means, (n, key_size), from `totals`."""
        examples = examples[:, None]
        return (sums.to(self.dtype) / (UNITS * examples)).masked_fill_(examples == 0, 0.0)

    def prepare(self, project: Project) -> None:
        """Have vectors made by `project` ready."""
        self.project = project
        self._renew(torch.arange(len(self.row_of), device=self.sums.device))

    def _put(self, memory: SlotBuffers, slots: Tensor) -> None:
        values, counts = memory.values[slots], memory.counts[slots]
        rows = self._rows(values)
        self.rows[slots], self.counts[slots] = rows, counts
        self._add(rows, memory.keys[slots], counts)

    def _add(self, rows: Tensor, keys: Tensor, times: Tensor) -> None:
        there = rows >= 0
        rows, times = rows[there], times[there]
        units = (keys[there].double() * UNITS).round_().long()
        self.sums.index_add_(0, rows, units * times[:, None])
        self.examples.index_add_(0, rows, times)

    def _renew(self, rows: Tensor) -> None:
        if self.project is not None:
            means = self.mean(self.sums[rows], self.examples[rows])
            self.vectors[rows], self.offsets[rows] = self.project(means)

    def _of_rows(self, values: Tensor, *tables: Tensor) -> list[Tensor]:
        """Return the rows of values, (n,) int64, in some tables; zeros where a value has none."""
        found = [self.row_of.get(value, -1) for value in values.tolist()]
        rows = torch.tensor(found, dtype=torch.int64, device=values.device)
        there = (rows >= 0).nonzero().squeeze(1)
        return [each.new_zeros(len(rows), *each.shape[1:]).index_copy_(0, there, each[rows[there]]) for each in tables]

    def _rows(self, values: Tensor) -> Tensor:
        """(n,) int64: the row of each value, a new one where it has none; -1 where the value is."""
        known = self.row_of
        rows = [known.setdefault(value, len(known)) if value >= 0 else -1 for value in values.tolist()]
        if len(known) > len(self.sums):
            more = max(len(known) - len(self.sums), len(self.sums))
            with torch.inference_mode(False):
                for name in ("sums", "examples", "vectors", "offsets"):
                    table = getattr(self, name)
                    setattr(self, name, torch.cat([table, table.new_zeros(more, *table.shape[1:])]))
        return torch.tensor(rows, dtype=torch.int64, device=values.device)


class SlotsWithMeans(SlotBuffers):
    """Slots whose class means follow them, from the first time that they are asked for."""

    def class_means(self, values: Tensor) -> Tensor:
        """Return the mean of the keys of each value, (n, key_size), each key as often as its slot has examples.

        They are kept up from the first time that they are asked for: a change costs what it touches, and they are
        exactly those of the slots at any time.

        Args:
            values: (n,) int64; a value that no slot has gets zeros.
        """
        return self.with_class_means(None, lambda means: means.of(values))

    def class_vectors(self, project: Project, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return what is made of class means: vectors, (n, key_size), and offsets, (n,); and the examples, (n,) int64.

        Args:
            project: makes the vectors, (c, key_size), and the offsets, (c,), of means, (c, key_size). They are kept
                ready, and follow the means, as long as it is the same object.
            values: (n,) int64; a value that no slot has gets 0 examples.
        """
        return self.with_class_means(project, lambda means: means.vectors_of(values))

    def with_class_means(self, project: Project | None, ask: Callable[[ClassMeans], T]) -> T:
        """Return what `ask` returns of the class means, with vectors by `project`, called while nobody changes them."""
        while True:
            version = self.version
            with self.lock.shared():
                means = self._state.means
                in_step = means is not None and means.version == version == self._state.version
                if in_step and (project is None or means.project is project):
                    return ask(means)
            self.lock.exclusive(self._make_means, project)

    def _make_means(self, project: Project | None) -> None:
        state, version = self._state, self.version
        with torch.no_grad():
            if state.means is None or state.means.version != version:
                state.means = ClassMeans(self, version)
                state.add(state.means)
            if project is not None:
                state.means.prepare(project)
