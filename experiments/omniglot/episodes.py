"""N-way K-shot: a learner is shown K drawings of each of N classes, and asked for others of them."""

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

# By how much a view differs from the drawing: less than in training. Chosen on the validation characters.
A_LITTLE = {"turn": 5.0, "stretch": 0.08, "lean": 0.08, "move": 0.05, "bend": 0.02, "untouched": 0.0}


class Learner(Protocol):
    """What an episode asks of a model; the memory networks and the baselines all have it.

    `most_ways`: more classes than that it cannot tell apart; None where there is no such bound.
    """

    @property
    def most_ways(self) -> int | None:
        """See the class."""

    def encode(self, drawings: Tensor) -> Tensor:
        """(n, 1, 28, 28) in 0 to 1 -> (n, d): the part of the work that does not depend on the episode."""

    def answer(self, shown: Tensor, asked: Tensor) -> Tensor:
        """shown: (ways, shots, d); asked: (m, d) -> (m,) int64, a way for each."""


class MemoryLearner:
    """A network with a memory: the drawings shown are written to it, the nearest neighbour's value is the answer.

    Each round shows one drawing of every class, and is one update.

    Args:
        network: maps drawings to queries.
        key_size: numbers in a query.
        together: the drawings of a class are not shown one after the other but together, as one key, their mean.
        views: so many distorted views of a drawing shown are remembered beside it, in slots of their own; a drawing
            asked is the mean of its views.
    """

    most_ways = None

    def __init__(self, network: nn.Module, key_size: int, *, together: bool = False, views: int = 0) -> None:
        self.network, self.key_size, self.together, self.views = network.eval(), key_size, together, views
        self._memory = Memory(key_size, capacity=1, k=1)

    def encode(self, drawings: Tensor) -> Tensor:
        """(n, 1, 28, 28) -> (n, (1 + views) * key_size): the query, and those of the views; each view is drawn anew."""
        with torch.no_grad():
            if not self.views:
                queries: Tensor = self.network(drawings)
                return queries
            seen = [drawings, *(distort(drawings, **A_LITTLE) for _ in range(self.views))]
            return torch.cat([F.normalize(self.network(view), dim=1) for view in seen], 1)

    def query(self, encoded: Tensor) -> Tensor:
        """(..., (1 + views) * key_size) -> (..., key_size): the drawing as it is asked."""
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
    """A mean over episodes, in per cent, with its 95% confidence interval: mean ± interval."""

    mean: float
    interval: float
    episodes: int

    def __str__(self) -> str:
        return f"{self.mean:.2f} ± {self.interval:.2f}"


def encode(learner: Learner, characters: Characters, batch: int = 500, quiet: bool = True) -> Tensor:
    """(classes, drawings, d): every drawing encoded once, for all episodes; views are drawn by a fixed seed."""
    drawings = characters.drawings.flatten(0, 1)
    encoded = []
    with torch.random.fork_rng(devices=[]), tqdm(total=len(drawings), desc="encode", disable=quiet) as bar:
        torch.manual_seed(0)
        for part in drawings.split(batch):
            encoded.append(learner.encode(as_input(part)))
            bar.update(len(part))
    return torch.cat(encoded).unflatten(0, characters.drawings.shape[:2])


def as_input(drawings: Tensor) -> Tensor:
    """(n, 28, 28) uint8 -> (n, 1, 28, 28) float, ink is 1."""
    return drawings.unsqueeze(1).float().div_(255)


def few_shot(
    learner: Learner, encoded: Tensor, *, ways: int, shots: int, episodes: int, asked: int = 5, seed: int = 0
) -> Accuracy:
    """The accuracy over episodes of `ways` random classes, `shots` drawings of each shown and `asked` others asked.

    encoded: (classes, drawings, d).
    """
    classes, drawings, _ = encoded.shape
    if ways > classes:
        raise ValueError(f"{ways}-way needs {ways} classes; there are {classes}. Ask for fewer ways.")
    if shots + asked > drawings:
        raise ValueError(
            f"{shots}-shot with {asked} drawings asked needs {shots + asked} drawings of a class; there are "
            f"{drawings}. Ask for fewer shots."
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
    """(episodes,) of parts of 1 -> per cent with a 95% confidence interval."""
    spread = float(accuracies.std()) if len(accuracies) > 1 else 0.0
    interval = 1.96 * spread / math.sqrt(len(accuracies))
    return Accuracy(100 * float(accuracies.mean()), 100 * interval, len(accuracies))
