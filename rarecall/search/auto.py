"""Approximate search that follows the keys, and chooses by itself how much to read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rarecall.native import slots_of
from rarecall.search.base import Search
from rarecall.search.exact import ExactSearch
from rarecall.search.lists import BINS, SMALL, Lists, Places

if TYPE_CHECKING:
    from rarecall._native import Found
    from rarecall.memory import Memory


class AutoSearch(Search):
    """Reads the lists of keys nearest to the query: as many as find the nearest key with the wanted probability.

    The keys stand in lists of similar ones. A key that changes moves to the list whose centre is nearest, the centres
    move with their keys, and lists are cut in two and given up as they grow long or short: nothing is ever trained or
    rebuilt, and a change costs the same at any time.

    How many lists a query reads, the search finds out from the queries: now and then, at an update, one of the queries
    is asked again of all keys, and it is counted how many lists it would have had to read to find the nearest. As many
    lists are read as were enough for the wanted share of the queries so asked of late, and some more for what so few
    samples can say. Where that is more than half of all lists, keys are not alike enough, and the search is exact. Of
    more than a million keys, a query that looks for many lists looks into more regions of them, and reads few more.

    Lists hold two bytes of each number of a key: similarities are true to about 1e-5.

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
        # How often of late the nearest key was in a list of each rank, in four bins to each doubling; at first as if it
        # had been the 16th, 4 times.
        self.register_buffer("ranks", torch.zeros(BINS, dtype=torch.float64))
        self.ranks[16] = 4
        self.register_buffer("lists_to_read", torch.tensor(16))
        self.register_buffer("asked", torch.tensor(0))  # the queries of all updates so far
        self._lists: Lists | None = None

    @property
    def probes(self) -> int:
        """How many lists a query looks for; ALL where it reads all keys instead."""
        return int(self.lists_to_read)

    def settings(self) -> dict[str, float]:
        return {"recall": self.recall}

    def extra_repr(self) -> str:
        return f"recall={self.recall}"

    def forward(self, memory: Memory, query: Tensor, k: int, exclude: Tensor | None) -> Tensor:
        slots_of(memory)
        lists = self._readable(memory)
        if lists is None:
            return self.exact(memory, query, k, exclude)
        exclude = None if exclude is None else exclude.contiguous()
        found = lists.recall(query.contiguous(), k, exclude, memory.inverse_temperature, lists.probes)
        return found.slots

    # For a single query, what is asked of torch's modules and tensors costs more than what the lists do: so these are
    # asked first, and know the numbers that matter; and what the memory has found out of its tensors, it need not find
    # out again.

    def found(self, memory: Memory, query: Tensor, exclude: Tensor | None) -> Found:
        lists = self._readable(memory)
        if lists is not None:
            return lists.recall(query, memory.k, exclude, memory.inverse_temperature, lists.probes)
        found = self.exact.found(memory, query, exclude)
        if self._lists is not None and self._lists.keys > SMALL:
            self._lists.last = found
        return found

    def _readable(self, memory: Memory) -> Lists | None:
        """The lists, or None where all keys are to be read."""
        lists = self._lists
        if lists is None or not lists.is_of(memory):
            if memory.capacity <= SMALL or len(memory) <= SMALL or slots_of(memory) is None:
                return None
            if lists is not None and lists.can_follow(memory):
                self.places.clear()  # the keys were edited by hand: their lists are no longer near to them
            lists = self._made(memory)
        return lists if lists.are_read else None

    def changed(self, memory: Memory, slots: Tensor) -> None:
        slots_of(memory)
        self._follow(memory, slots.contiguous(), by_update=False)

    def updated(self, memory: Memory, slots: Tensor) -> None:
        self._follow(memory, slots, by_update=True)

    def _follow(self, memory: Memory, slots: Tensor, by_update: bool) -> None:
        lists = self._lists
        if lists is None or not lists.can_follow(memory):
            if memory.capacity <= SMALL or slots_of(memory) is None:
                self.exact.changed(memory, slots)
                return
            lists = self._made(memory, changed=slots)
        were_read = lists.are_read
        lists.change(slots, self.recall, by_update)
        if not lists.are_read:
            self.exact.changed(memory, slots)
        elif not were_read:
            self.exact.forget()

    def loaded(self, memory: Memory) -> None:
        self.exact.loaded(memory)
        self._lists = None

    def _made(self, memory: Memory, changed: Tensor | None = None) -> Lists:
        self._lists = None  # its room first, then the new one's
        lists = self._lists = Lists(memory, self.places, (self.ranks, self.lists_to_read, self.asked), changed)
        if lists.are_read:
            self.exact.forget()
        return lists

    def __getstate__(self) -> dict[str, Any]:
        # What follows from the buffers is left out by deepcopy and pickle.
        return self.__dict__ | {"_lists": None}
