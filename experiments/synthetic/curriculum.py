"""Few numbers and short sequences first: without that, the keys of 16,000 numbers stay at chance."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from experiments.synthetic.task import Data


@dataclass
class Progress:
    """Where a run is in its curriculum; all of it is in a checkpoint.

    Attributes:
        level: how often it was promoted.
        asked, right: first digits since then, and those that were right.
    """

    level: int = 0
    asked: int = 0
    right: int = 0


class Curriculum:
    """The examples of `first` numbers, then of twice as many, ... of all; then all lengths.

    A level is passed when the first digit was right in `enough` of the answers to one pass over the level's examples
    (and to `fewest` of them). The first digit is the measure since it can follow from the input alone; later ones are
    helped by those before them. At the latest the level is passed when its share of half of the run is over, so that
    every run, with or without a memory, has all examples and lengths in its second half.

    Args:
        data: the task.
        first: numbers in the first level; 0 is no curriculum.
        short: the greatest length up to the last level.
        enough: share of first digits.
        fewest: answers to judge by.
    """

    def __init__(self, data: Data, *, first: int, short: int, enough: float = 0.8, fewest: int = 512) -> None:
        self.data, self.enough, self.fewest = data, enough, fewest
        task = data.task
        present = data.training.x.unique()
        # The order in which numbers come is drawn, but follows from the seed of the task alone.
        shuffled = torch.randperm(len(present), generator=torch.Generator().manual_seed(task.seed))
        self._rank = torch.zeros(task.symbols + 1, dtype=torch.int64)
        self._rank[present[shuffled]] = torch.arange(len(present))
        self.sizes: list[int] = []
        while first and first < len(present):
            self.sizes.append(first)
            first *= 2
        self.sizes.append(len(present))
        short = max(short, task.shortest)
        self.levels = [(size, min(short, task.longest)) for size in self.sizes]
        if short < task.longest:
            self.levels.append((len(present), task.longest))
        self.progress = Progress()

    @property
    def numbers(self) -> int:
        """How many numbers take part now."""
        return self.levels[self.progress.level][0]

    @property
    def longest(self) -> int:
        """The greatest length now."""
        return self.levels[self.progress.level][1]

    def examples(self) -> Tensor:
        """Numbers of the training examples that take part now."""
        taking_part = self._rank[self.data.training.x] < self.numbers
        return taking_part.nonzero().squeeze(1)

    def note(self, right: Tensor, share_of_run: float) -> bool:
        """Takes down whether first digits were right, (n,) bool; returns whether the run goes up a level now."""
        now, last = self.progress, len(self.levels) - 1
        now.asked += len(right)
        now.right += int(right.sum())
        if now.level == last:
            return False
        passed = now.asked >= max(self.fewest, self.numbers) and now.right >= self.enough * now.asked
        if now.asked >= max(self.fewest, self.numbers) and not passed:
            now.asked = now.right = 0
        if passed or share_of_run >= 0.5 * (now.level + 1) / last:
            self.progress = Progress(now.level + 1)
            return True
        return False
