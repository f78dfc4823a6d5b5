"""What ranks are told that cannot go on: a sentence on every rank, and nobody waits."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from rarecall import ExactSearch, Memory
from rarecall.distributed import replicate, shard
from tests.helpers import ids, snapshot, unit
from tests.ranks import made


def told(call: Callable[..., Any], *args: Any, **settings: Any) -> str:
    """What a call says that is refused."""
    try:
        call(*args, **settings)
    except (ValueError, RuntimeError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def taught(mesh: DeviceMesh, layout: Any = shard) -> Any:
    memory = layout(Memory(4, 20, k=3), mesh)
    memory.update(memory(unit(5, 4)), torch.arange(5))
    return memory


def on_another_device(rank: int, mesh: DeviceMesh) -> str:
    return told(shard, Memory(4, 20), DeviceMesh("cuda", mesh.mesh))


def with_other_settings(rank: int, mesh: DeviceMesh) -> str:
    return told(shard, Memory(4, 20, k=2 + rank), mesh)


def with_other_slots(rank: int, mesh: DeviceMesh) -> str:
    memory = Memory(4, 20)
    memory.write(unit(2, 4), ids(1, 2 + rank))
    return told(replicate, memory, mesh)


def with_other_calls_to_make(rank: int, mesh: DeviceMesh) -> str:
    return told(shard if rank else replicate, Memory(4, 20), mesh)


def twice(rank: int, mesh: DeviceMesh) -> str:
    return told(shard, taught(mesh), mesh)


def twice_on_one_rank(rank: int, mesh: DeviceMesh) -> str:
    memory = taught(mesh)
    return told(replicate, memory if rank else Memory(4, 20), mesh)


def recall_of_another_rank(rank: int, mesh: DeviceMesh) -> str:
    memory = taught(mesh)
    recalls: list[Any] = [None] * mesh.size()
    dist.all_gather_object(recalls, memory(unit(3, 4)))
    assert recalls[1 - rank].value.shape == (3,)
    return told(memory.update, recalls[1 - rank], ids(1, 2, 3))


def recall_of_a_copy_on_one_rank(rank: int, mesh: DeviceMesh) -> str:
    memory = taught(mesh)
    other = copy.deepcopy(memory)
    recalls = memory(unit(3, 4)), other(unit(3, 4))
    return told(memory.loss, recalls[rank], ids(1, 2, 3))


def old_recall_on_one_rank(rank: int, mesh: DeviceMesh) -> str:
    memory = taught(mesh)
    old = memory(unit(3, 4))
    memory.update(old, ids(1, 2, 3))
    return told(memory.update, memory(unit(3, 4)) if not rank else (memory(unit(3, 4)), old)[1], ids(1, 2, 3))


def bad_target_on_one_rank(rank: int, mesh: DeviceMesh) -> str:
    memory = taught(mesh)
    recall, before = memory(unit(3, 4)), snapshot(memory.gathered())
    said = told(memory.update, recall, ids(1, 2, 3 - 9 * rank))
    assert all(torch.equal(tensor, before[name]) for name, tensor in memory.gathered().state_dict().items())
    memory.update(recall, ids(1, 2, 3))  # it was not done: nothing has changed
    return said


def nan_on_one_rank(rank: int, mesh: DeviceMesh) -> str:
    memory = taught(mesh)
    query = unit(3, 4)
    query[rank, 0] = torch.nan if rank else 0
    said = told(memory, query)
    memory(unit(3, 4))
    return said


def different_calls(rank: int, mesh: DeviceMesh) -> str:
    memory = taught(mesh)
    recall = memory(unit(3, 4))
    said = told(memory.update, recall, ids(1, 2, 3)) if rank else told(memory, unit(3, 4))
    memory.update(recall, ids(1, 2, 3))
    return said


def forgetting_differently(rank: int, mesh: DeviceMesh) -> str:
    memory = taught(mesh)
    said = told(memory.forget, value=rank)
    assert memory.forget(value=0) == mesh.size()  # each rank has taught it
    return said


class Failing(ExactSearch):
    """Fails where it is told to."""

    fails = False

    def __init__(self) -> None:
        super().__init__(4, 20)

    def rebuild(self, memory: Memory) -> None:
        """Without an index of the extension, `forward` is asked."""

    def forward(self, *args: Any) -> Any:
        if self.fails:
            raise RuntimeError("no search today")
        return super().forward(*args)


def search_that_fails_on_one_rank(rank: int, mesh: DeviceMesh) -> str:
    memory = shard(Memory(4, 20, k=3, search=Failing()), mesh)
    memory.update(memory(unit(8, 4)), torch.arange(8))
    memory.search.fails = rank == 1
    said = told(memory, unit(3, 4))
    memory.search.fails = False
    assert memory(unit(3, 4)).value.shape == (3,)
    return said


def mesh_of_two_dimensions(rank: int, mesh: DeviceMesh) -> str:
    square = DeviceMesh("cpu", mesh.mesh.view(1, -1), mesh_dim_names=("outer", "inner"))
    memory = shard(Memory(4, 20), square["inner"])
    memory(unit(3, 4))
    return told(shard, Memory(4, 20), square)


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (on_another_device, "a mesh of cuda"),
        (with_other_settings, "disagree about k: rank 0 has 2; rank 1 has 3"),
        (with_other_slots, "disagree about what the memory holds"),
        (with_other_calls_to_make, "disagree about the call"),
        (twice, "distributed already"),
        (twice_on_one_rank, "distributed already"),
        (recall_of_another_rank, "another memory"),
        (recall_of_a_copy_on_one_rank, "another memory"),
        (old_recall_on_one_rank, "out of date"),
        (bad_target_on_one_rank, "Got target with -6 in it"),
        (nan_on_one_rank, "1 numbers that are nan"),
        (different_calls, "different calls: rank 0 `recall`, rank 1 `update`"),
        (forgetting_differently, "forget different things"),
        (search_that_fails_on_one_rank, "no search today"),
        (mesh_of_two_dimensions, "mesh['name']"),
    ],
)
def test_every_rank_is_told(case, words) -> None:
    for rank, said in enumerate(made(2)(case)):
        assert words in said, f"rank {rank} was told: {said}"
