"""torchrun --nproc-per-node 2 -m experiments.omniglot.ranks --out results/omniglot-2-ranks.json

Train the paper's network with one memory that is sharded over the ranks, each of which has a part of every batch. With
`--nproc-per-node 1` it is the same training in one process: the curves are equal but for the rounding of the network's
gradients, which are added up in another order. The memory's loss alone, on few classes, so that nothing collapses.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

from experiments.omniglot.data import load
from experiments.omniglot.episodes import as_input
from experiments.omniglot.ours import KEY_SIZE
from experiments.omniglot.paper import convnet, even_start
from experiments.results import origin, write
from rarecall import Memory
from rarecall.distributed import shard

CLASSES, WAYS, SHOWS = 60, 32, 2  # classes in all, and of a step; drawings of each of these, one after the other
RATE, CLIP = 1e-3, 1.0


def main() -> None:
    """Train, and write the curve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="where the curve is written, as JSON")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    about = origin(f"torchrun -m experiments.omniglot.ranks {' '.join(sys.argv[1:])}", given.seed)

    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    drawings = load(quiet=True).characters("train").drawings[:CLASSES]
    torch.manual_seed(given.seed)
    network: nn.Module = convnet()
    memory = shard(Memory(KEY_SIZE, capacity=4 * CLASSES, k=64), init_device_mesh("cpu", (ranks,)))
    curve: list[dict[str, float]] = []
    for step in range(given.steps):
        # All ranks draw the same batch and take their classes of it.
        classes = torch.randperm(CLASSES)[:WAYS]
        drawn = torch.rand(WAYS, drawings.shape[1]).argsort(1)[:, :SHOWS]
        batch = as_input(drawings[classes[:, None], drawn].flatten(0, 1)).unflatten(0, (WAYS, SHOWS))
        if step == 0:
            even_start(network, batch.flatten(0, 1))
            network = DistributedDataParallel(network)
            optimizer = torch.optim.AdamW(network.parameters(), lr=RATE)
        mine = torch.arange(WAYS).tensor_split(ranks)[rank]
        query = network(batch[mine].flatten(0, 1)).unflatten(0, (len(mine), SHOWS))
        source = classes[mine, None] * drawings.shape[1] + drawn[mine]
        losses, right = [], torch.zeros(())
        for show in range(SHOWS):
            recall = memory(query[:, show], exclude=source[:, show])
            losses.append(memory.loss(recall, classes[mine]))
            right = (recall.value == classes[mine]).sum().float()
            memory.update(recall, classes[mine], source=source[:, show])
        loss = torch.stack(losses).mean()
        optimizer.zero_grad()
        (loss * ranks).backward()
        nn.utils.clip_grad_norm_(network.parameters(), CLIP)
        optimizer.step()
        dist.all_reduce(right)
        curve.append({"step": step, "loss": loss.item(), "accuracy": right.item() / WAYS})
    if rank == 0:
        result: dict[str, Any] = {"experiment": "omniglot-ranks", "ranks": ranks, "curve": curve}
        write(given.out, result | {"bytes_sent_a_step": memory.bytes_sent / given.steps}, about)
        last = curve[-20:]
        print(f"{ranks} ranks: accuracy {sum(each['accuracy'] for each in last) / len(last):.1%} in the last steps")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
