"""Keys, and a stream of queries to them: what a memory meets in training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks import versions


@dataclass
class Workload:
    """Keys with values, and more of the same kind as queries.

    Attributes:
        keys: (size, key_size) normalised.
        values: (size,) int64.
        queries: (many, key_size) normalised, of the same distribution as the keys.
        targets: (many,) int64, the values of the queries: some in memory, some new to it.
    """

    name: str
    keys: Tensor
    values: Tensor
    queries: Tensor
    targets: Tensor

    def step(self, number: int, batch: int) -> tuple[Tensor, Tensor]:
        """The queries and targets of one step; the stream begins anew where it ends."""
        rows = (torch.arange(batch) + number * batch) % len(self.queries)
        return self.queries[rows], self.targets[rows]

    def times(self, batch: int) -> Tensor:
        """(size,) int64: when each slot was written, if updates wrote `batch` of them, in no order of the slots."""
        return torch.randperm(len(self.keys), generator=torch.Generator().manual_seed(0)) // batch

    def memory(self, k: int, batch: int, search: str = "exact", target_recall: float | None = None) -> Any:
        """A full memory with these keys, as if written by updates of `batch` slots."""
        size, key_size = self.keys.shape
        memory = versions.make_memory(key_size, size, k, search, target_recall)
        versions.fill(memory, self.keys, self.values, self.times(batch))
        return memory


def clustered(size: int, key_size: int, many: int, generator: torch.Generator) -> Workload:
    """Many centres; a query's nearest neighbour has a cosine of about 0.9.

    20 keys share a centre, as drawings share a character. The spread puts two of one centre at a cosine of 0.8, and the
    nearest of the 20 at about 0.9.
    """
    centres = normalize(torch.randn(size // 20, key_size, generator=generator))
    spread = (1 / 0.8 - 1) ** 0.5  # the cosine of two points at this distance from one centre is 0.8

    def draw(count: int) -> tuple[Tensor, Tensor]:
        values = torch.randint(len(centres), (count,), generator=generator)
        # A few directions carry most of the spread, as in embeddings: otherwise all 20 would be equally near.
        noise = torch.randn(count, key_size, generator=generator) * torch.linspace(1, 0, key_size) ** 8
        noise = normalize(noise) * spread * (0.5 + torch.rand(count, 1, generator=generator))
        return normalize(centres[values] + noise), values

    keys, values = draw(size)
    queries, targets = draw(many)
    new = torch.rand(many, generator=generator) < 0.25
    return Workload("clustered", keys, values, queries, torch.where(new, len(centres) + targets, targets))


def uniform(size: int, key_size: int, many: int, generator: torch.Generator) -> Workload:
    """Uniform on the sphere, keys and queries: the worst case, no key is near."""
    keys = normalize(torch.randn(size, key_size, generator=generator))
    queries = normalize(torch.randn(many, key_size, generator=generator))
    values = torch.randint(size // 20, (size,), generator=generator)
    targets = torch.randint(size // 16, (many,), generator=generator)
    return Workload("uniform", keys, values, queries, targets)


def real(size: int, key_size: int, many: int, generator: torch.Generator) -> Workload:
    """Embeddings of drawings, see `benchmarks.real`; a quarter of the queries have a value new to the memory."""
    from benchmarks.real import CLASSES, embeddings

    keys, values = embeddings("keys", size, key_size)
    queries, targets = embeddings("queries", many, key_size)
    new = torch.rand(many, generator=generator) < 0.25
    return Workload("real", keys, values, queries, torch.where(new, CLASSES + targets, targets))


WORKLOADS: dict[str, Callable[[int, int, int, torch.Generator], Workload]] = {
    "clustered": clustered,
    "uniform": uniform,
    "real": real,
}


def make(name: str, size: int, key_size: int, many: int, seed: int) -> Workload:
    """The workload of this name."""
    return WORKLOADS[name](size, key_size, many, torch.Generator().manual_seed(seed))
