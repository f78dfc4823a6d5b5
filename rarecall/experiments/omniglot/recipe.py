"""How a model is trained: what a recipe gives to the one training loop in `train`."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn

from rarecall.experiments.omniglot.episodes import Learner


class Recipe(nn.Module, ABC):
    """A model with all that is trained beside it (a memory, the keys of the classes, ...).

    Attributes:
        network: the part that is evaluated; the mean over the last steps of its parameters is what is kept.
        ways, shows: classes in a batch, and drawings of each.
        steps: in a full run.
        learning_rate: its greatest, after a warm-up and before a cosine to 0.
        warm_up: share of the steps.
        weight_decay: of the matrices and filters of the network.
        averaging: how much of the running mean of the parameters a step keeps.
        clip: greatest norm of the gradient, or None.
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

    @abstractmethod
    def loss(
        self, drawings: Tensor, target: Tensor, source: Tensor, progress: float
    ) -> tuple[Tensor, dict[str, float]]:
        """The loss of a batch, and figures to report.

        Args:
            drawings: (ways * shows, 1, 28, 28) in 0 to 1, class by class.
            target: (ways * shows,) int64, the classes.
            source: (ways * shows,) int64, one number for each drawing of the training set.
            progress: 0 at the first step, 1 at the end.
        """

    @abstractmethod
    def learner(self, network: nn.Module) -> Learner:
        """What takes part in episodes, with this network (the recipe's own, or the mean of it)."""

    def active(self, progress: float) -> tuple[int, int]:
        """(ways, shows) of a batch at this point of the run."""
        return self.ways, self.shows

    def choose(self, classes: int, progress: float) -> Tensor | None:
        """The classes of the next batch, of so many; None where each is to come once before any comes again."""
        return None
