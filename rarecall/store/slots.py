"""From examples in slots to keys: the memory of a folder is a function of where its examples are.

Every example has a place: the slot, the label, and the entry that put it there. A slot's key follows from its examples
in the order of their entries. The first founds the slot; those of each later entry are averaged into it together, as
`Memory.update` does. All arithmetic is in one fixed order, so that the same places give the same bits on any machine.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
# The sum of a key and the queries that confirm it has no direction if it is shorter than this; as in the backends.
CANCELLED = 1e-6
# Columns of a change: the example, its place from now on, and the place it had before.
EXAMPLE, SLOT, LABEL, ENTRY, OLD_SLOT, OLD_LABEL, OLD_ENTRY = range(7)
NOWHERE = -1  # the slot of an example that is out of memory; the label of one that is forgotten


class Places:
    """Where each example is; examples are numbered from 1, and row 0 is of none.

    Attributes:
        table: (n + 1, 3) int64: slot, label, entry. Slot -1: not in memory. Label -1: forgotten for good.
    """

    def __init__(self, table: Ints | None = None) -> None:
        self._room = np.full((1, 3), NOWHERE, np.int64) if table is None else table
        self._count = len(self._room)

    @property
    def table(self) -> Ints:
        return self._room[: self._count]

    def __len__(self) -> int:
        return self._count - 1

    def changed(self, examples: Ints, places: Ints) -> Ints:
        """Return the change, (m, 7), that gives examples new places, (m, 3)."""
        old = np.full_like(places, NOWHERE)
        known = examples < self._count
        old[known] = self._room[examples[known]]
        return np.column_stack([examples, places, old])

    def set(self, changes: Ints) -> None:
        """Give examples their new places."""
        most = int(changes[:, EXAMPLE].max(initial=0)) + 1
        if most > len(self._room):
            room = np.full((max(most, 2 * len(self._room)), 3), NOWHERE, np.int64)
            room[: self._count] = self.table
            self._room = room
        self._count = max(self._count, most)
        self._room[changes[:, EXAMPLE]] = changes[:, SLOT : ENTRY + 1]

    def members(self, slots: Ints) -> Ints:
        """Return the examples in these slots, ascending."""
        return np.flatnonzero(np.isin(self.table[:, 0], slots))


@dataclass(frozen=True)
class Rows:
    """What slots hold, as `Memory.put` takes it; `slots` are ascending."""

    slots: Ints
    keys: Floats
    values: Ints
    sources: Ints
    counts: Ints
    times: Ints


def fold(keys: Floats, started: npt.NDArray[np.bool_], which: Ints, entries: Ints, queries: Floats) -> None:
    """Average queries into keys, in place.

    Args:
        keys: (m, key_size); those of slots that are not started are founded by their first query.
        started: (m,) bool.
        which: (n,) the key that each query belongs to, ascending.
        entries: (n,) of each query; ascending within a key. Those of one entry are averaged in together.
        queries: (n, key_size), of length 1.
    """
    if not len(which):
        return
    first = np.r_[True, which[1:] != which[:-1]]
    founds = first & ~started[which]
    keys[which[founds]] = queries[founds]
    which, entries, queries = which[~founds], entries[~founds], queries[~founds]
    if not len(which):
        return
    begins = np.flatnonzero(np.r_[True, (which[1:] != which[:-1]) | (entries[1:] != entries[:-1])])  # of groups
    sizes = np.diff(np.r_[begins, len(which)])
    owner = which[begins]
    new_owner = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]])
    rank = np.arange(len(owner)) - np.repeat(new_owner, np.diff(np.r_[new_owner, len(owner)]))
    by_rank = np.argsort(rank, kind="stable")
    bounds = np.searchsorted(rank[by_rank], np.arange(int(rank.max()) + 2))
    for start, end in itertools.pairwise(bounds):  # the first groups of all keys, then the second ...
        groups = by_rank[start:end]
        before = keys[owner[groups]]
        sums = before.astype(np.float64)
        for place in range(int(sizes[groups].max())):
            there = sizes[groups] > place
            sums[there] += queries[begins[groups[there]] + place]
        # A running sum is in order, whatever the vector instructions of the machine.
        lengths = np.sqrt(np.add.accumulate(sums * sums, axis=1)[:, -1:])
        cancelled = lengths < CANCELLED
        keys[owner[groups]] = np.where(cancelled, before, sums / np.where(cancelled, 1.0, lengths)).astype(np.float32)


def rows_of(slots: Ints, examples: Ints, places: Places, queries: Floats, start: Rows | None = None) -> Rows:
    """Return what slots hold after examples were put there.

    Args:
        slots: (m,) ascending.
        examples: (n,) those in these slots; of a slot that was started, those to come.
        queries: (n, key_size), their keys.
        start: what the slots held before; None: nothing.
    """
    table = places.table[examples]
    order = np.lexsort((examples, table[:, 2], table[:, 0]))
    examples, table, queries = examples[order], table[order], queries[order]
    which = np.searchsorted(slots, table[:, 0])
    if start is None:
        keys = np.zeros((len(slots), queries.shape[1]), np.float32)
        values, sources, times = (np.full(len(slots), -1, np.int64) for _ in range(3))
        counts = np.zeros(len(slots), np.int64)
    else:
        keys, values, sources, times = start.keys.copy(), start.values.copy(), start.sources.copy(), start.times.copy()
        counts = start.counts.copy()
    fold(keys, counts > 0, which, table[:, 2], queries)
    values[which] = table[:, 1]
    first = np.r_[True, which[1:] != which[:-1]][: len(which)] & (counts[which] == 0)
    sources[which[first]] = examples[first]
    counts += np.bincount(which, minlength=len(slots))
    np.maximum.at(times, which, table[:, 2])
    return Rows(slots, keys, values, sources, counts, times)
