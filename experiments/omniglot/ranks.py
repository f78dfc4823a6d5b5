"""torchrun --nproc-per-node 2 -m experiments.omniglot.ranks --out results/omniglot-2-ranks.json

Train the paper's recipe (`paper.Paper`) with its memory sharded over the ranks and its network under
DistributedDataParallel; each rank has its part of the classes of every batch. With `--nproc-per-node 1` it is the same
training in one process: all random numbers are equal, and the curves differ only by how gradients are rounded, which
are added up in another order.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel
from tqdm import trange

from experiments.omniglot.data import load
from experiments.omniglot.paper import Paper, even_start
from experiments.omniglot.train import Run, State, validate
from experiments.results import origin, write
from rarecall.distributed import shard


class OnRanks(Paper):
    """The recipe, of which each rank computes its own rows of a batch."""

    def __init__(self, classes: int) -> None:
        super().__init__(classes)
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.memory = shard(self.memory, init_device_mesh("cpu", (self.ranks,)))
        layers: Any = self.network.layers
        layers[13] = JointDropout(self)
        self.network = DistributedDataParallel(self.network)
        self.batch, self.rows = 0, torch.empty(0, dtype=torch.int64)

    def loss(
        self, drawings: Tensor, target: Tensor, source: Tensor, progress: float
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the loss of all ranks' rows times their number: the mean of the gradients is taken over the ranks."""
        if progress == 0.0:
            even_start(self.network.eval(), drawings)  # of the whole batch, on all ranks alike
            self.network.train()
        self.batch = len(target)
        classes = torch.arange(self.batch // self.shows).tensor_split(self.ranks)[self.rank]
        self.rows = (classes[:, None] * self.shows + torch.arange(self.shows)).flatten()
        mine = drawings[self.rows], target[self.rows], source[self.rows]
        loss, figures = super().loss(*mine, progress or 1e-9)
        right = torch.tensor(figures["accuracy"] * len(classes))
        dist.all_reduce(right)
        return loss * self.ranks, figures | {"accuracy": right.item() / (self.batch // self.shows)}


class JointDropout(nn.Module):
    """Draws the noise of the whole batch on every rank and applies its own rows, so that it is that of one process."""

    def __init__(self, recipe: OnRanks) -> None:
        super().__init__()
        self.recipe: OnRanks
        self.__dict__["recipe"] = recipe  # not as a submodule

    def forward(self, x: Tensor) -> Tensor:
        """(rows, width) -> the same."""
        if not self.training:
            return x
        kept = torch.rand(self.recipe.batch, x.shape[1])[self.recipe.rows] >= self.recipe.dropout
        return x * kept / (1 - self.recipe.dropout)

    def __deepcopy__(self, memo: Any) -> JointDropout:
        return self  # the moving average of the network is never in training


def main() -> None:
    """Train, and write the curve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="where the curve is written, as JSON")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--measure", type=int, default=250, help="steps between two measurements")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    about = origin(f"torchrun -m experiments.omniglot.ranks {' '.join(sys.argv[1:])}", given.seed)

    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    data = load(quiet=True)
    classes, validation = data.characters("train").turned(), data.characters("val")
    torch.manual_seed(given.seed)
    recipe = OnRanks(len(classes))
    state = State(recipe, Run("paper", "train", given.steps, given.seed))
    curve: list[dict[str, float]] = []
    for step in trange(given.steps, disable=rank > 0):
        figures = state.forward_one(classes)
        curve.append({"step": step, "loss": figures["loss"] / ranks} | {n: figures[n] for n in ("window", "accuracy")})
        if (step + 1) % given.measure == 0 and rank == 0:
            with torch.random.fork_rng():
                curve[-1]["validation"] = validate(state, validation)
    if rank == 0:
        result: dict[str, Any] = {"experiment": "omniglot-ranks", "ranks": ranks, "curve": curve}
        write(given.out, result | {"bytes_sent_a_step": recipe.memory.bytes_sent / given.steps}, about)
        print(f"{ranks} ranks: {curve[-1]['validation']:.1f}% of 20-way 1-shot episodes right")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
