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
# One in 4 of the first 4096 queries is asked again, of all keys; later 512 while the memory's keys are replaced once,
# but at most one in 32: so asking again costs a query about the same at any size.
FIRST, FIRST_SAMPLE = 4096, 4
SAMPLES, SAMPLE = 512, 32
# What was seen so many samples ago counts for less than half of what is seen now.
MEMORY = 1024
# Ranks are counted in bins, four to each doubling.
BINS = 80
# As lists to read: all keys, in order. Half of them here and there would cost as much.
ALL = 2**31 - 1


class AutoSearch(Search):
    """Reads the lists of keys nearest to the query: as many as find the nearest key with the wanted probability.

    The keys stand in lists of similar ones. A key that changes moves to the list whose centre is nearest, the centres
    move with their keys, and lists are cut in two and given up as they grow long or short: nothing is ever trained or
    rebuilt, and a change costs the same at any time.

    How many lists a query reads, the search finds out from the queries: now and then, at an update, one of the queries
    is asked again of all keys, and it is counted how many lists it would have had to read to find the nearest. As many
    lists are read as were enough for the wanted share of the queries so asked of late, and some more for what so few
    samples can say. Where that is more than half of all lists, keys are not alike enough, and the search is exact.

    A memory of up to 8192 keys, one on a GPU, and one without the C++ extension is searched exactly.

    Args:
        key_size: numbers in a key.
        capacity: slots of the memory.
        recall: the share of queries whose nearest neighbour is found, 0 to 1 (exclusive).
    """

    lists_to_read: Tensor
    ranks: Tensor
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
        # How often of late the nearest key was in a list of each rank; at first as if it had been the 16th, 4 times.
        self.register_buffer("ranks", torch.zeros(BINS, dtype=torch.float64))
        self.ranks[_bin(16)] = 4
        self.register_buffer("lists_to_read", torch.tensor(16))
        self.register_buffer("asked", torch.tensor(0))  # the queries of all updates so far
        self._lists: Lists | None = None
        self._last: tuple[Tensor, Tensor | None] | None = None

    @property
    def probes(self) -> int:
        """How many lists a query reads; ALL where it reads all keys instead."""
        return int(self.lists_to_read)

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
        probes = self.probes
        return self.exact(memory, query, k, exclude) if probes == ALL else self._lists.find(query, k, exclude, probes)

    def changed(self, memory: Memory, slots: Tensor) -> None:
        if memory.capacity <= SMALL or not usable(memory):
            self.exact.changed(memory, slots)
            return
        if self._lists is None or not self._lists.can_follow(memory, self.places):
            self._lists = None
            self._lists = Lists(memory, self.places, changed=slots)
        elif self._last is not None:
            self._learn(self._lists, len(memory), *self._last)
        self._last = None
        self._lists.change(memory, self.places, slots)
        if len(memory) <= SMALL or self.probes == ALL:
            self.exact.changed(memory, slots)
        else:
            self.exact._copy = None  # the lists are read, not this

    def loaded(self, memory: Memory) -> None:
        self.exact.loaded(memory)
        self._lists = self._last = None

    def _learn(self, lists: Lists, keys: int, query: Tensor, exclude: Tensor | None) -> None:
        """Asks some of the last queries again, before the lists change.

        Args:
            lists: as they were when the queries were asked.
            keys: how many are in memory.
            query: (n, key_size).
            exclude: (n,) or None.
        """
        asked = int(self.asked)
        self.asked += len(query)
        every = FIRST_SAMPLE if asked < FIRST else max(SAMPLE, keys // SAMPLES)
        rows = slice(-asked % every, None, every)
        query, exclude = query[rows], None if exclude is None else exclude[rows]
        if not len(query):
            return
        for rank in lists.ranks(query, exclude).tolist():
            if rank:
                self.ranks *= 1 - 1 / MEMORY
                self.ranks[_bin(rank)] += 1
        # Two standard deviations more than is asked for: of what so many samples say of the true share.
        seen = float(self.ranks.sum())
        share = min(self.recall + 2 * math.sqrt(self.recall * (1 - self.recall) / seen), 1.0)
        bins = int((self.ranks.cumsum(0) < (share - 1e-9) * seen).sum()) + 1
        enough = math.ceil(2 ** (bins / 4)) - 1  # the highest rank of the last bin
        self.lists_to_read.fill_(enough if enough <= int(self.places.counts[2]) / 2 else ALL)

    def __getstate__(self) -> dict[str, Any]:
        # What follows from the buffers is left out by deepcopy and pickle.
        return self.__dict__ | {"_lists": None, "_last": None}


def _bin(rank: int) -> int:
    return min(int(4 * math.log2(rank)), BINS - 1)
