"""How far a language model listens to its memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from rarecall.layers import SCALE, Trust
from rarecall.recall import Recall

HIDDEN = 8  # units of the layer that reads the query; 16 gave the same perplexity of held-out debates
# Before it is fitted: log-odds of agreement x 0.5 + nearness x 2 - 10. A context that was taught (similarity 1) is
# trusted at 0.99, one of similarity 0.95 at 0.35, one of 0.9 at 0.12, where all neighbours agree.
AGREEMENT, NEARNESS, BIAS = 0.5, 2.0, -10.0
POWER, OFFSET = 4.0, 0.001  # of the neighbours' weights; also before it is fitted
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
    """A `Trust` that also reads the query, and weighs neighbours by a power of their distance.

    The query tells where in a text the model stands: inside a name, the one sentence that has it is more likely right
    than it is between two phrases (as in adaptive retrieval, He et al. 2021). The weight of a neighbour is
    (1 - similarity + offset) ** -power: a context that was taught word by word outweighs all others, while neighbours
    that are all far count about equally. A softmax of similarities has one temperature for both.

    Beside agreement and nearness it reads how isolated the nearest neighbour is: the logarithm of the neighbours' mean
    distance over the distance of the nearest. After "of the" all neighbours are near, and none of them says much.

    Args:
        key_size: of the memory.
    """

    def __init__(self, key_size: int) -> None:
        super().__init__()
        self.caution = 0.0
        self.weigh = nn.Linear(3, 1)
        self.read, self.judge = nn.Linear(key_size + 3, HIDDEN), nn.Linear(HIDDEN, 1, bias=False)
        self.kernel = nn.Parameter(torch.tensor([POWER, OFFSET]).log())
        with torch.no_grad():
            self.weigh.weight.copy_(torch.tensor([[AGREEMENT, NEARNESS, 0.0]]) / SCALE)
            self.weigh.bias.fill_(BIAS / SCALE)
            self.judge.weight.zero_()

    def weights(self, recall: Recall) -> Tensor:
        power, offset = self.kernel.exp()
        there = recall.values >= 0
        distance = (1 - recall.similarities.masked_fill(~there, 0.0)).clamp(min=0)
        logits = -power * (distance + offset).log()
        return logits.masked_fill(~there, torch.finfo(logits.dtype).min).softmax(-1) * there

    def _told(self, recall: Recall) -> Tensor:
        there = recall.values >= 0
        # OFFSET keeps the logarithm finite where the nearest key equals the query.
        distances = 1 + OFFSET - recall.similarities.detach().masked_fill(~there, 0.0).clamp(max=1.0)
        mean = distances.masked_fill(~there, 0.0).sum(-1) / there.sum(-1).clamp(min=1)
        isolation = (mean.clamp(min=OFFSET) / distances[..., 0]).log()
        return torch.cat((super()._told(recall), isolation.unsqueeze(-1)), -1)

    def _odds(self, recall: Recall) -> Tensor:
        told = self._told(recall)
        # A number of a query of length 1 is of size 1 / sqrt(key_size): the scale brings it near those of `told`.
        scale = 0.5 * recall.query.shape[-1] ** 0.5
        read = self.read(torch.cat((told / 3, scale * recall.query.detach()), -1)).tanh()
        odds: Tensor = (SCALE * self.weigh(told) + self.judge(read)).squeeze(-1)
        return odds

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
