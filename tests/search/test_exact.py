import pytest
import torch

from rarecall import Memory
from rarecall.native import extension
from rarecall.search import exact
from tests.helpers import ids, teach, unit


@pytest.fixture(autouse=True, params=["torch", "extension"])
def path(request, monkeypatch) -> str:
    """All of this holds for both: torch alone, and the C++ extension."""
    if request.param == "torch":
        monkeypatch.setattr(exact, "usable", lambda memory: False)
    elif extension() is None:
        pytest.skip("the extension was not built")
    return request.param


def brute_force(memory: Memory, query: torch.Tensor, exclude: torch.Tensor | None = None) -> torch.Tensor:
    """(n, k) float64: the k largest similarities over all slots that may be found."""
    similarities = query.double() @ memory.keys.double().T
    similarities[:, memory.values < 0] = -torch.inf
    if exclude is not None:
        similarities[(exclude[:, None] == memory.sources) & (exclude[:, None] >= 0)] = -torch.inf
    return similarities.topk(memory.k).values


@pytest.mark.parametrize("block", [16, 100, 2**23])
@pytest.mark.parametrize("key_size", [1, 3, 33, 64])
@pytest.mark.parametrize("n", [1, 7, 40])
def test_it_finds_the_k_nearest_whatever_the_block(monkeypatch, block, key_size, n) -> None:
    monkeypatch.setattr(exact, "BLOCK", block)
    memory = Memory(key_size, capacity=300, k=20)
    teach(memory, unit(250, key_size), torch.arange(250), source=torch.arange(250) % 10)
    memory.forget(source=3)
    query, exclude = unit(n, key_size), torch.randint(-1, 12, (n,))
    for excluded in (None, exclude):
        recall = memory(query, exclude=excluded)
        torch.testing.assert_close(
            recall.similarities.double(), brute_force(memory, query, excluded), atol=1e-6, rtol=0
        )
        assert all(len(set(row)) == 20 for row in recall.slots.tolist())


def test_fewer_slots_than_k() -> None:
    memory = Memory(4, capacity=300, k=20)
    teach(memory, unit(5, 4), ids(1, 2, 3, 4, 5), source=ids(1, 1, 2, 2, 2))
    recall = memory(unit(2, 4), exclude=ids(1, 2))
    assert (recall.slots >= 0).sum(1).tolist() == [3, 2]


def test_equal_keys_are_all_found() -> None:
    memory = Memory(8, capacity=64, k=40)
    teach(memory, unit(8).expand(50, 8), torch.arange(50))
    recall = memory(unit(8))
    assert len(set(recall.slots.tolist())) == 40


@pytest.mark.parametrize("path", ["torch"], indirect=True)
def test_memory_use_is_bounded_by_the_block(path) -> None:
    """At a batch and capacity whose whole matrix of similarities would be a hundred times the block."""
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor):
                largest = max(largest, out.numel())
            return out

    memory = Memory(4, capacity=20_000, k=2)
    teach(memory, unit(20_000, 4), torch.zeros(20_000, dtype=torch.int64))
    exact_block = exact.BLOCK
    try:
        exact.BLOCK = 2**16
        with Watch():
            memory.search(memory, unit(400, 4), 2, None)
    finally:
        exact.BLOCK = exact_block
    assert largest <= max(2**16, memory.keys.numel())
