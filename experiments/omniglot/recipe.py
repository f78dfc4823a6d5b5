"""The interface between a model and the training loop in `train`."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from experiments.omniglot.episodes import Learner


class Recipe(nn.Module, ABC):
    """A model and everything that is trained with it (a memory, class embeddings, ...).

    Attributes:
        network: the part that is evaluated; the exponential moving average of its parameters is saved.
        ways, shows: classes per batch, and drawings per class.
        steps: steps of a full run.
        learning_rate: peak learning rate, after a linear warm-up and before a cosine decay to 0.
        warm_up: fraction of the steps.
        weight_decay: weight decay of the network's matrices and filters.
        averaging: decay of the exponential moving average of the parameters.
        clip: maximum gradient norm, or None.
        in_bfloat16: compute convolutions in bfloat16; set by the run.
    """

    network: nn.Module
    ways: int = 64
    shows: int = 2
    steps: int = 10_000
    learning_rate: float = 1e-3
    warm_up: float = 0.05
    weight_decay: float = 0.0
    averaging: float = 0.998
    clip: float | None = None
    in_bfloat16: bool = False

    def query(self, drawings: Tensor) -> Tensor:
        """Return the output of a convolutional network, (n, 1, 28, 28) -> (n, size), in float32."""
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.in_bfloat16):
            output: Tensor = self.network(drawings)
        return output.float()

    @abstractmethod
    def loss(
        self, drawings: Tensor, target: Tensor, source: Tensor, progress: float
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the loss of a batch, and metrics to report.

        Args:
            drawings: (ways * shows, 1, 28, 28) in 0 to 1, class by class.
            target: (ways * shows,) int64, classes.
            source: (ways * shows,) int64, ids of the drawings in the training set.
            progress: fraction of the run, from 0 to 1.
        """

    @abstractmethod
    def learner(self, network: nn.Module) -> Learner:
        """Return the learner for episodes, with this network (the recipe's, or its moving average)."""

    def begun(self) -> None:
        """Prepare a run whose network was initialised with trained weights."""

    def active(self, progress: float) -> tuple[int, int]:
        """Return (ways, shows) of a batch at this point of the run."""
        return self.ways, self.shows

    def choose(self, classes: int, progress: float) -> Tensor | None:
        """Return which of this number of classes the next batch has; None: all in random order, each once per epoch."""
        return None
