"""Small things that several tests need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

import rarecall.search
from examples.own_search import HashSearch
from rarecall import Memory, Search
from rarecall import backend as backends
from rarecall.backend.torch_backend import TorchBackend

# What every rule of the memory holds for.
BACKENDS = ["native", "torch", "float64"]
SEARCHES = ["exact", "hash", "auto"]
rarecall.search.SEARCHES["hash"] = HashSearch  # stands for any search of a user's own


@contextmanager
def using(backend: str, small: int | None = 0) -> Iterator[Callable[..., Memory]]:
    """Give what makes a memory of this backend; takes the arguments of `Memory`.

    Args:
        backend: "native", "torch" (float32 without the extension) or "float64" (which torch does as well).
        small: the number of keys up to which "auto" searches exactly; None: as it is for users.
    """
    with pytest.MonkeyPatch.context() as patch:
        if backend == "torch":
            patch.setattr("rarecall.backend.extension", lambda: None)
        if small is not None:
            patch.setattr("rarecall.search.auto.SMALL", small)

        def make(*args: Any, **settings: Any) -> Memory:
            memory = Memory(*args, **settings)
            return memory.double() if backend == "float64" else memory

        yield make


@contextmanager
def pair(
    *args: Any, search: str | type[Search] = "exact", small: int | None = 0, **settings: Any
) -> Iterator[tuple[Memory, Memory]]:
    """Give a memory of the extension and one of torch, both float32 on the CPU, for as long as the context lasts.

    A memory chooses its backend when it is first used and when its buffers were replaced, so that one made in the
    context of `using` does not keep it.

    Args:
        args, settings: those of `Memory`.
        search: a name, or a class of which each memory gets an object of its own. A hashing search hashes alike.
        small: as in `using`.
    """
    with pytest.MonkeyPatch.context() as patch:
        if small is not None:
            patch.setattr("rarecall.search.auto.SMALL", small)
        memories = []
        for _ in range(2):
            torch.manual_seed(5)
            memories.append(Memory(*args, search=search if isinstance(search, str) else search(), **settings))
        native, plain = memories
        choose = backends.choose
        patch.setattr(backends, "choose", lambda memory: TorchBackend(memory) if memory is plain else choose(memory))
        yield native, plain
        assert native.native is not None
        assert plain.native is None


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


def check_found(memory: Memory, share: float = 1.0) -> None:
    """Every filled slot (of many, 2000) is found by its own key, or a newer slot with an equally similar one is.

    Args:
        share: of the slots, how many are to be found; less than 1 for a search that promises no more.
    """
    filled = (memory.values >= 0).nonzero().squeeze(1)
    assert len(memory) == len(filled)
    assert ((memory.values >= 0) == (memory.times >= 0)).all()
    assert ((memory.values >= 0) == (memory.counts > 0)).all()
    assert (memory.times <= memory.now).all()
    if len(filled) == 0:
        return
    filled = filled[torch.randperm(len(filled))[:2000]]
    keys = memory.keys[filled]
    recall = memory(keys)
    nearest = recall.slots[:, 0]
    assert (nearest >= 0).all()
    assert torch.equal(recall.value, memory.values[nearest]), "a value that is not in the slot"
    # A key of length 1 that is rounded otherwise is as near as its own.
    as_near = (keys * memory.keys[nearest]).sum(1) > (keys * keys).sum(1) - 1e-6
    not_older = memory.times[nearest] >= memory.times[filled]
    found = (nearest == filled) | (as_near & not_older)
    assert found.float().mean() >= share, f"{int((~found).sum())} of {len(filled)} slots are not found"
