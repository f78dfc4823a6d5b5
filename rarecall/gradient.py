"""Gradients from a recall and its loss back to the queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

if TYPE_CHECKING:
    from rarecall.backend import Backend
    from rarecall.slots import SlotBuffers


class History:
    """The keys that a recall found as they were then, where the memory has changed them since.

    The gradient of a similarity is a key, and an update usually comes before `backward`; a copy of all keys found would
    be (n, k, key_size).
    """

    def __init__(self, memory: SlotBuffers, found: Any) -> None:
        self.memory, self.found = memory, found
        self.keys = memory.keys
        self.slots: Tensor | None = found.slots  # whose keys are kept; None: those of all slots
        self._slots, self._before = found.slots.new_empty(0), self.keys.new_empty(0, self.keys.shape[1])
        self._changes: list[tuple[Tensor, Tensor]] = []

    def follow(self, memory: SlotBuffers, slots: Tensor, before: Tensor) -> None:
        """Keep the keys that slots ((m,) int64, ascending) had before they changed, (m, key_size)."""
        self._changes.append((slots, before))
        if sum(len(slots) for slots, _ in self._changes) > max(self.found.slots.numel(), 1024):
            self.changed()  # a recall that is kept for long must not keep all that ever changed

    def changed(self) -> tuple[Tensor, Tensor]:
        """Return the slots found that have changed since, ascending, and the keys that they had."""
        if len(self._changes) == 1 and not len(self._slots):
            [(self._slots, self._before)] = self._changes  # one update, then the gradient: as it nearly always is
        elif self._changes:
            slots = torch.cat([self._slots, *(slots for slots, _ in self._changes)])
            before = torch.cat([self._before, *(keys for _, keys in self._changes)])
            slots, order = slots.sort(stable=True)
            kept = torch.ones_like(slots, dtype=torch.bool) if self.slots is None else torch.isin(slots, self.slots)
            kept[1:] &= slots[1:] != slots[:-1]
            self._slots, self._before = slots[kept], before[order[kept]]
        self._changes = []
        return self._slots, self._before


class Neighbours(torch.autograd.Function):
    """The normalised queries, similarities and weights of a recall, with a gradient to the queries."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, backend: Backend, history: History) -> tuple[Tensor, Tensor, Tensor]:
        """query: (n, key_size) -> the same of length 1; similarities and weights, (n, k)."""
        ctx.backend, ctx.history = backend, history
        ctx.set_materialize_grads(False)
        found = history.found
        return found.query.clone(), found.similarities.clone(), found.weights.clone()

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, of_units: Tensor | None, of_similarities: Tensor | None, of_weights: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """Return the gradient of the queries, (n, key_size)."""
        history, of = ctx.history, (of_units, of_similarities, of_weights)
        with history.memory.lock.shared():
            return ctx.backend.recall_gradient(history.found, history.keys, history.changed(), of), None, None


class MarginLoss(torch.autograd.Function):
    """The margin loss of a recall, with its gradient, which is computed along with it."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, backend: Backend, found: Any, target: Tensor, mask: Tensor | None) -> Tensor:
        """query: (n, key_size), for the gradient alone; returns the loss, a scalar."""
        loss, gradient = backend.loss(found, target, mask, True)
        ctx.save_for_backward(gradient)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_loss: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradient of the queries, (n, key_size)."""
        [gradient] = ctx.saved_tensors
        return gradient * of_loss, None, None, None, None
