"""DistributedDataParallel and FSDP around a network with a memory inside."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from rarecall import Memory, Recall
from rarecall.distributed import replicate, shard
from tests.ranks import made

WRAPPERS = ["ddp", "fsdp"]
LAYOUTS = {"shard": shard, "replicate": replicate}


class Network(nn.Module):
    """Returns a recall, and learns by it."""

    def __init__(self, memory: Memory) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8))
        self.memory = memory

    def forward(self, x: Tensor) -> Recall:
        return self.memory(self.layers(x))


def wrapped(network: Network, wrapper: str, mesh: DeviceMesh) -> Any:
    if wrapper == "ddp":
        return DistributedDataParallel(network)
    for layer in network.layers:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    return fully_shard(network, mesh=mesh)


def steps(network: Any, memory: Any, mine: slice, scale: float) -> list[Tensor]:
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    random, losses = torch.Generator().manual_seed(7), []
    for step in range(12):
        x, target = torch.randn(8, 6, generator=random), torch.randint(4, (8,), generator=random)
        torch.manual_seed(step)
        recall = network(x[mine])
        loss = memory.loss(recall, target[mine])
        memory.update(recall, target[mine])
        optimizer.zero_grad()
        (loss * scale).backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def train_together(rank: int, mesh: DeviceMesh, wrapper: str, layout: str) -> None:
    one = Network(Memory(8, 20, k=4))
    expected = steps(one, one.memory, slice(None), 1.0)
    memory = LAYOUTS[layout](Memory(8, 20, k=4), mesh)
    share = 8 // mesh.size()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        network = wrapped(Network(memory), wrapper, mesh)
        losses = steps(network, memory, slice(rank * share, (rank + 1) * share), mesh.size())
    # The network's own gradients are added up in another order: equal but for rounding.
    assert torch.allclose(torch.stack(losses), torch.stack(expected), atol=1e-4)
    whole = memory.gathered()
    assert torch.equal(whole.values, one.memory.values)
    assert torch.equal(whole.times, one.memory.times)
    assert torch.allclose(whole.keys, one.memory.keys, atol=1e-4)


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_wrapped_network_learns_as_in_one_process(wrapper, layout) -> None:
    made(2)(train_together, wrapper, layout)


def train_unshared(rank: int, mesh: DeviceMesh, broadcast: bool) -> list[str]:
    network = DistributedDataParallel(Network(Memory(8, 20, k=4)), broadcast_buffers=broadcast)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        network(torch.randn(3, 6))
    return [str(each.message) for each in caught]


@pytest.mark.parametrize(("broadcast", "words"), [(True, "rank 0's slots"), (False, "drift apart")])
def test_a_memory_that_ranks_do_not_share_is_warned_of(broadcast, words) -> None:
    for said in made(2)(train_unshared, broadcast):
        assert len(said) == 1
        assert words in said[0]
        assert "rarecall.distributed.shard" in said[0]


def inner_recall(rank: int, mesh: DeviceMesh) -> None:
    class Outer(nn.Module):
        def __init__(self, inner: Network) -> None:
            super().__init__()
            self.first, self.inner = nn.Linear(6, 6), inner

        def forward(self, x: Tensor) -> Recall:
            return self.inner(self.first(x))

    memory = shard(Memory(8, 20, k=4), mesh)
    network = Outer(Network(memory))
    fully_shard(network.inner, mesh=mesh)
    fully_shard(network, mesh=mesh)
    losses = steps(network, memory, slice(rank * 4, rank * 4 + 4), 2.0)
    assert len(losses) == 12


def test_a_recall_leaves_a_module_that_is_sharded_again_after_forward() -> None:
    made(2)(inner_recall)
