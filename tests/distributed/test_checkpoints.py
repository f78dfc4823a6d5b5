"""Checkpoints of torch.distributed: sharded, asynchronous, for another number of ranks, and as one file."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save, torch_save_to_dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh

from rarecall import Memory
from rarecall.distributed import replicate, shard
from tests.helpers import assert_same, snapshot
from tests.ranks import made

LAYOUTS = {"shard": shard, "replicate": replicate}
CAPACITY = 30  # slots: of 4 ranks one has fewer


class Network(nn.Module):
    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self.layer, self.memory = nn.Linear(3, 8), memory


def new(mesh: DeviceMesh, layout: str, capacity: int = CAPACITY) -> Network:
    return Network(LAYOUTS[layout](Memory(8, capacity, k=3), mesh))


def learn(memory: Any, mesh: DeviceMesh | None, steps: int, seed: int) -> None:
    """The same steps in one process and on ranks, each of which has a part of the batch."""
    random, drawing = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed)
    for _ in range(steps):
        n = min(12, memory.capacity)
        query, target = torch.randn(n, 8, generator=random), torch.randint(9, (n,), generator=random)
        if mesh is not None:
            rows = torch.arange(n).tensor_split(mesh.size())[mesh.get_local_rank()]
            query, target = query[rows], target[rows]
        memory.update(memory(query), target, source=target, generator=drawing)


def expected(steps: int, more: int, capacity: int = CAPACITY) -> dict[str, Any]:
    one = Memory(8, capacity, k=3)
    learn(one, None, steps, seed=1)
    learn(one, None, more, seed=2)
    return snapshot(one)


def save(rank: int, mesh: DeviceMesh, layout: str, folder: str, capacity: int, by: str) -> None:
    network = new(mesh, layout, capacity)
    learn(network.memory, mesh, 6, seed=1)
    state = get_model_state_dict(network) if by == "get" else network.state_dict()
    if by == "async":
        saving = dcp.async_save({"network": state}, checkpoint_id=folder)
        learn(network.memory, mesh, 3, seed=3)  # what is learned meanwhile is not in it
        saving.result()
    else:
        dcp.save({"network": state}, checkpoint_id=folder)


def load(rank: int, mesh: DeviceMesh, layout: str, folder: str, capacity: int, by: str) -> dict[str, Any]:
    network = new(mesh, layout, capacity)
    state = {"network": get_model_state_dict(network) if by == "get" else network.state_dict()}
    dcp.load(state, checkpoint_id=folder)
    if by == "get":
        set_model_state_dict(network, state["network"])
    elif by != "in place":  # which changes the memory's own tensors
        network.load_state_dict(state["network"])
    learn(network.memory, mesh, 4, seed=2)
    memory: Any = network.memory
    assert len(memory) == int((memory.gathered().values >= 0).sum())
    return snapshot(memory.gathered())


@pytest.mark.parametrize("by", ["plain", "async", "get"])
def test_a_checkpoint_of_four_ranks_is_loaded_on_any_number(by, tmp_path) -> None:
    made(4)(save, "shard", str(tmp_path), CAPACITY, by)
    for size in (1, 2, 3, 4):
        for state in made(size)(load, "shard", str(tmp_path), CAPACITY, by):
            assert_same(expected(6, 4), state)


@pytest.mark.parametrize(
    ("before", "after"), [("replicate", "shard"), ("shard", "replicate"), ("replicate", "replicate")]
)
def test_a_checkpoint_of_one_layout_is_loaded_in_another(before, after, tmp_path) -> None:
    made(2)(save, before, str(tmp_path), CAPACITY, "plain")
    for state in made(3)(load, after, str(tmp_path), CAPACITY, "plain"):
        assert_same(expected(6, 4), state)


def test_a_checkpoint_is_loaded_into_the_memory_as_it_is(tmp_path) -> None:
    made(3)(save, "shard", str(tmp_path), CAPACITY, "plain")
    for state in made(2)(load, "shard", str(tmp_path), CAPACITY, "in place"):
        assert_same(expected(6, 4), state)


def test_ranks_without_slots_save_and_load(tmp_path) -> None:
    made(4)(save, "shard", str(tmp_path), 5, "plain")
    for size in (1, 4):
        for state in made(size)(load, "shard", str(tmp_path), 5, "plain"):
            assert_same(expected(6, 4, capacity=5), state)


def one_file(rank: int, mesh: DeviceMesh, path: str) -> None:
    network = new(mesh, "shard")
    learn(network.memory, mesh, 6, seed=1)
    network.memory.save(path)


def from_one_file(rank: int, mesh: DeviceMesh, path: str) -> dict[str, Any]:
    memory = shard(Memory.load(path), mesh)
    learn(memory, mesh, 4, seed=2)
    return snapshot(memory.gathered())


def test_one_file_opens_as_an_ordinary_memory_and_is_sharded_again(tmp_path) -> None:
    path = str(tmp_path / "memory.safetensors")
    made(3)(one_file, path)
    assert_same(expected(6, 0), snapshot(Memory.load(path)))
    for state in made(2)(from_one_file, path):
        assert_same(expected(6, 4), state)


def full_state(rank: int, mesh: DeviceMesh) -> dict[str, Any]:
    network = new(mesh, "shard")
    learn(network.memory, mesh, 6, seed=1)
    return get_model_state_dict(network, options=StateDictOptions(full_state_dict=True))


def from_full_state(rank: int, mesh: DeviceMesh, state: dict[str, Any]) -> dict[str, Any]:
    networks = [new(mesh, "shard") for _ in range(2)]
    networks[0].load_state_dict(state)
    set_model_state_dict(networks[1], state, options=StateDictOptions(full_state_dict=True))
    states = []
    for network in networks:
        learn(network.memory, mesh, 4, seed=2)
        states.append(snapshot(network.memory.gathered()))
    assert_same(*states)
    return states[0]


def test_a_consolidated_state_is_that_of_an_ordinary_memory_and_back(tmp_path) -> None:
    full = made(3)(full_state)[0]
    network = Network(Memory(8, CAPACITY, k=3))
    network.load_state_dict(full)
    assert_same(expected(6, 0), snapshot(network.memory))
    for state in made(2)(from_full_state, dict(network.state_dict())):
        assert_same(expected(6, 4), state)


def test_torchs_own_tools_convert_a_checkpoint(tmp_path) -> None:
    made(2)(save, "shard", str(tmp_path / "sharded"), CAPACITY, "plain")
    dcp_to_torch_save(tmp_path / "sharded", tmp_path / "one.pt")
    network = Network(Memory(8, CAPACITY, k=3))
    network.load_state_dict(torch.load(tmp_path / "one.pt")["network"])
    assert_same(expected(6, 0), snapshot(network.memory))
    torch_save_to_dcp(tmp_path / "one.pt", tmp_path / "again")
    for state in made(3)(load, "shard", str(tmp_path / "again"), CAPACITY, "plain"):
        assert_same(expected(6, 4), state)
