"""The convolutional Siamese net (Koch et al. 2015): are two drawings of the same character?

Both drawings go through the same network; a weighted sum of their feature distances is the logit that they are of the
same class, trained with cross-entropy. The answer is the class of the shown drawing with the highest logit.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments.omniglot.baselines.convolutions import Convolutions
from experiments.omniglot.distort import distort
from experiments.omniglot.recipe import Recipe


class SiameseNet(nn.Module):
    """Features of drawings, and the logit that two of them are of the same character."""

    def __init__(self, features: int = 512) -> None:
        super().__init__()
        self.convolutions = Convolutions(last_pooled=False)
        # Without normalisation the features use only a small range of the sigmoid at first, and hardly differ.
        self.features = nn.Sequential(nn.Linear(self.convolutions.size, features), nn.BatchNorm1d(features))
        self.weights = nn.Linear(features, 1)
        # Negative weights: a larger distance means a lower logit. With random signs, half would have to be unlearned.
        nn.init.constant_(self.weights.weight, -16 / features)
        nn.init.constant_(self.weights.bias, 3.0)

    def forward(self, drawings: Tensor) -> Tensor:
        """Return features, (n, 1, 28, 28) -> (n, features) in 0 to 1."""
        return self.features(self.convolutions(drawings)).sigmoid()

    def same(self, left: Tensor, right: Tensor) -> Tensor:
        """Return the logits of all pairs, (n, features), (m, features) -> (n, m)."""
        return self.weights((left[:, None] - right).abs()).squeeze(2)


class Siamese(Recipe):
    """All pairs of a batch; pairs of the same class and of different classes have equal total weight."""

    ways, shows = 32, 2
    steps = 10_000
    learning_rate = 2e-3

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.network: SiameseNet = SiameseNet()

    def loss(
        self, drawings: Tensor, target: Tensor, source: Tensor, progress: float
    ) -> tuple[Tensor, dict[str, float]]:
        features = self.query(distort(drawings))
        logits = self.network.same(features, features)
        pair = ~torch.eye(len(target), dtype=torch.bool)
        same = (target[:, None] == target) & pair
        different = ~same & pair
        loss = 0.5 * (F.softplus(-logits[same]).mean() + F.softplus(logits[different]).mean())
        nearest = logits.masked_fill(~pair, -torch.inf).argmax(1)
        return loss, {"batch_accuracy": (target[nearest] == target).float().mean().item()}

    def learner(self, network: nn.Module) -> SiameseLearner:
        assert isinstance(network, SiameseNet)
        return SiameseLearner(network)


class SiameseLearner:
    """A `Learner`: see the module."""

    most_ways = None

    def __init__(self, network: SiameseNet) -> None:
        self.network = network.eval()

    @torch.no_grad()
    def encode(self, drawings: Tensor) -> Tensor:
        features: Tensor = self.network(drawings)
        return features

    @torch.no_grad()
    def answer(self, shown: Tensor, asked: Tensor) -> Tensor:
        return self.network.same(asked, shown.flatten(0, 1)).argmax(1) // shown.shape[1]
