"""Putting a recall back into a network."""

from __future__ import annotations

from torch import Tensor, nn

from rarecall.recall import Recall


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
