"""Small things that several tests need."""

from __future__ import annotations

import torch
from torch import Tensor

from rarecall import Memory


def unit(*shape: int) -> Tensor:
    """Random vectors of length 1."""
    return torch.nn.functional.normalize(torch.randn(*shape), dim=-1)


def ids(*numbers: int) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int64)


def teach(memory: Memory, query: Tensor, target: Tensor, source: Tensor | None = None) -> None:
    memory.update(memory(query), target, source=source)


def snapshot(memory: Memory) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in memory.state_dict().items()}


def assert_same(before: dict[str, Tensor], after: dict[str, Tensor]) -> None:
    """Bit for bit."""
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        assert torch.equal(tensor, after[name]), name


def train(memory: Memory, steps: int, seed: int) -> None:
    """Shows the memory `steps` random batches, of which some confirm and some miss."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(20, memory.key_size, generator=generator)
    for _ in range(steps):
        target = torch.randint(20, (8,), generator=generator)
        query = centres[target] + torch.randn(8, memory.key_size, generator=generator)
        memory.update(memory(query), target, source=target, generator=generator)
