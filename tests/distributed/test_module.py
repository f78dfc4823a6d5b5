"""A distributed memory as a module: its settings, copies, searches and meshes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from rarecall import Memory, MemoryClassifier, Search
from rarecall.distributed import replicate, shard
from rarecall.reading import Blend, Nearest, Vote
from tests.helpers import SEARCHES, assert_same, ids, snapshot, train, unit, using
from tests.ranks import made


def search_on_ranks(rank: int, mesh: DeviceMesh, search: str) -> float:
    with using("native"):
        memory = shard(Memory(16, 600, k=8, search=search), mesh)
        torch.manual_seed(rank)
        keys = unit(200, 16)
        memory.update(memory(keys), torch.arange(200) + 1000 * rank)
        assert type(memory.search).__name__.lower().startswith(search)
        return (memory(keys).value == torch.arange(200) + 1000 * rank).float().mean().item()


@pytest.mark.parametrize("search", SEARCHES)
def test_each_rank_searches_its_slots_in_its_way(search) -> None:
    assert min(made(3)(search_on_ranks, search)) > 0.95


def one_strided_row(rank: int, mesh: DeviceMesh) -> tuple[int, str, Tensor]:
    memory = shard(Memory(4, 8, k=2, averaging="count"), mesh)
    both, source = torch.eye(4)[:, None].expand(4, 2, 4)[rank : 2 * rank + 1], torch.arange(8).view(4, 2)[:1]
    for step in range(2):  # rank 0 has one example, rank 1 two; a column of a tensor has strides that are not its own
        rows = source[:, step].expand(len(both))
        memory.update(memory(both[:, step], exclude=rows), rows * 0 + rank, source=rows)
    return len(memory), memory.gathered().averaging, memory.counts.full_tensor()


def test_strided_rows_and_the_kind_of_averaging() -> None:
    for filled, averaging, counts in made(2)(one_strided_row):
        assert (filled, averaging) == (3, "count")
        assert sorted(counts.tolist()) == [0] * 5 + [2] * 3


class Second(Search):
    """Always finds slot 1."""

    def forward(self, memory: Memory, query: Tensor, k: int, exclude: Tensor | None) -> Tensor:
        return torch.ones((len(query), 1), dtype=torch.int64)


def own_search(rank: int, mesh: DeviceMesh) -> list[int]:
    memory = shard(Memory(4, 4, k=2, search=Second()), mesh)  # of each rank
    memory.write(torch.eye(4) if rank == 0 else torch.empty(0, 4), torch.arange(4 if rank == 0 else 0))
    return memory(torch.tensor([[0.0, 2.0, 0.0, 1.0]])).slots[0].tolist()


def test_ranks_search_by_a_search_of_ones_own() -> None:
    assert made(2)(own_search) == [[1, 3], [1, 3]]


def copied(rank: int, mesh: DeviceMesh, layout: str) -> None:
    network = nn.ModuleDict({"memory": {"shard": shard, "replicate": replicate}[layout](Memory(8, 30, k=3), mesh)})
    memory: Any = network["memory"]
    assert [*network.parameters(), *network.buffers()] == []
    train(memory, 10, seed=0)
    other: Any = copy.deepcopy(network)["memory"]
    assert_same(snapshot(memory.gathered()), snapshot(other.gathered()))
    before = snapshot(memory.gathered())
    train(other, 10, seed=1)
    assert_same(before, snapshot(memory.gathered()))
    assert "filled=30 (100%)" in repr(memory)
    network.half()
    assert memory.keys.dtype == torch.float32
    memory.k = 2
    assert memory(unit(3, 8)).slots.shape == (3, 2)
    memory.reset()
    assert len(memory) == int(memory.now) == 0
    memory.merge(other)
    assert len(memory) == len(other) == 30
    with pytest.raises(ValueError, match="Cannot move"):
        network.to("meta")


@pytest.mark.parametrize("layout", ["shard", "replicate"])
def test_it_is_copied_moved_and_merged(layout) -> None:
    made(2)(copied, layout)


def from_nothing(rank: int, mesh: DeviceMesh) -> tuple[int, ...]:
    with torch.device("meta"):
        memory = Memory(8, 100, k=3)
    spread = shard(memory, mesh)
    train(spread, 20, seed=0)
    one = Memory(8, 100, k=3)
    for _ in range(2):
        one(unit(1, 8))
    assert isinstance(spread.keys, DTensor)
    assert spread.keys.shape == (100, 8)
    return tuple(spread.keys.to_local().shape)


def test_a_memory_that_was_never_in_one_place() -> None:
    assert made(3)(from_nothing) == [(34, 8), (34, 8), (32, 8)]


def taught_before(rank: int, mesh: DeviceMesh) -> None:
    one = Memory(8, 30, k=3)
    train(one, 10, seed=0)
    for layout in (shard, replicate):
        many = layout(one, mesh)
        assert_same(snapshot(one), snapshot(many.gathered()))
        assert len(many) == len(one)
        query = unit(4, 8)
        assert torch.equal(one(query).weights, many(query).weights)


def test_a_memory_that_was_taught_before() -> None:
    made(3)(taught_before)


def two_teams(rank: int, mesh: DeviceMesh) -> list[int]:
    square = DeviceMesh("cpu", mesh.mesh.view(2, 2), mesh_dim_names=("outer", "inner"))
    memory = shard(Memory(4, 10, k=1), square["inner"])
    memory.write(unit(1, 4), ids(rank))
    return memory.slots().values.tolist()


def test_a_dimension_of_a_larger_mesh() -> None:
    assert made(4)(two_teams) == [[0, 1], [0, 1], [2, 3], [2, 3]]


def readings(rank: int, mesh: DeviceMesh, reader: str) -> None:
    one = Memory(8, 60, k=10)
    train(one, 20, seed=0)
    query = unit(5, 8)
    for layout in (shard, replicate):
        many = layout(one, mesh)
        readers = [{"nearest": Nearest, "vote": Vote, "blend": Blend}[reader]() for _ in range(2)]
        for each, memory in zip(readers, (one, many), strict=True):
            each.fit(memory)
        expected, read = (each(memory, memory(query)) for each, memory in zip(readers, (one, many), strict=True))
        assert torch.equal(expected.values, read.values)
        for name in ("probabilities", "known"):  # class means are the same; products with them are rounded otherwise
            torch.testing.assert_close(getattr(expected, name), getattr(read, name))


@pytest.mark.parametrize("reader", ["nearest", "vote", "blend"])
def test_readers_read_it(reader) -> None:
    made(2)(readings, reader)


def explanations(rank: int, mesh: DeviceMesh) -> None:
    examples, asked = unit(30, 8), unit(6, 8)
    mine, of_mine = slice(10 * rank, 10 * rank + 10), slice(3 * rank, 3 * rank + 2 + rank)
    for layout in (shard, replicate):
        one, many = (MemoryClassifier(nn.Identity(), memory) for memory in (Memory(8, 37), layout(Memory(8, 37), mesh)))
        one.teach(examples, torch.arange(30) % 7, source=torch.arange(100, 130))
        many.teach(examples[mine], torch.arange(30)[mine] % 7, source=torch.arange(100, 130)[mine])
        expected, told = one.explain(asked), many.explain(asked[of_mine], neighbours=5)
        assert (told.sources >= 100).all()
        for name in vars(expected):
            assert torch.equal(getattr(expected, name)[of_mine], getattr(told, name)), name
        two = slice(2 * rank, 2 * rank + 2)
        assert torch.equal(one.predict(asked).label[two], many.predict(asked[two]).label)
        assert one.forget(label=3) == many.forget(label=3)
        assert torch.equal(one.explain(asked).sources[of_mine], many.explain(asked[of_mine]).sources)


def test_answers_are_traced_to_examples_of_any_rank() -> None:
    made(3)(explanations)
