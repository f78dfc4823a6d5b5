"""Approximate search by locality-sensitive hashing, as in the paper."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from rarecall.search.base import Search
from rarecall.search.exact import k_best

if TYPE_CHECKING:
    from rarecall.memory import Memory

# The most bucket entries that are looked at in one go: bounds the memory of a large batch.
ENTRIES = 2**21


class LSHSearch(Search):
    """Looks only into the buckets whose hashes are nearest to the query's.

    The hash of a vector is the sign bits of its products with random normalised hash vectors. Two vectors at an angle
    of a radians agree in a bit with probability 1 - a / pi, so a query finds a key in its own bucket of one of the
    tables with probability 1 - (1 - (1 - a / pi) ** bits) ** tables, and more often as more buckets are probed: those
    that come from flipping the bits of the smallest margins |q . h|.

    A bucket has `width` places. When it is full, the slot in it that was touched longest ago gives way; it is still
    found through the other tables. With `width` places, one query costs the same at any size of the memory.

    Args:
        key_size: the key dimension.
        capacity: number of slots.
        target_recall: the share of neighbours at a cosine of 0.9 to be found; nearer ones are found more often.
        tables: hash tables, each with hash vectors of its own; by default as many as `target_recall` asks for.
        bits: hash vectors of a table; by default so many that a bucket of a full memory holds `width / 4` on average.
        probes: buckets looked into in each table; there are 2 ** bits of them.
        width: places of a bucket.
        generator: draws the hash vectors; the global one by default.
    """

    planes: Tensor
    codes: Tensor
    places: Tensor
    buckets: Tensor
    _flips: Tensor

    def __init__(
        self,
        key_size: int,
        capacity: int,
        *,
        target_recall: float = 0.95,
        tables: int | None = None,
        bits: int | None = None,
        probes: int = 16,
        width: int = 32,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if min(1 if tables is None else tables, probes, width) < 1:
            raise ValueError(
                f"LSHSearch got tables={tables}, probes={probes}, width={width}; expected 1 or more of each."
            )
        if not 0 < target_recall < 1:
            raise ValueError(
                f"LSHSearch got target_recall={target_recall}; expected more than 0 and less than 1. For 1, take "
                'search="exact".'
            )
        if bits is None:
            bits = max(math.ceil(math.log2(4 * capacity / width)), 1)
        if not 1 <= bits <= 24:
            raise ValueError(f"LSHSearch got bits={bits}; expected 1 to 24: each table has 2 ** bits buckets.")
        self.bits, self.probes, self.width = bits, min(probes, 2**bits), width
        # The nearest buckets differ from the query's own in some subset of the few bits of the smallest margins.
        self.flipped_bits = min(bits, math.ceil(math.log2(self.probes)) + 3)
        subsets = torch.arange(2**self.flipped_bits)[:, None] >> torch.arange(self.flipped_bits) & 1
        self.register_buffer("_flips", subsets, persistent=False)  # (2 ** flipped_bits, flipped_bits)
        if tables is None:
            tables = math.ceil(math.log(1 - target_recall) / math.log(1 - self._found_in_a_table()))
        self.tables = tables
        planes = F.normalize(torch.randn(key_size, tables * bits, generator=generator, dtype=torch.float32), dim=0)
        self.register_buffer("planes", planes)
        # Of each slot and table: its code, and its place in the bucket of that code (-1 where it is in none).
        self.register_buffer("codes", torch.zeros(tables, capacity, dtype=torch.int32))
        self.register_buffer("places", torch.full((tables, capacity), -1, dtype=torch.int32))
        self.register_buffer("buckets", torch.full((tables, 2**bits, width), -1, dtype=torch.int32))

    def settings(self) -> dict[str, int]:
        return {"tables": self.tables, "bits": self.bits, "probes": self.probes, "width": self.width}

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.settings().items())

    def forward(self, memory: Memory, query: Tensor, k: int, exclude: Tensor | None) -> Tensor:
        rows = max(ENTRIES // (self.tables * self.probes * self.width), 1)
        found = [
            self._find(
                memory, query[start : start + rows], k, None if exclude is None else exclude[start : start + rows]
            )
            for start in range(0, len(query), rows)
        ]
        most = max(slots.shape[1] for slots in found)
        return torch.cat([F.pad(slots, (0, most - slots.shape[1]), value=-1) for slots in found])

    def _find(self, memory: Memory, query: Tensor, k: int, exclude: Tensor | None) -> Tensor:
        table = torch.arange(self.tables, device=query.device)[:, None]
        entries = self.buckets[table, self._probe(query @ self.planes)].flatten(1)  # (n, tables * probes * width)
        row, column = (entries >= 0).nonzero(as_tuple=True)
        # A slot may be in the query's bucket of several tables.
        pair = (row * memory.capacity + entries[row, column]).unique()
        row, slot = pair // memory.capacity, pair % memory.capacity
        if exclude is not None:
            allowed = (exclude[row] != memory.sources[slot]) | (exclude[row] < 0)
            row, slot = row[allowed], slot[allowed]
        similarity = torch.cat(
            [(query[r] * memory.keys[s]).sum(1) for r, s in zip(row.split(2**16), slot.split(2**16), strict=True)]
        )
        # From pairs to one row of candidates for each query.
        count = row.bincount(minlength=len(query))
        column = torch.arange(len(row), device=row.device) - (count.cumsum(0) - count)[row]
        shape = (len(query), int(count.max()))
        slots = slot.new_full(shape, -1).index_put_((row, column), slot)
        if shape[1] <= k:
            return slots
        similarities = similarity.new_full(shape, -torch.inf).index_put_((row, column), similarity)
        return k_best(similarities, slots, k, memory.times)[1]

    def changed(self, memory: Memory, slots: Tensor) -> None:
        for table, places in enumerate(self.places):
            inside = slots[places[slots] >= 0]
            self.buckets[table, self.codes[table, inside].long(), places[inside].long()] = -1
            places[inside] = -1
        slots = slots[memory.values[slots] >= 0]
        if len(slots) == 0:
            return
        codes = self._code(memory.keys[slots] @ self.planes)  # (n, tables)
        self.codes[:, slots] = codes.T.int()
        for table in range(self.tables):
            self._insert(memory, table, slots, codes[:, table])

    def rebuild(self, memory: Memory) -> None:
        self.places.fill_(-1)
        self.buckets.fill_(-1)
        # The oldest first: where a bucket is full, they give way.
        filled = (memory.values >= 0).nonzero().squeeze(1)
        for slots in filled[memory.times[filled].sort(stable=True).indices].split(2**14):
            self.changed(memory, slots)

    def restore(self, memory: Memory) -> None:
        limits = (self.codes, 0, 2**self.bits), (self.places, -1, self.width), (self.buckets, -1, memory.capacity)
        if not all(int(ids.min()) >= least and int(ids.max()) < end for ids, least, end in limits):
            self.rebuild(memory)

    def _insert(self, memory: Memory, table: int, slots: Tensor, codes: Tensor) -> None:
        """Puts slots that are in no bucket of the table into the buckets of their codes; slots, codes: (n,) int64."""
        places, buckets = self.places[table], self.buckets[table]
        codes, order = codes.sort(stable=True)
        slots = slots[order]
        touched, which, count = codes.unique_consecutive(return_inverse=True, return_counts=True)
        rank = torch.arange(len(slots), device=slots.device) - (count.cumsum(0) - count)[which]
        # Of each touched bucket: its places in the order in which they are given away, free ones first.
        residents = buckets[touched].long()  # (touched buckets, width)
        times = memory.times[residents.clamp(min=0)].masked_fill(residents < 0, -1)
        priority = times.argsort(dim=1, stable=True)
        fits = rank < self.width
        slots, which, codes = slots[fits], which[fits], codes[fits]
        place = priority[which, rank[fits]]
        removed = residents[which, place]
        places[removed[removed >= 0]] = -1
        places[slots] = place.int()
        buckets[codes, place] = slots.int()

    def _code(self, margins: Tensor) -> Tensor:
        """(n, tables) int64: the sign bits of (n, tables * bits) margins, as numbers."""
        signs = (margins > 0).unflatten(1, (-1, self.bits))
        return (signs << torch.arange(self.bits, device=margins.device)).sum(-1)

    def _probe(self, margins: Tensor) -> Tensor:
        """(n, tables, probes) int64: the codes of the buckets nearest to queries of these margins, their own first."""
        margin, bit = margins.abs().unflatten(1, (-1, self.bits)).topk(self.flipped_bits, largest=False)
        # The cost of a subset of flips is the sum of their squared margins: how far the query is from that bucket.
        cost = margin.square() @ self._flips.to(margin.dtype).T  # (n, tables, 2 ** flipped_bits)
        subset = cost.topk(self.probes, largest=False).indices  # (n, tables, probes)
        flips = (self._flips[subset] << bit.unsqueeze(2)).sum(-1)
        return self._code(margins).unsqueeze(-1) ^ flips

    def _found_in_a_table(self, cosine: float = 0.9, trials: int = 2000) -> float:
        """The share of keys at this cosine that one table finds: tried out with margins as random vectors have them."""
        generator = torch.Generator().manual_seed(0)
        query, aside = torch.randn(2, trials, self.bits, generator=generator, dtype=torch.float32)
        key = cosine * query + math.sqrt(1 - cosine**2) * aside
        found = (self._probe(query) == self._code(key).unsqueeze(-1)).any(-1).float().mean().item()
        return min(max(found, 0.01), 0.99)  # so that there is at least one table, and an end to them
