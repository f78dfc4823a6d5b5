"""The paper's network, trained in two ways: with the memory's loss alone, and with our two softmax losses added.

Without batch normalisation, the memory's loss alone collapses the keys: the hardest of many negatives drives all
drawings to one key, and the loss stays at the margin. Two things prevent it: a data-dependent initialisation that gives
the layers' outputs mean 0 and standard deviation 1 (similar to LSUV, Mishkin and Matas 2016), and episodes that start
with few classes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from experiments.omniglot.distort import distort
from experiments.omniglot.episodes import Learner, MemoryLearner
from experiments.omniglot.ours import KEY_SIZE, Ours
from experiments.omniglot.recipe import Recipe
from rarecall import Memory
from rarecall.models.convnet import ConvNet


class Paper(Recipe):
    """Each step is an episode with an empty memory: all drawings are written, and each is classified by the others."""

    ways, shows = 48, 4
    first_ways = 6  # classes per episode grow from this to `ways` during the first 60% of the run
    steps = 6_000
    learning_rate = 1e-3
    averaging = 0.99
    clip = 1.0

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.network = convnet()
        self.memory = Memory(KEY_SIZE, capacity=self.ways * self.shows)

    def active(self, progress: float) -> tuple[int, int]:
        growth = (self.ways / self.first_ways) ** min(1.0, progress / 0.6)
        return int(self.first_ways * growth), self.shows

    def loss(
        self, drawings: Tensor, target: Tensor, source: Tensor, progress: float
    ) -> tuple[Tensor, dict[str, float]]:
        if progress == 0.0:
            even_start(self.network, drawings)
        query = self.network(distort(drawings).contiguous(memory_format=torch.channels_last))
        self.memory.reset()
        self.memory.update(self.memory(query), target, source=source)
        recall = self.memory(query, exclude=source)
        loss = self.memory.loss(recall, target)
        return loss, {"ways": float(len(target) // self.shows), "accuracy": _right(recall.value, target)}

    def learner(self, network: nn.Module) -> Learner:
        return MemoryLearner(network, KEY_SIZE)


class PaperWithSoftmax(Ours):
    """The paper's network, trained with our recipe."""

    steps = 8_500
    learning_rate = 1e-3
    averaging = 0.995
    clip = 1.0

    def make_network(self) -> nn.Module:
        return convnet()

    def loss(
        self, drawings: Tensor, target: Tensor, source: Tensor, progress: float
    ) -> tuple[Tensor, dict[str, float]]:
        if progress == 0.0:
            even_start(self.network, drawings)
        return super().loss(drawings.contiguous(memory_format=torch.channels_last), target, source, progress)


def convnet() -> nn.Module:
    """Return the paper's network without dropout: with few epochs there is no overfitting."""
    network = ConvNet(KEY_SIZE, dropout=0.0, padding=0)
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


@torch.no_grad()
def even_start(network: nn.Module, drawings: Tensor) -> None:
    """Scale and shift each layer in turn, so that its outputs on these drawings have mean 0 and deviation 1."""

    def even(layer: nn.Conv2d | nn.Linear, _: object, output: Tensor) -> Tensor:
        channel_last = output.movedim(1, -1)
        mean, spread = channel_last.flatten(0, -2).mean(0), channel_last.flatten(0, -2).std(0).mean()
        layer.weight.div_(spread)
        assert layer.bias is not None
        layer.bias.copy_((layer.bias - mean) / spread)
        return (channel_last - mean).div(spread).movedim(-1, 1)

    layers = [layer for layer in network.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    hooks = [layer.register_forward_hook(even) for layer in layers]
    network(drawings)
    for hook in hooks:
        hook.remove()


def _right(value: Tensor, target: Tensor) -> float:
    return (value == target).float().mean().item()
