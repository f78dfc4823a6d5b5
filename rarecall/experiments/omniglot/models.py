"""The models that can be trained and evaluated, by name."""

from __future__ import annotations

from collections.abc import Callable

from rarecall.experiments.omniglot.baselines.mann import Mann
from rarecall.experiments.omniglot.baselines.matching import Matching, MatchingFullContext
from rarecall.experiments.omniglot.baselines.pixels import Pixels
from rarecall.experiments.omniglot.baselines.siamese import Siamese
from rarecall.experiments.omniglot.ours import Ours
from rarecall.experiments.omniglot.paper import Paper, PaperBatchNorm, PaperDistorted, PaperWithSoftmax
from rarecall.experiments.omniglot.recipe import Recipe

# Each takes the number of classes in the training set.
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
PIXELS = Pixels()  # has nothing to train
