"""N-way K-shot episodes: a learner is shown K drawings of each of N classes, and classifies others of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from experiments.omniglot.data import Characters
from experiments.omniglot.distort import distort
from rarecall import Memory

# Distortion of views, weaker than in training. Chosen on the validation characters.
A_LITTLE = {"turn": 5.0, "stretch": 0.08, "lean": 0.08, "move": 0.05, "bend": 0.02, "untouched": 0.0}


class Learner(Protocol):
    """The interface of a model in an episode, implemented by the networks with memory and by the baselines.

    Attributes:
        most_ways: maximum number of classes of an episode; None if there is no limit.
    """

    @property
    def most_ways(self) -> int | None:
        """See the class."""

    def encode(self, drawings: Tensor) -> Tensor:
        """Encode drawings, (n, 1, 28, 28) in 0 to 1 -> (n, d), independently of the episode."""

    def answer(self, shown: Tensor, asked: Tensor) -> Tensor:
        """Classify `asked`, (m, d), given `shown`, (ways, shots, d). Returns (m,) int64, a way each."""


class MemoryLearner:
    """A network with a memory: shown drawings are written to it, and the nearest neighbour's value is the answer.

    Each round shows one drawing of every class, and is one update.

    Args:
        network: maps drawings to queries.
        key_size: query dimension.
        together: write the mean of the drawings of a class as one key, rather than one drawing after the other.
        views: number of distorted views of a shown drawing that are also written, each to a slot of its own; the query
            of a test drawing is the mean over its views.
    """

    most_ways = None

    def __init__(self, network: nn.Module, key_size: int, *, together: bool = False, views: int = 0) -> None:
        self.network, self.key_size, self.together, self.views = network.eval(), key_size, together, views
        self._memory = Memory(key_size, capacity=1, k=1)

    def encode(self, drawings: Tensor) -> Tensor:
        """Encode drawings, (n, 1, 28, 28) -> (n, (1 + views) * key_size): the query, and those of random views."""
        with torch.no_grad():
            if not self.views:
                queries: Tensor = self.network(drawings)
                return queries
            seen = [drawings, *(distort(drawings, **A_LITTLE) for _ in range(self.views))]
            return torch.cat([F.normalize(self.network(view), dim=1) for view in seen], 1)

    def query(self, encoded: Tensor) -> Tensor:
        """Return the query of an encoded drawing, (..., (1 + views) * key_size) -> (..., key_size)."""
        return encoded.unflatten(-1, (1 + self.views, self.key_size)).mean(-2)

    def answer(self, shown: Tensor, asked: Tensor) -> Tensor:
        ways = len(shown)
        keys = shown.unflatten(2, (1 + self.views, self.key_size))  # (ways, shots, 1 + views, key_size)
        rounds = [F.normalize(keys, dim=3).mean(1)] if self.together else keys.unbind(1)
        if self._memory.capacity != ways * len(rounds) * (1 + self.views):
            self._memory = Memory(self.key_size, capacity=ways * len(rounds) * (1 + self.views), k=1)
        self._memory.reset()
        way = torch.arange(ways).repeat_interleave(1 + self.views)
        with torch.no_grad():
            for round_ in rounds:
                self._memory.update(self._memory(round_.flatten(0, 1)), way)
            return self._memory(self.query(asked)).value


@dataclass(frozen=True)
class Accuracy:
    """Mean accuracy over episodes in per cent, with its 95% confidence interval: mean ± interval."""

    mean: float
    interval: float
    episodes: int

    def __str__(self) -> str:
        return f"{self.mean:.2f} ± {self.interval:.2f}"


def encode(learner: Learner, characters: Characters, batch: int = 500, quiet: bool = True) -> Tensor:
    """Encode every drawing once for all episodes, with a fixed seed of the views. Returns (classes, drawings, d)."""
    drawings = characters.drawings.flatten(0, 1)
    encoded = []
    with torch.random.fork_rng(devices=[]), tqdm(total=len(drawings), desc="encode", disable=quiet) as bar:
        torch.manual_seed(0)
        for part in drawings.split(batch):
            encoded.append(learner.encode(as_input(part)))
            bar.update(len(part))
    return torch.cat(encoded).unflatten(0, characters.drawings.shape[:2])


def as_input(drawings: Tensor) -> Tensor:
    """Convert (n, 28, 28) uint8 to (n, 1, 28, 28) float, ink is 1."""
    return drawings.unsqueeze(1).float().div_(255)


def few_shot(
    learner: Learner, encoded: Tensor, *, ways: int, shots: int, episodes: int, asked: int = 5, seed: int = 0
) -> Accuracy:
    """Return the accuracy over random episodes.

    Args:
        learner: the model.
        encoded: (classes, drawings, d), the encoded drawings.
        ways: classes per episode.
        shots: drawings of each class that are shown.
        episodes: number of episodes.
        asked: other drawings of each class that are classified.
        seed: random seed of the episodes.
    """
    classes, drawings, _ = encoded.shape
    if ways > classes:
        raise ValueError(f"{ways}-way needs {ways} classes; there are {classes}. Use fewer ways.")
    if shots + asked > drawings:
        raise ValueError(
            f"{shots}-shot with {asked} drawings asked needs {shots + asked} drawings of a class; there are "
            f"{drawings}. Use fewer shots."
        )
    if min(ways, shots, asked, episodes) < 1:
        raise ValueError(f"Got {ways} ways, {shots} shots, {asked} asked, {episodes} episodes; expected at least 1.")
    generator = torch.Generator().manual_seed(seed)
    right_answers = torch.arange(ways).repeat_interleave(asked)
    accuracies = torch.empty(episodes, dtype=torch.float64)
    for episode in range(episodes):
        chosen = torch.randperm(classes, generator=generator)[:ways]
        drawn = torch.rand(ways, drawings, generator=generator).argsort(1)[:, : shots + asked]
        examples = encoded[chosen[:, None], drawn]  # (ways, shots + asked, d)
        answers = learner.answer(examples[:, :shots], examples[:, shots:].flatten(0, 1))
        accuracies[episode] = (answers == right_answers).double().mean()
    return mean_of(accuracies)


def mean_of(accuracies: Tensor) -> Accuracy:
    """Return the mean of (episodes,) accuracies from 0 to 1, in per cent, with a 95% confidence interval."""
    spread = float(accuracies.std()) if len(accuracies) > 1 else 0.0
    interval = 1.96 * spread / math.sqrt(len(accuracies))
    return Accuracy(100 * float(accuracies.mean()), 100 * interval, len(accuracies))
