"""Putting a recall back into a network."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from rarecall.recall import Recall

# The weights of Trust's linear part are multiplied by this: at the learning rate of a large network they would hardly
# move.
SCALE = 10
HIDDEN = 8  # units of the layer of Trust that reads the query; 16 gave the same perplexity of held-out debates
# Before training, Trust weighs a neighbour by (1 - similarity + OFFSET) ** -POWER.
POWER, OFFSET = 4.0, 0.001
# Log-odds that are subtracted from the learned trust at inference. Chosen for a translator on newstest2013, from 0, 0.5
# and 1.
CAUTION = 0.5


class RecallEmbedding(nn.Module):
    """Embeds the recalled value and multiplies by the confidence; where memory knew nothing, the result is 0.

    Gradients flow to the embedding and, through the confidence, to the query.

    Args:
        values: number of values: 0 to values - 1.
        size: the embedding dimension.
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
        embedded = _embed(self, recall.value)
        return embedded * recall.confidence.unsqueeze(-1).to(embedded.dtype)


class Trust(nn.Module):
    """Mixes the predictions of a memory and of a network: p = (1 - trust) p_network + trust p_memory.

    As in the kNN language model (Khandelwal et al. 2020), the memory gives each value the weight of the neighbours that
    hold it. Two things differ:

    - The weight of a neighbour is (1 - similarity + offset) ** -power, where offset and power are learned: a context
      that was taught outweighs all others, while neighbours that are all far count about equally. A softmax of
      similarities has one temperature for both.
    - The mixing weight is not constant. It is learned from how near the nearest key is, how many neighbours agree with
      it, how isolated it is among them (after "of the" all neighbours are near, and none of them says much), and, with
      a `key_size`, from the query, which tells where in a text the network stands: inside a name, the one sentence that
      has it is more likely right than between two phrases (as in adaptive retrieval, He et al. 2021). It is 0 where
      memory knew nothing.

    It is trained on the likelihood of the correct value. The same loss trains the query.

    Args:
        key_size: of the memory; 0: the query is not read.

    Attributes:
        caution: log-odds subtracted at inference; the larger, the surer the memory must be.

    Shape:
        Recall of (...,) -> (...,)

    Example:
        >>> from rarecall import Memory
        >>> trust, memory = Trust(key_size=8), Memory(key_size=8, capacity=100)
        >>> query, logits, right = torch.randn(4, 8), torch.randn(4, 10), torch.randint(10, (4,))
        >>> recall = memory(query)
        >>> says = logits.log_softmax(-1)[torch.arange(4), right]
        >>> trust.loss(says, recall, right).shape, trust.mix(logits, recall).shape
        (torch.Size([4]), torch.Size([4, 10]))
    """

    def __init__(self, key_size: int = 0) -> None:
        super().__init__()
        self.key_size, self.caution = key_size, CAUTION
        self.weigh = nn.Linear(3, 1)
        self.read, self.judge = nn.Linear(key_size + 3, HIDDEN), nn.Linear(HIDDEN, 1, bias=False)
        self.kernel = nn.Parameter(torch.tensor([POWER, OFFSET]).log())
        with torch.no_grad():
            self.weigh.weight.zero_()
            self.weigh.bias.fill_(-2.0 / SCALE)
            self.judge.weight.zero_()

    def forward(self, recall: Recall) -> Tensor:
        return (self._odds(recall) - self.caution).sigmoid() * (recall.value >= 0)

    def _odds(self, recall: Recall) -> Tensor:
        told = self._told(recall)
        read = told / 3
        if self.key_size:
            # The components of a query of length 1 are of size 1 / sqrt(key_size); the factor brings them near `told`.
            read = torch.cat((read, 0.5 * self.key_size**0.5 * recall.query.detach().to(told.dtype)), -1)
        odds: Tensor = (SCALE * self.weigh(told) + self.judge(self.read(read).tanh())).squeeze(-1)
        return odds

    def _told(self, recall: Recall) -> Tensor:
        """Return how far the neighbours agree, how near the nearest is, and how isolated it is, (..., 3)."""
        there = recall.values >= 0
        agreement = self.memory_prob(recall, recall.value).detach()
        # OFFSET keeps the logarithms finite where the nearest key equals the query.
        distances = 1 + OFFSET - recall.similarities.detach().masked_fill(~there, 0.0).clamp(max=1.0)
        mean = distances.masked_fill(~there, 0.0).sum(-1) / there.sum(-1).clamp(min=1)
        isolation = (mean.clamp(min=OFFSET) / distances[..., 0]).log()
        # Agreement is a log-odds, like the output.
        told = torch.stack((agreement.logit(1e-3), -distances[..., 0].log(), isolation), -1)
        return told.to(self.weigh.weight.dtype)

    def weights(self, recall: Recall) -> Tensor:
        """Return the weights of the neighbours, (..., k), which add up to 1, or to 0 where memory knew nothing."""
        power, offset = self.kernel.exp()
        there = recall.values >= 0
        distance = (1 - recall.similarities.masked_fill(~there, 0.0)).clamp(min=0)
        logits = -power * (distance + offset).log()
        return logits.masked_fill(~there, torch.finfo(logits.dtype).min).softmax(-1) * there

    def memory_prob(self, recall: Recall, value: Tensor) -> Tensor:
        """Return the memory's probability of a value, (...,) int64: the weight of the neighbours that hold it."""
        return (self.weights(recall) * (recall.values == value.unsqueeze(-1))).sum(-1)

    def mix(self, logits: Tensor, recall: Recall) -> Tensor:
        """Return the log-probabilities of the mixture, (..., values), from the network's logits, (..., values)."""
        trust = self(recall).unsqueeze(-1)
        mixed = (1 - trust) * logits.softmax(-1)
        mixed = mixed.scatter_add(-1, recall.values.clamp(min=0), trust * self.weights(recall).to(mixed.dtype))
        return mixed.clamp(min=torch.finfo(mixed.dtype).tiny).log()

    def loss(self, says: Tensor, recall: Recall, right: Tensor) -> Tensor:
        """Return the negative log-likelihood of the right values under the mixture, (...,).

        Args:
            says: (...,), the network's log-probability of them; it gets no gradient from here.
            recall: of (...,).
            right: (...,) int64.
        """
        trust = self._odds(recall).sigmoid() * (recall.value >= 0)
        mixed = (1 - trust) * says.detach().exp() + trust * self.memory_prob(recall, right)
        return -mixed.clamp(min=torch.finfo(mixed.dtype).tiny).log()


