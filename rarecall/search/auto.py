"""Approximate search that follows the keys, and chooses by itself how much to read."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rarecall.native import usable
from rarecall.search.base import Search
from rarecall.search.exact import ExactSearch
from rarecall.search.lists import Lists, Places

if TYPE_CHECKING:
    from rarecall.memory import Memory

# Up to so many keys, reading them all is as fast.
SMALL = 8192
# One query in so many is asked again, in depth, to see whether the search found its nearest key.
SAMPLE = 32


class AutoSearch(Search):
    """Reads the lists of keys nearest to the query: as many as find the nearest key with the wanted probability.

    The keys stand in lists of similar ones. A key that changes moves to the list whose centre is nearest, the centres
    move with their keys, and lists are cut in two and given up as they grow long or short: nothing is ever trained or
    rebuilt, and a change costs the same at any time.

    How many lists a query reads, the search finds out from the queries: now and then, at an update, one of the queries
    is asked again in many more lists, and the number of lists grows by much if a nearer key was in one of those that
    were not read, and shrinks by little if not, so that it settles where the wanted share is found.

    A memory of up to 8192 keys, one on a GPU, and one without the C++ extension is searched exactly.

    Args:
        key_size: numbers in a key.
        capacity: slots of the memory.
        recall: the share of queries whose nearest neighbour is found, 0 to 1 (exclusive).
    """

    effort: Tensor
    asked: Tensor

    def __init__(self, key_size: int, capacity: int, *, recall: float = 0.95) -> None:
        super().__init__()
        if not 0 < recall < 1:
            raise ValueError(
                f'AutoSearch got recall={recall}; expected more than 0 and less than 1. For 1, take search="exact".'
            )
        self.recall = recall
        self.exact = ExactSearch(key_size, capacity)
        self.places = Places(capacity if capacity > SMALL else 0)
        # The logarithm of the number of lists to read, to the base 2, and the queries of all updates so far.
        self.register_buffer("effort", torch.tensor(3.0, dtype=torch.float64))
        self.register_buffer("asked", torch.tensor(0))
        self._lists: Lists | None = None
        self._last: tuple[Tensor, Tensor | None] | None = None

    @property
    def probes(self) -> int:
        """How many lists a query reads."""
        return round(2 ** float(self.effort))

    def settings(self) -> dict[str, float]:
        return {"recall": self.recall}

    def extra_repr(self) -> str:
        return f"recall={self.recall}"

    def forward(self, memory: Memory, query: Tensor, k: int, exclude: Tensor | None) -> Tensor:
        if memory.capacity <= SMALL or len(memory) <= SMALL or not usable(memory):
            return self.exact(memory, query, k, exclude)
        if self._lists is None or not self._lists.is_of(memory, self.places):
            if self._lists is not None and self._lists.can_follow(memory, self.places):
                self.places.clear()  # the keys were edited by hand: their lists are no longer near to them
            self._lists = None  # its room first, then the new one's
            self._lists = Lists(memory, self.places)
        self._last = query, exclude
        return self._lists.find(query, k, exclude, self.probes)

    def changed(self, memory: Memory, slots: Tensor) -> None:
        if len(memory) <= SMALL:
            self.exact.changed(memory, slots)
        else:
            self.exact._copy = None  # from now on the lists are read
        if memory.capacity <= SMALL or not usable(memory):
            return
        if self._lists is None or not self._lists.can_follow(memory, self.places):
            self._lists = None
            self._lists = Lists(memory, self.places, changed=slots)
        elif self._last is not None:
            self._learn(self._lists, *self._last)
        self._last = None
        self._lists.change(memory, self.places, slots)

    def loaded(self, memory: Memory) -> None:
        self.exact.loaded(memory)
        self._lists = self._last = None

    def _learn(self, lists: Lists, query: Tensor, exclude: Tensor | None) -> None:
        """Asks some of the last queries again, before the lists change. query: (n, key_size); exclude: (n,) or None."""
        asked = int(self.asked)
        for row in range(-asked % SAMPLE, len(query), SAMPLE):
            probes = self.probes
            rank = lists.rank(query[row], -1 if exclude is None else int(exclude[row]), 8 * probes + 32)
            # Large steps at first, then small ones. Aims a little higher than asked for, so as not to be below it half
            # of the time.
            step = max(0.1, 1 / (1 + asked / SAMPLE / 16))
            aim = self.recall + (1 - self.recall) / 5
            self.effort += step * (aim - (rank <= probes))
            self.effort.clamp_(0, math.log2(2**20))
        self.asked += len(query)

    def __getstate__(self) -> dict[str, Any]:
        # What follows from the buffers is left out by deepcopy and pickle.
        return self.__dict__ | {"_lists": None, "_last": None}
