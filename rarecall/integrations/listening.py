"""How far a language model listens to its memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor

from rarecall.layers import SCALE, Trust
from rarecall.recall import Recall

# Before it is fitted: log-odds of agreement x 0.5 + nearness x 2 - 10. A context that was taught (similarity 1) is
# trusted at 0.99, one of similarity 0.95 at 0.35, one of 0.9 at 0.12, where all neighbours agree.
AGREEMENT, NEARNESS, BIAS = 0.5, 2.0, -10.0
AGAIN = 0.02  # weight of questions about what was taught in the fit. At 0.05 unrelated text suffers, with no more names
PRIOR = 20.0  # tokens' worth of penalty on leaving the weights above: a few texts change little


class Asked(NamedTuple):
    """Questions with known answers, of n tokens, with what a trust reads of a recall.

    Attributes:
        says: (n,), the network's log-probability of the right token.
        right: (n,) int64, the right token.
        query: (n, key_size), of length 1.
        similarities: (n, k).
        values: (n, k) int64.
    """

    says: Tensor
    right: Tensor
    query: Tensor
    similarities: Tensor
    values: Tensor

    @property
    def value(self) -> Tensor:
        return self.values[:, 0]

    @staticmethod
    def of(says: Tensor, right: Tensor, recall: Recall) -> Asked:
        """Keep of a recall what the trust is fitted on."""
        return Asked(says, right, recall.query, recall.similarities, recall.values)

    @staticmethod
    def join(parts: Sequence[Asked]) -> Asked:
        """Join questions of the same k."""
        return Asked(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))


class Listening(Trust):
    """A `Trust` that begins with fixed weights, which trust only a taught context, and is fitted on a few texts.

    Args:
        key_size: of the memory.
    """

    def __init__(self, key_size: int) -> None:
        super().__init__(key_size)
        with torch.no_grad():
            self.weigh.weight.copy_(torch.tensor([[AGREEMENT, NEARNESS, 0.0]]) / SCALE)
            self.weigh.bias.fill_(BIAS / SCALE)

    def fit(self, first: Asked, again: Asked, steps: int) -> float:
        """Fit it by the likelihood of the mixture.

        Args:
            first: questions about texts before they were taught.
            again: questions about texts that were taught, with less before them.
            steps: of LBFGS.

        Returns:
            By how much the memory lowers the loss of `first`, in nats a token.
        """

        def loss_of(asked: Asked) -> Tensor:
            return self.loss(asked.says, cast(Recall, asked), asked.right).mean()

        self.requires_grad_(True)
        start = [parameter.detach().clone() for parameter in self.parameters()]
        optimizer = torch.optim.LBFGS(self.parameters(), max_iter=steps, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            optimizer.zero_grad()
            moved = sum((now - then).square().sum() for now, then in zip(self.parameters(), start, strict=True))
            total = (1 - AGAIN) * loss_of(first) + AGAIN * loss_of(again) + PRIOR / len(first.says) * moved
            total.backward()
            return total

        optimizer.step(loss)
        self.requires_grad_(False)
        with torch.no_grad():
            return float(-first.says.mean() - loss_of(first))
