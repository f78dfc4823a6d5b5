"""torchrun --nproc-per-node 2 examples/sharded.py --out runs/sharded

Train a small network with one memory on several ranks: the network under DistributedDataParallel, the memory's slots
spread over the ranks, a sharded checkpoint every few steps. Started again, it goes on from the last whole checkpoint,
bit for bit; `torchrun --max-restarts 3` does so by itself when a rank dies. Prints how many new queries are answered
right.
"""

from __future__ import annotations

import argparse
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

from rarecall import Memory, Recall
from rarecall.distributed import shard

CLASSES, BATCH = 200, 64  # examples of all ranks a step


class Network(nn.Module):
    """Maps what it sees to queries, and asks its memory."""

    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 32))
        self.memory = memory

    def forward(self, x: Tensor) -> Recall:
        return self.memory(self.layers(x))


def batch(step: int, rank: int, ranks: int) -> tuple[Tensor, Tensor]:
    """Return this rank's part of a step's examples: (n, 20) and (n,) int64."""
    random = torch.Generator().manual_seed(step)
    centres = torch.randn(CLASSES, 20, generator=torch.Generator().manual_seed(0))
    target = torch.randint(CLASSES, (BATCH,), generator=random)
    x = centres[target] + 0.3 * torch.randn(BATCH, 20, generator=random)
    mine = torch.arange(BATCH).tensor_split(ranks)[rank]
    return x[mine], target[mine]


def last_whole(folder: Path) -> int:
    """Return the step of the last checkpoint that was written to its end: its metadata come last. 0: there is none."""
    return max((int(file.parent.name) for file in folder.glob("*/.metadata")), default=0)


def main() -> None:
    """Train, from the last checkpoint if there is one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the checkpoints")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--every", type=int, default=20, help="steps from one checkpoint to the next")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds after which a rank that hangs is an error")
    given = parser.parse_args()

    dist.init_process_group("gloo", timeout=timedelta(seconds=given.timeout))
    rank, ranks = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (ranks,))
    torch.manual_seed(0)
    network = Network(shard(Memory(key_size=32, capacity=1000, k=16), mesh))
    # Otherwise it puts gradients into another order after the first step, and with three ranks or more a run that is
    # resumed would round their sums differently.
    wrapped = DistributedDataParallel(network, find_unused_parameters=True)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)

    def state() -> dict[str, object]:
        return {"network": network.state_dict(), "optimizer": optimizer.state_dict()}

    done = last_whole(given.out)
    if done:
        (sum(p.sum() for p in network.parameters()) * 0).backward()
        optimizer.step()  # so that there are moments to load into
        saved = state()
        dcp.load(saved, checkpoint_id=given.out / str(done))
        network.load_state_dict(saved["network"])
        optimizer.load_state_dict(saved["optimizer"])
    for step in range(done, given.steps):
        x, target = batch(step, rank, ranks)
        recall = wrapped(x)
        loss = network.memory.loss(recall, target)
        network.memory.update(recall, target, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        (loss * ranks).backward()  # DistributedDataParallel takes the mean over ranks; the loss is one of all already
        optimizer.step()
        if (step + 1) % given.every == 0:
            dcp.save(state(), checkpoint_id=given.out / str(step + 1))

    x, target = batch(-1, rank, ranks)
    with torch.no_grad():
        right = (wrapped(x).value == target).sum()
    dist.all_reduce(right)
    network.memory.save(given.out / "memory.safetensors")
    if rank == 0:
        print(f"{ranks} ranks, {given.steps} steps, {len(network.memory)} slots: {right / BATCH:.0%} right")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
