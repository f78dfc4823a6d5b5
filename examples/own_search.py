"""A search of your own: locality-sensitive hashing with random hyperplanes, as the paper suggests for large memories.

    python examples/own_search.py

A hash is the sides of random hyperplanes on which a vector lies. Two vectors at an angle of a radians are on the same
side of one with probability 1 - a / pi (Charikar 2002), so a query shares its hash with such a key in one of the tables
with probability 1 - (1 - (1 - a / pi) ** bits) ** tables. It is compared with the keys that do, and with no others.
"""

from collections import defaultdict

import torch
from torch import Tensor

from rarecall import Memory, Search
from rarecall.search import k_best

SMALL = 128  # keys: up to this many, all are compared


class HashSearch(Search):
    """Compares a query with the keys that share its hash in at least one table.

    Args:
        key_size: the key dimension.
        capacity: number of slots.
        tables: hash tables; more find more, and cost more.
        bits: hyperplanes of a table; more make smaller buckets.
    """

    planes: Tensor  # a buffer: saved, copied and moved with the memory

    def __init__(self, key_size: int, capacity: int, *, tables: int = 16, bits: int = 8) -> None:
        super().__init__()
        self.tables, self.bits = tables, bits
        self.register_buffer("planes", torch.randn(key_size, tables * bits, dtype=torch.float32))
        self.buckets: dict[tuple[int, int], set[int]] = defaultdict(set)  # (table, hash) -> slots
        self.hashes: dict[int, list[tuple[int, int]]] = {}  # slot -> its buckets

    def settings(self) -> dict[str, int]:
        return {"tables": self.tables, "bits": self.bits}

    def forward(self, memory: Memory, query: Tensor, k: int, exclude: Tensor | None) -> Tensor:
        found = query.new_full((len(query), k), -1, dtype=torch.int64)
        everything = list(self.hashes) if len(self.hashes) <= SMALL else None
        for row, buckets in enumerate(self.hash(query)):
            near = set().union(*(self.buckets.get(bucket, ()) for bucket in buckets))
            slots = torch.tensor(sorted(everything or near), dtype=torch.int64, device=query.device)
            if exclude is not None and exclude[row] >= 0:
                slots = slots[memory.sources[slots] != exclude[row]]
            similarities = (memory.keys[slots] * query[row]).sum(1)
            best = k_best(similarities[None], slots[None], k, memory.times)[1][0]
            found[row, : len(best)] = best
        return found

    def changed(self, memory: Memory, slots: Tensor) -> None:
        for slot in slots.tolist():
            for bucket in self.hashes.pop(slot, []):
                self.buckets[bucket].discard(slot)
        slots = slots[memory.values[slots] >= 0]
        for slot, buckets in zip(slots.tolist(), self.hash(memory.keys[slots]), strict=True):
            self.hashes[slot] = buckets
            for bucket in buckets:
                self.buckets[bucket].add(slot)

    def rebuild(self, memory: Memory) -> None:
        self.buckets.clear()
        self.hashes.clear()
        self.changed(memory, torch.arange(memory.used, device=memory.values.device))

    def hash(self, vectors: Tensor) -> list[list[tuple[int, int]]]:
        """(n, key_size) -> the bucket of each vector in each table."""
        sides = (vectors @ self.planes > 0).unflatten(1, (self.tables, self.bits))
        codes = (sides << torch.arange(self.bits, device=sides.device)).sum(-1)
        return [list(enumerate(row)) for row in codes.tolist()]


if __name__ == "__main__":
    memory = Memory(key_size=64, capacity=5000, search=HashSearch(64, 5000))
    shown = torch.randn(5000, 64)
    memory.write(shown, torch.arange(5000))
    answers = memory(shown[:500] + 0.3 * torch.randn(500, 64)).value
    print(f"{(answers == torch.arange(500)).float().mean():.0%} of noisy questions find their example")
