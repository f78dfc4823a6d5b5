"""Putting a recall back into a network."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rarecall.recall import Recall

# The four weights of trust count so many times: at the learning rate of a network of millions they would hardly move.
TIMES = 10


class RecallEmbedding(nn.Module):
    """The recalled value embedded, times the confidence, so that the network knows how sure its memory is.

    Where memory knew nothing, the result is 0. Gradients flow to the embedding and, through the confidence, to the
    query.

    Args:
        values: how many values there are: 0 to values - 1.
        size: numbers in an embedding.
        embedding: of (values, size), to share its weights with another part of the network; one of its own by default.
        trust: by what to multiply instead of the confidence: from a Recall of (...,) to (...,), such as `Trust`.

    Shape:
        Recall of (...,) -> (..., size)
    """

    def __init__(
        self, values: int, size: int, embedding: nn.Embedding | None = None, trust: nn.Module | None = None
    ) -> None:
        super().__init__()
        if embedding is not None and tuple(embedding.weight.shape) != (values, size):
            raise ValueError(
                f"RecallEmbedding got an embedding of shape {tuple(embedding.weight.shape)}; expected {(values, size)}."
            )
        self.embedding = nn.Embedding(values, size) if embedding is None else embedding
        self.trust = trust

    def forward(self, recall: Recall) -> Tensor:
        if recall.value.numel() and int(recall.value.max()) >= self.embedding.num_embeddings:
            raise ValueError(
                f"RecallEmbedding got the value {int(recall.value.max())}; it has {self.embedding.num_embeddings} "
                "embeddings. Make it with as many values as the memory holds."
            )
        embedded: Tensor = self.embedding(recall.value.clamp(min=0))
        by: Tensor = recall.confidence if self.trust is None else self.trust(recall)
        return embedded * by.unsqueeze(-1).to(embedded.dtype)


class Trust(nn.Module):
    """How far to trust an answer, 0 to 1: a logistic regression of what the memory says of it.

    The confidence alone compares the nearest neighbour with the others, and may be as high where all of them are far.
    So this also looks at how near the nearest is, and at what weight those neighbours have that give the same answer.
    It begins as the confidence itself, and is 0 where memory knew nothing. Gradients flow to its four weights alone, so
    that the query is left to the memory's own loss.

    Shape:
        Recall of (...,) -> (...,)
    """

    def __init__(self) -> None:
        super().__init__()
        self.weigh = nn.Linear(3, 1)
        with torch.no_grad():
            self.weigh.weight.copy_(torch.tensor([[1 / TIMES, 0.0, 0.0]]))
            self.weigh.bias.zero_()

    def forward(self, recall: Recall) -> Tensor:
        known = recall.value >= 0
        weights, similarity = recall.weights.detach(), recall.similarities[..., 0].detach()
        agreement = (weights * (recall.values == recall.value.unsqueeze(-1))).sum(-1)
        # As odds, like what they are weighed to; what is nearer than 0.999 is as near as can be.
        nearness = -torch.log1p(0.001 - similarity.masked_fill(~known, 0.0).clamp(max=1.0))
        told = torch.stack((recall.confidence.detach().logit(1e-3), agreement.logit(1e-3), nearness), -1)
        odds: Tensor = TIMES * self.weigh(told.to(self.weigh.weight.dtype)).squeeze(-1)
        return odds.sigmoid() * known
