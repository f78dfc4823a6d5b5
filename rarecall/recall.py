"""What a query found in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from rarecall.compiling import apart

if TYPE_CHECKING:
    from rarecall._native import Found
    from rarecall.memory import Memory

# Query, slots, similarities and values, one row a query; and exclude, one number a query, or None.
Rows: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]


class Recall:
    """The k neighbours of each query, nearest first, as the memory stood when it was asked.

    Where fewer than k slots were found, the rest has slot -1, value -1, similarity -inf and weight 0.

    Attributes:
        exclude: (...,) int64, the source each query was not to be answered from (-1: none), or None.
    """

    # What the extension found without a gradient is one object, and its tensors are made when they are first asked for:
    # a loss and an update need none, and to make them would take longer than both.
    __slots__ = ("exclude", "found", "memory", "shape", "tensors", "version")

    def __init__(
        self,
        found: Found | tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
        shape: torch.Size,
        exclude: Tensor | None,
        memory: Memory,
        version: int,
    ) -> None:
        """Takes what was found: its tensors, query to weights, or what the extension makes them of.

        Args:
            shape: the query's.
            memory: which was asked, and
            version: at which of its versions: `loss` and `update` refuse any other recall.
        """
        self.found: Found | None
        self.tensors: dict[str, Tensor]
        if isinstance(found, tuple):
            self.found, self.tensors = None, dict(zip(_TENSORS, found, strict=True))
        else:
            self.found, self.tensors = found, {}
        self.shape, self.exclude, self.memory, self.version = shape, exclude, memory, version

    @property
    def query(self) -> Tensor:
        """(..., key_size): the normalised queries; gradients flow through them."""
        return self._tensor("query")

    @property
    def slots(self) -> Tensor:
        """(..., k) int64: the neighbours."""
        return self._tensor("slots")

    @property
    def similarities(self) -> Tensor:
        """(..., k): cosine similarities, decreasing."""
        return self._tensor("similarities")

    @property
    def values(self) -> Tensor:
        """(..., k) int64: the neighbours' values."""
        return self._tensor("values")

    @property
    def weights(self) -> Tensor:
        """(..., k): softmax of inverse temperature x similarities."""
        return self._tensor("weights")

    def _tensor(self, name: str) -> Tensor:
        tensor = self.tensors.get(name)
        if tensor is None:
            if torch.compiler.is_compiling():
                made: Tensor = apart(Recall._tensor, self, name)
                return made
            tensor = getattr(self.found, name)
            if len(self.shape) != 2:
                tensor = tensor.view(*self.shape[:-1], tensor.shape[-1])
            self.tensors[name] = tensor
        return tensor

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in (*_TENSORS, "exclude"))
        return f"Recall({fields})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Copies and pickles are of the tensors.
        tensors = tuple(getattr(self, name) for name in _TENSORS)
        return Recall, (tensors, self.shape, self.exclude, self.memory, self.version)

    def rows(self) -> Rows:
        """Its tensors, with one row a query, whatever its shape."""
        query, slots, similarities, values = self.query, self.slots, self.similarities, self.values
        if len(self.shape) == 2:
            return query, slots, similarities, values, self.exclude
        query, slots, similarities, values = (
            tensor.reshape(-1, tensor.shape[-1]) for tensor in (query, slots, similarities, values)
        )
        return query, slots, similarities, values, None if self.exclude is None else self.exclude.reshape(-1)

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
        leading = len(first.shape) - 1
        if not -leading - 1 <= dim <= leading:
            raise ValueError(
                f"Recall.stack got dim={dim}; recalls of shape {tuple(first.shape[:-1])} stack along "
                f"{-leading - 1}..{leading}."
            )
        for step, recall in enumerate(recalls):
            if recall.memory is not first.memory or recall.version != first.version:
                raise ValueError(
                    f"Recall.stack got recalls of different memories or times: recall {step} does not belong with "
                    "recall 0. Ask one memory for all of them, and update it only after they are stacked."
                )
            if recall.shape != first.shape or (recall.exclude is None) != (first.exclude is None):
                raise ValueError(
                    f"Recall.stack got recalls that differ: recall 0 has shape {tuple(first.shape[:-1])}, recall "
                    f"{step} has {tuple(recall.shape[:-1])}; expected one shape, and `exclude` in all or in none."
                )
        # The last dimension of the fields is k or key_size: a negative dim must not count it.
        dim = dim if dim >= 0 else dim + leading + 1
        query, slots, similarities, values, weights = (
            torch.stack([getattr(recall, name) for recall in recalls], dim) for name in _TENSORS
        )
        exclude = [recall.exclude for recall in recalls if recall.exclude is not None]
        return Recall(
            (query, slots, similarities, values, weights),
            query.shape,
            torch.stack(exclude, dim) if exclude else None,
            first.memory,
            first.version,
        )


_TENSORS = ("query", "slots", "similarities", "values", "weights")
