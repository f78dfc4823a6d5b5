"""The models that can be trained and evaluated, by name."""

from __future__ import annotations

from collections.abc import Callable

from rarecall.experiments.omniglot.baselines.pixels import Pixels
from rarecall.experiments.omniglot.ours import Ours
from rarecall.experiments.omniglot.recipe import Recipe

# Each takes the number of classes in the training set.
RECIPES: dict[str, Callable[[int], Recipe]] = {"ours": Ours}
PIXELS = Pixels()  # has nothing to train
