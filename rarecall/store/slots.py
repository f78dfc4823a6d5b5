"""From examples in slots to keys: the memory of a folder is a function of where its examples are.

Every example has a place: the slot, the label, and the entry that put it there. A slot's key follows from its examples
in the order of their entries. The first founds the slot; those of each later entry are averaged into it together, as
`Memory.update` does. All arithmetic is in one fixed order, so that the same places give the same bits on any machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from rarecall.slots import FIELDS

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
# The sum of a key and the queries that confirm it has no direction if it is shorter than this; as in the backends.
CANCELLED = 1e-6
# Columns of a change: the example, its place from now on, and the place it had before.
EXAMPLE, SLOT, LABEL, ENTRY, OLD_SLOT, OLD_LABEL, OLD_ENTRY = range(7)
NOWHERE = -1  # the slot of an example that is out of memory; the label of one that is forgotten
NO_CHANGES = np.empty((0, 7), np.int64)


class Places:
    """Where each example is; examples are numbered from 1, and row 0 is of none.

    Attributes:
        table: (n + 1, 3) int64: slot, label, entry. Slot -1: not in memory. Label -1: forgotten for good.
    """

    def __init__(self, table: Ints | None = None) -> None:
        self._room = np.full((1, 3), NOWHERE, np.int64) if table is None else table
        self.table = self._room

    def __len__(self) -> int:
        return len(self.table) - 1

    def new(self, slots: Sequence[int], labels: Sequence[int], entry: int) -> Ints:
        """Return the change, (m, 7), that gives new examples, numbered from the next number on, their places."""
        changes = np.full((len(slots), 7), NOWHERE, np.int64)
        changes[:, EXAMPLE] = range(len(self.table), len(self.table) + len(slots))
        changes[:, SLOT], changes[:, LABEL], changes[:, ENTRY] = slots, labels, entry
        return changes

    def changed(self, examples: Ints, places: Ints) -> Ints:
        """Return the change, (m, 7), that gives examples new places, (m, 3)."""
        return np.column_stack([examples, places, self.table[examples]])

    def set(self, changes: Ints) -> None:
        """Give examples their new places; of several changes of one example the last counts."""
        most = int(changes[:, EXAMPLE].max(initial=0)) + 1
        if most > len(self._room):
            room = np.full((max(most, 2 * len(self._room)), 3), NOWHERE, np.int64)
            room[: len(self.table)] = self.table
            self._room = room
        if most > len(self.table):
            self.table = self._room[:most]
        self.table[changes[:, EXAMPLE]] = changes[:, SLOT : ENTRY + 1]

    def members(self, slots: Ints) -> Ints:
        """Return the examples in these slots, ascending."""
        return np.flatnonzero(np.isin(self.table[:, 0], slots))


@dataclass(frozen=True)
class Rows:
    """What slots hold, as `Memory.put` takes it.

    Attributes:
        slots: (n,), ascending.
        fields: (n, ...) each, by the names of the memory's fields.
    """

    slots: Ints
    fields: dict[str, npt.NDArray[Any]]

    def empty(self, row: int) -> None:
        """Let a slot hold nothing."""
        for name, field in FIELDS.items():
            self.fields[name][row] = field.empty

    def add(self, row: int, label: int, came: list[tuple[int, int, Floats]]) -> None:
        """Put examples into a slot.

        Args:
            row: the slot's.
            label: of them all.
            came: their entries, numbers and keys; none is of an earlier entry than those that the slot has.
        """
        fields, came = self.fields, sorted(came, key=itemgetter(0, 1))
        fields["values"][row], fields["times"][row] = label, came[-1][0]
        first = int(fields["counts"][row] == 0)
        fields["counts"][row] += len(came)
        keys = fields["keys"]
        if first:
            _, fields["sources"][row], keys[row] = came[0]
        for _, together in groupby(came[first:], itemgetter(0)):
            keys[row] = confirmed(keys[row], [key for _, _, key in together])


def confirmed(key: Floats, queries: list[Floats]) -> Floats:
    """Return a key, (key_size,), into which queries are averaged together."""
    sums = key.astype(np.float64)
    for query in queries:
        sums += query
    # A running sum is in order, whatever the vector instructions of the machine.
    length = math.sqrt(np.add.accumulate(sums * sums)[-1])
    return key if length < CANCELLED else (sums / length).astype(np.float32)
