"""Putting a recall back into a network."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rarecall.recall import Recall

# The three weights of trust count so many times: at the learning rate of a network of millions they would hardly move.
TIMES = 10
# From the odds that make the right values likeliest, so much is taken: what is best after values that are all right is
# too much after those that a search has found by itself. An answer that is all but certain is hardly touched by it.
CAUTION = 1.0


class RecallEmbedding(nn.Module):
    """The recalled value embedded, times the confidence, so that the network knows how sure its memory is.

    Where memory knew nothing, the result is 0. Gradients flow to the embedding and, through the confidence, to the
    query.

    Args:
        values: how many values there are: 0 to values - 1.
        size: numbers in an embedding.
        embedding: of (values, size), to share its weights with another part of the network; one of its own by default.

    Shape:
        Recall of (...,) -> (..., size)
    """

    def __init__(self, values: int, size: int, embedding: nn.Embedding | None = None) -> None:
        super().__init__()
        if embedding is not None and tuple(embedding.weight.shape) != (values, size):
            raise ValueError(
                f"RecallEmbedding got an embedding of shape {tuple(embedding.weight.shape)}; expected {(values, size)}."
            )
        self.embedding = nn.Embedding(values, size) if embedding is None else embedding

    def forward(self, recall: Recall) -> Tensor:
        if recall.value.numel() and int(recall.value.max()) >= self.embedding.num_embeddings:
            raise ValueError(
                f"RecallEmbedding got the value {int(recall.value.max())}; it has {self.embedding.num_embeddings} "
                "embeddings. Make it with as many values as the memory holds."
            )
        embedded: Tensor = self.embedding(recall.value.clamp(min=0))
        return embedded * recall.confidence.unsqueeze(-1).to(embedded.dtype)


class Trust(nn.Module):
    """How far to trust a memory, and what it and the network then say together.

    The memory gives each value the weight of the neighbours that hold it, and the two are mixed, after Khandelwal et
    al. (2020): p = (1 - trust) p_network + trust p_memory. So what the network takes for all but impossible can still
    be said, where the memory is sure of it. Trust is a logistic regression of what the memory tells: how near the
    nearest key is, and what weight those neighbours have that give the same answer. It is 0 where memory knew nothing.
    It is learned by the likelihood of what is right, and given with some caution. By the same loss the query learns to
    ask for what is right, there most where the network does not know it.

    Attributes:
        caution: what is taken from the odds that were learned; the greater, the more the memory must be sure.

    Shape:
        Recall of (...,) -> (...,)

    Example:
        >>> from rarecall import Memory
        >>> trust, memory = Trust(), Memory(key_size=8, capacity=100)
        >>> query, logits, right = torch.randn(4, 8), torch.randn(4, 10), torch.randint(10, (4,))
        >>> recall = memory(query)
        >>> says = logits.log_softmax(-1)[torch.arange(4), right]
        >>> trust.loss(says, recall, right).shape, trust.mix(logits, recall).shape
        (torch.Size([4]), torch.Size([4, 10]))
    """

    def __init__(self) -> None:
        super().__init__()
        self.caution = CAUTION
        self.weigh = nn.Linear(2, 1)
        with torch.no_grad():
            self.weigh.weight.zero_()
            self.weigh.bias.fill_(-2.0 / TIMES)

    def forward(self, recall: Recall) -> Tensor:
        return (self._odds(recall) - self.caution).sigmoid() * (recall.value >= 0)

    def _odds(self, recall: Recall) -> Tensor:
        known = recall.value >= 0
        agreement = self.memory_says(recall, recall.value).detach()
        # Both as odds, like what they are weighed to; what is nearer than 0.999 is as near as can be.
        similarity = recall.similarities[..., 0].detach().masked_fill(~known, 0.0)
        nearness = -torch.log1p(0.001 - similarity.clamp(max=1.0))
        told = torch.stack((agreement.logit(1e-3), nearness), -1)
        odds: Tensor = TIMES * self.weigh(told.to(self.weigh.weight.dtype)).squeeze(-1)
        return odds

    def memory_says(self, recall: Recall, value: Tensor) -> Tensor:
        """(...,): what the memory makes of a value, (...,) int64: the weight of the neighbours that hold it."""
        return (recall.weights * (recall.values == value.unsqueeze(-1))).sum(-1)

    def mix(self, logits: Tensor, recall: Recall) -> Tensor:
        """(..., values): the logarithm of what both say of each value, from the network's logits of all values."""
        trust = self(recall).unsqueeze(-1)
        mixed = (1 - trust) * logits.softmax(-1)
        mixed = mixed.scatter_add(-1, recall.values.clamp(min=0), trust * recall.weights.to(mixed.dtype))
        return mixed.clamp(min=torch.finfo(mixed.dtype).tiny).log()

    def loss(self, says: Tensor, recall: Recall, right: Tensor) -> Tensor:
        """(...,): minus the logarithm of what both say of the right value: what trust is learned by.

        Args:
            says: (...,), the logarithm of what the network says of it; it has no gradient from here.
            recall: of (...,).
            right: (...,) int64, the right value.
        """
        trust = self._odds(recall).sigmoid() * (recall.value >= 0)
        mixed = (1 - trust) * says.detach().exp() + trust * self.memory_says(recall, right)
        return -mixed.clamp(min=torch.finfo(mixed.dtype).tiny).log()
