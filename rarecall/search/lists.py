"""The lists of similar keys that the approximate search reads, kept by the C++ extension; see native/lists.h."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from rarecall.native import loaded, packed, slots_of

if TYPE_CHECKING:
    from rarecall._native import Found
    from rarecall.memory import Memory

SMALL = 8192  # keys, up to which reading them all is as fast
BLOCK = 32  # places of a block
SHORTEST = 12  # no list but the only one is shorter, so there are at most capacity / SHORTEST + 1
MANY = 2**20  # keys, from which on lists are shorter, and met by regions
AXES = 2048  # random directions, two regions on each
NEAR, MOST_NEAR = 2, 1024  # lists that are kept of a query, and of all queries since the last change
BINS = 80  # in which the ranks of lists are counted
ALL = 2**31 - 1  # as lists to read: all keys, in order. Half of them here and there would cost as much.


class Places(nn.Module):
    """Where each key is: this is the state that is saved; codes and centres follow from it and from the keys."""

    places: Tensor
    next: Tensor
    owner: Tensor
    head: Tensor
    length: Tensor
    counts: Tensor

    def __init__(self, capacity: int) -> None:
        super().__init__()
        lists = capacity // SHORTEST + 2
        blocks = capacity // BLOCK + lists
        sizes = {"places": capacity, "next": blocks, "owner": blocks, "head": lists, "length": lists, "counts": 6}
        for name, size in sizes.items():
            self.register_buffer(name, torch.empty(size, dtype=torch.int32))
        self.clear()

    def clear(self) -> None:
        """No key is in any list."""
        for tensor in self.buffers():
            tensor.fill_(-1)
        self.counts[1:] = 0


class Codes(NamedTuple):
    """A vector at each place: int8 code, scale (vector = code * scale) and sign code, those of 32 places together."""

    codes: Tensor
    scales: Tensor
    signs: Tensor


class Regions(NamedTuple):
    """Which lists stand in each region, in blocks as keys stand in lists.

    They follow from the centres; where the memory has no room for many keys, there are none.
    """

    head: Tensor
    length: Tensor
    next: Tensor
    owner: Tensor
    blocks: Tensor
    members: Tensor
    signs: Tensor
    places: Tensor
    nearest: Tensor

    @classmethod
    def made(cls, count: int, lists: int, bits: int) -> Regions:
        """Room for `count` regions of `lists` lists, or for none."""
        lists = lists if count else 0
        blocks = count + lists // BLOCK

        def numbers(size: int) -> Tensor:
            return torch.empty(size, dtype=torch.int32)

        return cls(
            head=numbers(count),
            length=numbers(count),
            next=numbers(blocks),
            owner=numbers(blocks),
            blocks=numbers(2),
            members=numbers(blocks * BLOCK),
            signs=torch.zeros(blocks * BLOCK, bits // 8, dtype=torch.uint8),
            places=numbers(lists),
            nearest=numbers(lists),
        )


class Lists:
    """The codes of a memory's keys in their lists, and the lists' centres.

    They follow from `Places` and the keys, so they are neither saved nor copied: where they are not of the very tensors
    that the memory holds now (a memory loaded, copied, moved, or edited by hand), they are made anew.

    Attributes:
        keys: how many are in lists.
        probes: how many lists a query has to look for, as far as is known; ALL where it has to read all keys.
        are_read: whether a query is to read lists: there are enough keys, and it need not read them all.
        last: what the last queries found, or None; some are asked again by the next change.
    """

    def __init__(
        self,
        memory: Memory,
        state: Places,
        learnt: tuple[Tensor, Tensor, Tensor],
        changed: Tensor | None = None,
    ) -> None:
        """Takes up the lists of `state`; keys that are in none join one, unless they are in `changed`.

        Args:
            memory: whose keys these are.
            state: where they are.
            learnt: how often the nearest key was in a list of each rank, (BINS,) float64; how many lists to read, and
                how many queries there were, () int64.
            changed: (n,) int64, slots that will be taken up by the next `change`.
        """
        self._native = loaded()
        self.last: Found | None = None
        self.probes = int(learnt[1])
        slots = slots_of(memory)
        assert slots is not None
        self._slots = slots
        width = -(-memory.key_size // 32) * 32
        bits = 128 if width <= 128 else 256

        def codes(count: int) -> Codes:
            count = -(-count // BLOCK) * BLOCK
            return Codes(
                torch.empty(count, width, dtype=torch.int8),
                torch.empty(count),
                torch.zeros(count, bits // 8, dtype=torch.uint8),
            )

        blocks, lists = len(state.next), len(state.head)
        self.at, self.centres = codes(blocks * BLOCK), codes(lists)
        self.rests = torch.empty_like(self.at.codes)
        self.slots = torch.empty(blocks * BLOCK, dtype=torch.int32)
        self.values = torch.empty(blocks * BLOCK, dtype=torch.int64)
        self.sums = torch.empty(lists, width, dtype=torch.int32)
        regions = 2 * AXES if memory.capacity >= MANY else 0
        self.regions = Regions.made(regions, lists, bits)
        self.near = torch.zeros(MOST_NEAR, dtype=torch.int32)
        self._near = 0  # how many of these there are; where there would be more, the nearest lists are not known
        at_places = (*self.at, self.rests, self.slots, self.values)
        for tensor in (*at_places, *self.centres, self.sums, self.regions.signs):
            self._native.large_pages(tensor.data_ptr(), tensor.nbytes, False)
        of_places = (state.places, state.next, state.owner, state.head, state.length)
        of_lists = (*of_places, self.sums, *self.centres)
        others = (*self.regions, self.near, state.counts, *learnt)
        self._held = of_places, others  # since the extension knows where they are
        self._fields = packed(
            *(memory.key_size, width, bits, memory.capacity, blocks, lists, MANY),
            *(tensor.data_ptr() for tensor in (*slots.tensors, *at_places, *of_lists)),
            regions,
            *(tensor.data_ptr() for tensor in others),
        )
        if not self.valid():
            state.clear()
        self._native.lists_restore(self._fields, torch.get_num_threads())
        astray = (memory.values < 0) == (state.places >= 0)
        if changed is not None:
            astray[changed] = False
        self.change(astray.nonzero().squeeze(1))

    def valid(self) -> bool:
        """Whether all that says where the keys are fits together."""
        return bool(self._native.lists_valid(self._fields))

    def is_of(self, memory: Memory) -> bool:
        """Whether these are the lists of the keys as they were when `slots_of` was asked last."""
        return self._slots is memory.known_slots and self._version == self._slots.version

    def can_follow(self, memory: Memory) -> bool:
        """Whether the tensors were still the same then, so that `change` is enough."""
        return self._slots is memory.known_slots

    def change(self, slots: Tensor, recall: float = 0.95, by_update: bool = False) -> None:
        """Takes up the keys of `slots` ((n,) int64, distinct, contiguous) as they are now.

        Before that, some of the last queries are asked again, of all keys: how many lists do they have to read to find
        the nearest?

        Args:
            recall: the share of queries that are to find it.
            by_update: whether each is a query that was asked since the last change, or has moved towards one.
        """
        near = self._near if by_update and self._near <= MOST_NEAR else 0
        self.keys, self.probes = self._native.lists_change(
            self._fields, slots, near, self.last, recall, torch.get_num_threads()
        )
        self.are_read = self.keys > SMALL and self.probes != ALL
        self.last = None
        self._near = 0
        self._version = self._slots.version

    def recall(self, query: Tensor, k: int, exclude: Tensor | None, inverse_temperature: float, probes: int) -> Found:
        """The k slots nearest to each query in the `probes` nearest lists; see `Search.found`."""
        near = self._near
        self._near = near + NEAR * query.shape[0]
        self.last = found = self._native.lists_recall(
            self._fields,
            k,
            query,
            exclude,
            probes,
            inverse_temperature,
            torch.get_num_threads(),
            near if self._near <= MOST_NEAR else -1,
        )
        return found
