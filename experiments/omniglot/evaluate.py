"""python -m experiments.omniglot evaluate --weights runs/ours/network.safetensors --out results/omniglot-ours.json

Measure the paper's N-way K-shot accuracies on the 423 test characters, on the 1692 classes of their rotations, and
within one alphabet, where characters are similar.
"""

from __future__ import annotations

import json
import os
from typing import Any

import torch
from torch import Tensor

from experiments.omniglot.data import Omniglot
from experiments.omniglot.episodes import Accuracy, Learner, MemoryLearner, encode, few_shot, mean_of
from experiments.omniglot.models import RECIPES
from rarecall import storage
from rarecall.models import weights
from rarecall.models.convnet import ConvNet
from rarecall.models.joined import Joined

VIEWS = 8  # views per shown drawing if networks are joined
SETTINGS = ((5, 1), (5, 5), (20, 1), (20, 5))  # ways, shots


def learner_of(*paths: str | os.PathLike[str]) -> tuple[Learner, dict[str, Any]]:
    """Load a trained learner and the description of its training.

    The networks of several files are joined: the drawings of a class that are shown together become one key, and
    `VIEWS` views of them are stored as well.
    """
    learners, runs = zip(*(_learner_of(path) for path in paths), strict=True)
    if len(learners) == 1:
        return learners[0], runs[0]
    for path, learner, run in zip(paths, learners, runs, strict=True):
        if not isinstance(learner, MemoryLearner):
            raise ValueError(f"{path} holds the model {run['model']!r}; only networks with a memory can be joined.")
    joined = Joined([learner.network for learner in learners])
    learner = MemoryLearner(joined, joined.key_size, together=True, views=VIEWS)
    return learner, {"model": "joined", "of": list(runs)}


def _learner_of(path: str | os.PathLike[str]) -> tuple[Learner, dict[str, Any]]:
    tensors, header = storage.read(path, kind="network")
    run = json.loads(header.get("run", "{}"))
    if run.get("model") not in RECIPES:
        raise ValueError(
            f"{path} holds weights of the model {run.get('model')!r}; expected one of {', '.join(sorted(RECIPES))}."
        )
    recipe = RECIPES[run["model"]](1)
    weights.load_into(recipe.network, tensors, path)
    if isinstance(recipe.network, ConvNet):
        # Not all were trained with the recipe's present normalisation of the input; their settings say so.
        settings = json.loads(header["settings"])
        recipe.network.radius = settings["radius"]
    return recipe.learner(recipe.network), run | {"commit": header.get("commit", "unknown")}


def evaluate(
    learner: Learner,
    data: Omniglot,
    *,
    characters: str = "test",
    episodes: int = 1000,
    seed: int = 0,
    quiet: bool = True,
) -> dict[str, Any]:
    """Return all published figures, in per cent with 95% confidence intervals."""
    upright = data.characters(characters)
    figures: dict[str, Any] = {}
    turned = encode(learner, upright.turned(), quiet=quiet)
    encoded = {"upright": turned[::4], "turned": turned}  # the first of four rotations is by 0 degrees
    for name, classes in encoded.items():
        figures[name] = {
            f"{ways}-way {shots}-shot": as_json(
                few_shot(learner, classes, ways=ways, shots=shots, episodes=episodes, seed=seed)
            )
            for ways, shots in SETTINGS
            if learner.most_ways is None or ways <= learner.most_ways
        }
    alphabets = [alphabet for alphabet in data.evaluation if len(upright.of(alphabet)) >= 20]
    if alphabets and (learner.most_ways is None or learner.most_ways >= 20):
        by_alphabet = [encoded["upright"][upright.places(alphabet)] for alphabet in alphabets]
        accuracy = within_alphabets(learner, by_alphabet, episodes=episodes, seed=seed)
        figures["within an alphabet"] = {"20-way 1-shot": as_json(accuracy), "alphabets": alphabets}
    return {
        "experiment": "omniglot",
        "split": data.split,
        "characters": {"which": characters, "upright": len(upright), "turned": 4 * len(upright)},
        "figures": figures,
    }


def within_alphabets(learner: Learner, alphabets: list[Tensor], *, episodes: int, seed: int) -> Accuracy:
    """Return the 20-way 1-shot accuracy where all 20 classes are of one alphabet.

    Args:
        learner: the model.
        alphabets: the encoded drawings of each alphabet, (classes, drawings, d).
        episodes: minimum total number of episodes, equally many per alphabet.
        seed: random seed of the episodes.
    """
    of_each = -(-episodes // len(alphabets))
    means = [
        few_shot(learner, encoded, ways=20, shots=1, episodes=of_each, seed=seed + number)
        for number, encoded in enumerate(alphabets)
    ]
    # The confidence interval is over alphabets, since episodes of the same alphabet are not independent.
    over = mean_of(torch.tensor([mean.mean / 100 for mean in means], dtype=torch.float64))
    return Accuracy(over.mean, over.interval, of_each * len(alphabets))


def as_json(accuracy: Accuracy) -> dict[str, float]:
    """Convert an accuracy for a result file."""
    return {"mean": round(accuracy.mean, 2), "interval": round(accuracy.interval, 2), "episodes": accuracy.episodes}
