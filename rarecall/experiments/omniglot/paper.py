"""The paper's network, trained in two ways: by the memory's loss alone, and with our two softmaxes beside it.

Alone, the hardest of many negatives collapses the keys of a network without batch normalisation: all drawings get one
key, and the loss stays at the margin. Two things help: a start from which the layers' outputs on real drawings have
mean 0 and spread 1, and few classes at first, as many as the network can bear.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rarecall import Memory
from rarecall.experiments.omniglot.distort import distort
from rarecall.experiments.omniglot.episodes import Learner, MemoryLearner
from rarecall.experiments.omniglot.ours import KEY_SIZE, Ours
from rarecall.experiments.omniglot.recipe import Recipe
from rarecall.models.convnet import ConvNet


class Paper(Recipe):
    """One memory for the whole run, of a window of the training classes: the hardest negative is of one of them.

    Each step takes a batch of classes from the window and one drawing of each after the other: they are asked, by which
    the network learns, and then shown. The window begins with few classes. While the loss is below `bearable` it grows,
    while it is far above it shrinks, and meanwhile classes leave it, forgotten, and others come in their place.
    """

    ways, shows = 64, 2
    first_window = 6
    bearable = 0.06  # keys that all are one have a loss of 0.1, the margin: a window that is too hard for its time ends there
    growth = 1.01  # of the window in a step
    stay = 4  # batches that a class takes part in before it leaves, in the mean
    steps = 20_000
    learning_rate = 1e-3
    averaging = 0.995
    clip = 1.0
    dropout = 0.1
    distorted = False
    memory: Memory
    order: Tensor  # (classes,) int64; the window is its beginning, the oldest first
    window: Tensor  # () float64, classes in the window
    smoothed: Tensor  # () float64, the loss of the last steps

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.network = self.make_network()
        self.memory = Memory(KEY_SIZE, capacity=2 * classes)
        self.register_buffer("order", torch.randperm(classes))
        self.register_buffer("window", torch.tensor(float(self.first_window), dtype=torch.float64))
        self.register_buffer("smoothed", torch.tensor(self.memory.margin, dtype=torch.float64))

    def make_network(self) -> nn.Module:
        """Maps drawings to queries."""
        return convnet(self.dropout)

    def choose(self, classes: int, progress: float) -> Tensor:
        window = min(int(self.window), classes)
        ways = min(self.ways, window)
        if progress > 0.0 and window < classes:
            leaving = min(int(ways / self.stay + torch.rand(()).item()), classes - window)
            places = window + torch.randperm(classes - window)[:leaving]
            coming, gone = self.order[places], self.order[:leaving].clone()
            self.order[places] = gone
            self.order[:window] = torch.cat([self.order[leaving:window], coming])
            outside = torch.isin(self.memory.values, self.order[window:])
            if outside.any():
                self.memory.forget(slots=outside.nonzero().squeeze(1))
        return self.order[torch.randperm(window)[:ways]]

    def loss(
        self, drawings: Tensor, target: Tensor, source: Tensor, progress: float
    ) -> tuple[Tensor, dict[str, float]]:
        if progress == 0.0:
            even_start(self.network, drawings)
        seen = distort(drawings) if self.distorted else drawings
        with torch.autocast("cpu", dtype=torch.bfloat16):
            query = self.network(seen.contiguous(memory_format=torch.channels_last)).float()
        losses, right = [], []
        for turn in range(self.shows):
            of_turn = slice(turn, None, self.shows)
            asked, answer, drawing = query[of_turn], target[of_turn], source[of_turn]
            recall = self.memory(asked, exclude=drawing)
            losses.append(self.memory.loss(recall, answer))
            right.append((recall.value == answer).float().mean().item())
            self.memory.update(recall, answer, source=drawing)
        loss = torch.stack(losses).mean()
        self._pace(loss.item())
        return loss, {"window": float(self.window), "accuracy": right[-1]}

    def _pace(self, loss: float) -> None:
        self.smoothed.lerp_(torch.tensor(loss, dtype=torch.float64), 0.1)
        if self.smoothed < self.bearable:
            self.window.mul_(self.growth).clamp_(max=len(self.order))
        elif self.smoothed > 1.25 * self.bearable:
            self.window.div_(self.growth).clamp_(min=self.first_window)

    def learner(self, network: nn.Module) -> Learner:
        return MemoryLearner(network, KEY_SIZE)


class PaperWithSoftmax(Ours):
    """The paper's network by the recipe of ours."""

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


def convnet(dropout: float = 0.0) -> nn.Module:
    """Without padding, which leaves half of the work."""
    network = ConvNet(KEY_SIZE, dropout=dropout, padding=0)
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


@torch.no_grad()
def even_start(network: nn.Module, drawings: Tensor) -> None:
    """Scales and shifts each layer in turn, so that its outputs on these drawings have mean 0 and spread 1."""

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
