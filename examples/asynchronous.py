"""torchrun --nproc-per-node 2 examples/asynchronous.py --out runs/asynchronous

Replicas that train at their own pace with one memory: its slots are spread over the ranks, and each rank asks and
updates them when it likes. The network's parameters are in a file that all ranks of this machine map into memory and
change without a lock (Hogwild, Niu et al. 2011). Prints how many new queries are answered right.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from rarecall import Memory
from rarecall.distributed import asynchronous, shard

CLASSES, BATCH = 200, 32  # examples of a replica a step


def batch(random: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return examples, (n, 20) and (n,) int64."""
    centres = torch.randn(CLASSES, 20, generator=torch.Generator().manual_seed(0))
    target = torch.randint(CLASSES, (BATCH,), generator=random)
    return centres[target] + 0.3 * torch.randn(BATCH, 20, generator=random), target


def share(network: nn.Module, path: Path) -> None:
    """Put the parameters where all ranks of this machine see them; those of rank 0 count."""
    size = sum(parameter.numel() for parameter in network.parameters())
    values = nn.utils.parameters_to_vector(network.parameters()).detach()
    if dist.get_rank() == 0:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.from_file(str(path), shared=True, size=size).copy_(values)
    dist.barrier()
    mapped = torch.from_file(str(path), shared=True, size=size)
    nn.utils.vector_to_parameters(mapped, network.parameters())


def main() -> None:
    """Train, and leave the memory in one file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the parameters and of the memory")
    parser.add_argument("--steps", type=int, default=100, help="of each replica; the last one makes half as many")
    given = parser.parse_args()

    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 32))
    share(network, given.out / "parameters")
    memory = shard(Memory(key_size=32, capacity=1000, k=16), init_device_mesh("cpu", (ranks,)))
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    random = torch.Generator().manual_seed(rank)
    with asynchronous(memory) as conflicts:
        for _ in range(given.steps // (2 if rank == ranks - 1 else 1)):
            x, target = batch(random)
            recall = memory(network(x))
            loss = memory.loss(recall, target)
            memory.update(recall, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    x, target = batch(random)
    with torch.no_grad():
        right = (memory(network(x)).value == target).sum()
    dist.all_reduce(right)
    memory.save(given.out / "memory.safetensors")
    print(f"rank {rank} of {ranks}: {conflicts}; {right / ranks / BATCH:.0%} right, {int(memory.now)} updates")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
