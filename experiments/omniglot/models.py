"""The models that can be trained and evaluated, by name."""

from __future__ import annotations

from collections.abc import Callable

from experiments.omniglot.baselines.mann import Mann
from experiments.omniglot.baselines.matching import Matching, MatchingFullContext
from experiments.omniglot.baselines.pixels import Pixels
from experiments.omniglot.baselines.siamese import Siamese
from experiments.omniglot.ours import Ours
from experiments.omniglot.paper import Paper, PaperBatchNorm, PaperDistorted, PaperWithSoftmax
from experiments.omniglot.recipe import Recipe

# Each takes the number of training classes.
RECIPES: dict[str, Callable[[int], Recipe]] = {
    "mann": Mann,
    "matching": Matching,
    "matching-fce": MatchingFullContext,
    "ours": Ours,
    "paper": Paper,
    "paper-batchnorm": PaperBatchNorm,
    "paper-distorted": PaperDistorted,
    "paper-softmax": PaperWithSoftmax,
    "siamese": Siamese,
}
PIXELS = Pixels()  # has no parameters
