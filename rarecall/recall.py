"""What queries found in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rarecall.compiling import run_eagerly
from rarecall.gradient import History, Neighbours

if TYPE_CHECKING:
    from rarecall.backend import Backend
    from rarecall.memory import Memory


_FIELDS = ("query", "slots", "similarities", "values", "weights")
_DIFFERENTIABLE = ("query", "similarities", "weights")


@dataclass(init=False, eq=False, repr=False)
class Recall:
    """The k neighbours of each query, nearest first, as the memory stood when it was asked.

    Where fewer than k slots were found, the rest has slot -1, value -1, similarity -inf and weight 0. Its tensors are
    copies of what was found; `Memory.loss` and `Memory.update` refuse a recall whose tensors were edited.

    Attributes:
        shape: of the queries, (..., key_size).
        exclude: (...,) int64, the source each query was not to be answered from (-1: none), or None.
    """

    # The one field of the dataclass: FSDP looks for tensors in a network's output to know when backward begins, and all
    # gradients of a recall flow through the queries.
    asked: Tensor

    __slots__ = ("_made", "asked", "backend", "exclude", "found", "history", "memory", "shape", "version")

    def __init__(
        self,
        memory: Memory,
        version: int,
        backend: Backend,
        found: Any,
        asked: Tensor,
        shape: torch.Size,
        exclude: Tensor | None,
        history: History | None,
    ) -> None:
        """Take what the backend found for n queries.

        Args:
            version: of the memory when it was asked; `loss` and `update` refuse any other recall.
            asked: (n, key_size), the queries as they came; gradients flow to them.
            history: of the keys found, where a gradient may be asked for.
        """
        self.memory, self.version, self.backend, self.found = memory, version, backend, found
        self.asked, self.shape, self.exclude, self.history = asked, shape, exclude, history
        self._made: dict[str, Tensor] = {}

    @property
    def query(self) -> Tensor:
        """(..., key_size): the queries made of length 1; gradients flow through them."""
        return self._tensor("query")

    @property
    def slots(self) -> Tensor:
        """(..., k) int64: the neighbours."""
        return self._tensor("slots")

    @property
    def similarities(self) -> Tensor:
        """(..., k): cosine similarities, decreasing; gradients flow through them."""
        return self._tensor("similarities")

    @property
    def values(self) -> Tensor:
        """(..., k) int64: the neighbours' values."""
        return self._tensor("values")

    @property
    def weights(self) -> Tensor:
        """(..., k): softmax of inverse temperature x similarities; gradients flow through them."""
        return self._tensor("weights")

    @property
    def value(self) -> Tensor:
        """(...,) int64: the answer, the nearest neighbour's value; -1 means "I don't know"."""
        return self.values[..., 0]

    @property
    def confidence(self) -> Tensor:
        """(...,): the nearest neighbour's weight; 0 where there was no neighbour."""
        return self.weights[..., 0]

    @property
    def edited(self) -> bool:
        """Whether one of its tensors was written to."""
        return any(not tensor.is_inference() and tensor._version for tensor in self._made.values())

    def _tensor(self, name: str) -> Tensor:
        tensor = self._made.get(name)
        if tensor is not None:
            return tensor
        if torch.compiler.is_compiling():
            made: Tensor = run_eagerly(Recall._tensor, self, name)
            return made
        if self.history is not None and name in _DIFFERENTIABLE:
            with torch.enable_grad():  # as it was when the memory was asked
                tensors = Neighbours.apply(self.asked, self.backend, self.history)
                self._made |= zip(_DIFFERENTIABLE, map(self._shaped, tensors), strict=True)
        else:
            self._made[name] = self._shaped(getattr(self.found, name).clone())
        return self._made[name]

    def _shaped(self, tensor: Tensor) -> Tensor:
        return tensor if len(self.shape) == 2 else tensor.view(*self.shape[:-1], tensor.shape[-1])

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in (*_FIELDS, "exclude"))
        return f"Recall({fields})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Copies and pickles have the same tensors, without gradient, of a copy of the memory.
        tensors = {name: getattr(self.found, name) for name in (*_FIELDS, "inverse_lengths")}
        up_to_date = self.version == self.memory.version and not self.edited
        return _restored, (self.memory, tensors, self.shape, self.exclude, up_to_date)

    @staticmethod
    def stack(recalls: Sequence[Recall], dim: int = 1) -> Recall:
        """Join the recalls of a decoder's steps into one, for one loss and one update.

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
            together = recall.memory is first.memory and recall.version == first.version
            if not together or recall.shape != first.shape or (recall.exclude is None) != (first.exclude is None):
                raise ValueError(
                    f"Recall.stack got recalls that differ: recall 0 has shape {tuple(first.shape[:-1])}, recall "
                    f"{step} has {tuple(recall.shape[:-1])}; expected one shape, one memory that was not updated in "
                    "between, and `exclude` in all or in none."
                )
        dim, outer = dim % (leading + 1), first.shape[:-1]

        def stacked(rows: list[Tensor]) -> Tensor:
            """n rows of each recall -> the rows of all."""
            joined = torch.stack([tensor.view(*outer, *tensor.shape[1:]) for tensor in rows], dim)
            return joined.flatten(0, leading) if leading else joined

        rows = getattr(first.backend, "rows", (*_FIELDS, "inverse_lengths"))  # of replicas, the time of asking too
        tensors = {name: stacked([getattr(recall.found, name) for recall in recalls]) for name in rows}
        asked = stacked([recall.asked for recall in recalls])
        shape = torch.Size([*outer[:dim], len(recalls), *outer[dim:], first.shape[-1]])
        excluded = [recall.exclude for recall in recalls if recall.exclude is not None]
        exclude = torch.stack(excluded, dim) if excluded else None
        found = first.backend.found(tensors, None if exclude is None else exclude.reshape(-1))
        with_gradient = any(recall.history is not None for recall in recalls)
        history = first.memory.begin_history(found) if with_gradient else None
        return Recall(first.memory, first.version, first.backend, found, asked, shape, exclude, history)


def _restored(
    memory: Memory, tensors: dict[str, Tensor], shape: torch.Size, exclude: Tensor | None, up_to_date: bool
) -> Recall:
    backend = memory.backend
    found = backend.found(tensors, None if exclude is None else exclude.reshape(-1))
    version = memory.version if up_to_date else -1
    return Recall(memory, version, backend, found, tensors["query"], shape, exclude, None)
