"""What a query found in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from rarecall.memory import Memory


@dataclass(eq=False, slots=True)
class Recall:
    """The k neighbours of each query, nearest first, as the memory stood when it was asked.

    Where fewer than k slots were found, the rest has slot -1, value -1, similarity -inf and weight 0.

    Attributes:
        query: (..., key_size) the normalised queries; gradients flow through them.
        slots: (..., k) int64, the neighbours.
        similarities: (..., k) cosine similarities, decreasing.
        values: (..., k) int64, the neighbours' values.
        weights: (..., k) softmax of inverse temperature x similarities.
        exclude: (...,) int64, the source each query was not to be answered from (-1: none), or None.
    """

    query: Tensor
    slots: Tensor
    similarities: Tensor
    values: Tensor
    weights: Tensor
    exclude: Tensor | None
    # Which memory was asked, and at which of its versions: `loss` and `update` refuse any other recall.
    memory: Memory = field(repr=False)
    version: int = field(repr=False)

    @property
    def value(self) -> Tensor:
        """(...,) int64: the answer, the nearest neighbour's value; -1 means "I don't know"."""
        return self.values[..., 0]

    @property
    def confidence(self) -> Tensor:
        """(...,): the nearest neighbour's weight; 0 where there was no neighbour."""
        return self.weights[..., 0]

    @staticmethod
    def stack(recalls: Sequence[Recall], dim: int = 1) -> Recall:
        """Joins the recalls of a decoder's steps into one, for one loss and one update.

        >>> steps = [memory(query) for query in queries]            # doctest: +SKIP
        >>> Recall.stack(steps, dim=1).value.shape                  # doctest: +SKIP
        (batch, time)                                               # from `time` recalls of (batch,)
        """
        if not recalls:
            raise ValueError("Recall.stack got no recalls; expected at least one.")
        first = recalls[0]
        leading = first.slots.dim() - 1
        if not -leading - 1 <= dim <= leading:
            raise ValueError(
                f"Recall.stack got dim={dim}; recalls of shape {tuple(first.value.shape)} stack along "
                f"{-leading - 1}..{leading}."
            )
        for step, recall in enumerate(recalls):
            if recall.memory is not first.memory or recall.version != first.version:
                raise ValueError(
                    f"Recall.stack got recalls of different memories or times: recall {step} does not belong with "
                    "recall 0. Ask one memory for all of them, and update it only after they are stacked."
                )
            if recall.slots.shape != first.slots.shape or (recall.exclude is None) != (first.exclude is None):
                raise ValueError(
                    f"Recall.stack got recalls that differ: recall 0 has shape {tuple(first.value.shape)}, recall "
                    f"{step} has {tuple(recall.value.shape)}; expected one shape, and `exclude` in all or in none."
                )
        # The last dimension of the fields is k or key_size: a negative dim must not count it.
        dim = dim if dim >= 0 else dim + leading + 1
        return Recall(
            query=torch.stack([recall.query for recall in recalls], dim),
            slots=torch.stack([recall.slots for recall in recalls], dim),
            similarities=torch.stack([recall.similarities for recall in recalls], dim),
            values=torch.stack([recall.values for recall in recalls], dim),
            weights=torch.stack([recall.weights for recall in recalls], dim),
            exclude=None
            if first.exclude is None
            else torch.stack([recall.exclude for recall in recalls if recall.exclude is not None], dim),
            memory=first.memory,
            version=first.version,
        )
