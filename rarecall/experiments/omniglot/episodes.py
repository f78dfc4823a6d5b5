"""N-way K-shot: a learner is shown K drawings of each of N classes, and asked for others of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from rarecall import Memory
from rarecall.experiments.omniglot.data import Characters


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
    """

    most_ways = None

    def __init__(self, network: nn.Module, key_size: int) -> None:
        self.network, self.key_size = network.eval(), key_size
        self._memory = Memory(key_size, capacity=1, k=1)

    def encode(self, drawings: Tensor) -> Tensor:
        with torch.no_grad():
            queries: Tensor = self.network(drawings)
        return queries

    def answer(self, shown: Tensor, asked: Tensor) -> Tensor:
        ways, shots, _ = shown.shape
        if self._memory.capacity != ways * shots:
            self._memory = Memory(self.key_size, capacity=ways * shots, k=1)
        self._memory.reset()
        way = torch.arange(ways)
        with torch.no_grad():
            for shot in range(shots):
                self._memory.update(self._memory(shown[:, shot]), way)
            return self._memory(asked).value


@dataclass(frozen=True)
class Accuracy:
    """A mean over episodes, in per cent, with its 95% confidence interval: mean ± interval."""

    mean: float
    interval: float
    episodes: int

    def __str__(self) -> str:
        return f"{self.mean:.2f} ± {self.interval:.2f}"


def encode(learner: Learner, characters: Characters, batch: int = 500) -> Tensor:
    """(classes, drawings, d): every drawing encoded once, for all episodes."""
    drawings = characters.drawings.flatten(0, 1)
    encoded = [learner.encode(as_input(drawings[start : start + batch])) for start in range(0, len(drawings), batch)]
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