class NeighbourAttention(nn.Module):
    """Lets a network attend to the m nearest slots: their keys, the embeddings of their values, and their weights.

    The query attends to a sequence of neighbours, each its key and its embedded value. The logarithm of a neighbour's
    weight is added to the attention, so that the network begins with what the memory says and learns when to read
    differently. Where memory knew nothing, the result is 0. Gradients flow to the layer and to the query.

    Args:
        key_size: of the memory.
        values: number of values: 0 to values - 1.
        size: of the result; divisible by `heads`.
        neighbours: m, at most the memory's k.
        heads: of the attention.

    Shape:
        Recall of (..., key_size) -> (..., size)

    Example:
        >>> from rarecall import Memory
        >>> memory, attend = Memory(key_size=8, capacity=100), NeighbourAttention(8, values=10, size=16, neighbours=4)
        >>> memory.write(torch.randn(50, 8), torch.randint(10, (50,)))
        >>> attend(memory(torch.randn(2, 3, 8))).shape
        torch.Size([2, 3, 16])
    """

    def __init__(self, key_size: int, values: int, size: int, *, neighbours: int = 16, heads: int = 4) -> None:
        super().__init__()
        if size % heads or neighbours < 1:
            raise ValueError(
                f"NeighbourAttention got size={size}, heads={heads}, neighbours={neighbours}; expected a size that "
                "heads divide, and 1 neighbour or more."
            )
        self.neighbours, self.heads = neighbours, heads
        self.embedding = nn.Embedding(values, size)
        self.of_query, self.of_key = nn.Linear(key_size, size), nn.Linear(key_size, size)
        self.result = nn.Linear(size, size)

    def forward(self, recall: Recall) -> Tensor:
        slots, values = recall.slots[..., : self.neighbours], recall.values[..., : self.neighbours]
        embedded = _embed(self, values)
        if recall.version != recall.memory.version:
            raise ValueError("This recall is out of date: its slots may hold other keys by now. Attend before update.")
        there, dtype = slots >= 0, self.result.weight.dtype
        keys = self.of_key(recall.memory.keys[slots.clamp(min=0)].to(dtype))
        query = self.of_query(recall.query.to(dtype)).unsqueeze(-2)

        def heads(x: Tensor) -> Tensor:  # (..., n, size) -> (..., heads, n, size / heads)
            return x.unflatten(-1, (self.heads, -1)).transpose(-2, -3)

        weights = recall.weights[..., : self.neighbours].to(dtype)
        bias = weights.clamp(min=1e-9).log().masked_fill(~there, torch.finfo(dtype).min)[..., None, None, :]
        read = functional.scaled_dot_product_attention(heads(query), heads(keys + embedded), heads(embedded), bias)
        result: Tensor = self.result(read.transpose(-2, -3).flatten(-2).squeeze(-2))
        return result * there.any(-1, keepdim=True)


def _embed(layer: RecallEmbedding | NeighbourAttention, values: Tensor) -> Tensor:
    """(...,) int64 -> (..., size); where there is no value, the embedding of 0."""
    embedding = layer.embedding
    if values.numel() and int(values.max()) >= embedding.num_embeddings:
        raise ValueError(
            f"{type(layer).__name__} got the value {int(values.max())}; it has {embedding.num_embeddings} embeddings. "
            "Make it with as many values as the memory holds."
        )
    embedded: Tensor = embedding(values.clamp(min=0))
    return embedded
