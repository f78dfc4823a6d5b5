"""Curriculum: few numbers and short sequences first. Without it, accuracy on 16,000 numbers stays at chance."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from experiments.synthetic.task import Data


@dataclass
class Progress:
    """Position of a run in its curriculum, as saved in a checkpoint.

    Attributes:
        level: the current level.
        asked, right: first digits seen in this level, and how many of them were correct.
    """

    level: int = 0
    asked: int = 0
    right: int = 0


class Curriculum:
    """Start with the examples of `first` numbers, double the numbers until all are used, then allow all lengths.

    A level is passed when the first digit was correct in a fraction `enough` of the answers during one pass over the
    level's examples (at least `fewest` answers). The first digit is the criterion since it depends on the input alone;
    later digits are also predicted from earlier ones. A level is passed at the latest when its share of the first half
    of the run is over, so every run, with or without a memory, trains on all examples and lengths in its second half.

    Args:
        data: the task.
        first: numbers in the first level; 0 disables the curriculum.
        short: maximum length before the last level.
        enough: required fraction of correct first digits.
        fewest: minimum number of answers to judge by.
    """

    def __init__(self, data: Data, *, first: int, short: int, enough: float = 0.8, fewest: int = 512) -> None:
        self.data, self.enough, self.fewest = data, enough, fewest
        task = data.task
        present = data.training.x.unique()
        # The order of the numbers is random, but depends only on the seed of the task.
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
        """Number of numbers used in this level."""
        return self.levels[self.progress.level][0]

    @property
    def longest(self) -> int:
        """Maximum length in this level."""
        return self.levels[self.progress.level][1]

    def examples(self) -> Tensor:
        """Return the indices of the training examples used in this level."""
        taking_part = self._rank[self.data.training.x] < self.numbers
        return taking_part.nonzero().squeeze(1)

    def note(self, right: Tensor, share_of_run: float) -> bool:
        """Record whether first digits were correct, (n,) bool. Returns whether the run advances to the next level."""
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
