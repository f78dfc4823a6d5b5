"""The rules of `rules`, of float32 on the CPU, by the C++ extension: a few calls a step.

At small batches a call of torch costs more than the work of a whole step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rarecall.checks import check_room
from rarecall.native import clock_of, known_slots_of, loaded
from rarecall.newest import chained

if TYPE_CHECKING:
    from rarecall._native import Found
    from rarecall.memory import Memory
    from rarecall.recall import Rows


def recall(found: Found, slots: Tensor, memory: Memory) -> None:
    """Scores, sorts and weighs the slots that a search found for the queries of `found`; see `rules.recall`."""
    loaded().recall(
        *(known_slots_of(memory), found, slots.shape[1], slots.contiguous()),
        *(memory.inverse_temperature, torch.get_num_threads()),
    )


def margin_loss(recall: Found | Rows, target: Tensor, mask: Tensor | None, memory: Memory) -> Tensor:
    """See `rules.margin_loss`."""
    if isinstance(recall, tuple):
        query, slots, similarities, values, exclude = recall
        if (similarities.requires_grad or query.requires_grad) and torch.is_grad_enabled():
            with_gradient: Tensor = MarginLoss.apply(query, slots, similarities, values, exclude, target, mask, memory)
            return with_gradient
    mean, _, _ = _margin_loss(recall, target, mask, memory)
    return mean


class MarginLoss(torch.autograd.Function):
    """`margin_loss` with its gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        slots: Tensor,
        similarities: Tensor,
        values: Tensor,
        exclude: Tensor | None,
        target: Tensor,
        mask: Tensor | None,
        memory: Memory,
    ) -> Tensor:
        """The loss, a scalar."""
        (n, k), key_size = similarities.shape, memory.key_size
        kept = torch.empty(n, 2, dtype=torch.int64), torch.empty(n), torch.empty(n, key_size)
        rows = query, slots, similarities, values, exclude
        mean, ctx.count, ctx.newest = _margin_loss(rows, target, mask, memory, kept)
        ctx.save_for_backward(*kept)
        ctx.shape = n, k, key_size
        return mean

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_loss: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of the query, (n, key_size), and of the similarities, (n, k)."""
        n, k, key_size = ctx.shape
        similarities = torch.zeros(n, k)
        query = torch.zeros(n, key_size) if ctx.newest else None
        loaded().margin_gradient(k, key_size, *ctx.saved_tensors, float(of_loss) / ctx.count, similarities, query)
        return query, None, similarities, None, None, None, None, None


def _margin_loss(
    recall: Found | Rows,
    target: Tensor,
    mask: Tensor | None,
    memory: Memory,
    kept: tuple[Tensor | None, Tensor | None, Tensor | None] = (None, None, None),
) -> tuple[Tensor, int, int]:
    """The mean of the losses, of how many queries (but at least 1), and how many of these have no right neighbour.

    Args:
        kept: where to keep what the gradient needs, the fields of Kept in native/margin.h.
    """
    columns, slopes, positives = kept
    mean, count, newest = loaded().margin_loss(
        known_slots_of(memory),
        memory.k,
        _contiguous_rows(recall),
        target.contiguous(),
        None if mask is None else mask.contiguous(),
        memory.margin,
        columns,
        slopes,
        positives,
    )
    if newest < 0:  # a query has no right neighbour, and there are no chains yet
        chained(memory)
        return _margin_loss(recall, target, mask, memory, kept)
    return mean, max(count, 1), newest


def update(
    memory: Memory, recall: Found | Rows, target: Tensor, source: Tensor | None, generator: torch.Generator | None
) -> Tensor:
    """Confirms and writes; returns the slots touched, ascending, int64; see `rules.update`."""
    clock = clock_of(memory)
    touched = torch.empty_like(target)
    before = torch.empty(len(touched), memory.key_size) if memory.histories.open else None
    zeros, missed, count, logged = loaded().update(
        known_slots_of(memory),
        clock.fields,
        memory.k,
        _contiguous_rows(recall),
        target.contiguous(),
        None if source is None else source.contiguous(),
        memory.age_noise,
        generator,
        touched,
        before,
    )
    check_room(missed, memory.capacity, zeros)
    if not logged:
        clock.rebuild()
    touched = touched[:count]
    if before is not None:
        memory.histories.add(touched, before[:count])
    return touched


def _contiguous_rows(recall: Found | Rows) -> Found | Rows:
    if not isinstance(recall, tuple):
        return recall
    query, slots, similarities, values, exclude = recall
    return (
        *(query.contiguous(), slots.contiguous(), similarities.contiguous(), values.contiguous()),
        None if exclude is None else exclude.contiguous(),
    )
