"""The rules of `rules`, of float32 on the CPU, by the C++ extension: a few calls a step.

At small batches a call of torch costs more than the work of a whole step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rarecall.checks import check_finite, check_room
from rarecall.native import clock_of, fields_of, loaded, slots_of, tensors_of

if TYPE_CHECKING:
    from rarecall.memory import Memory


def normalise(vectors: Tensor, with_lengths: bool = True) -> tuple[Tensor, Tensor | None]:
    """(n, d) -> (n, d) of length 1, and by what each was multiplied, (n,), if wanted; see `rules.normalise`."""
    n, size = vectors.shape
    units = torch.empty(n, size)
    inverse_lengths = torch.empty(n) if with_lengths else None
    check_finite(loaded().normalise(size, vectors.contiguous(), units, inverse_lengths))
    return units, inverse_lengths


def recall(units: Tensor, found: Tensor, exclude: Tensor | None, memory: Memory) -> tuple[Tensor, ...]:
    """Scores, sorts and weighs what a search found; see `rules.recall`."""
    (n, m), k = found.shape, memory.k
    slots, values = torch.empty(n, k, dtype=torch.int64), torch.empty(n, k, dtype=torch.int64)
    similarities, weights = torch.empty(n, k), torch.empty(n, k)
    loaded().recall(
        fields_of(memory),
        k,
        units,
        m,
        found.contiguous(),
        _contiguous(exclude),
        memory.inverse_temperature,
        torch.get_num_threads(),
        slots,
        similarities,
        values,
        weights,
    )
    return slots, similarities, values, weights


def margin_loss(
    similarities: Tensor,
    units: Tensor,
    values: Tensor,
    exclude: Tensor | None,
    target: Tensor,
    mask: Tensor | None,
    memory: Memory,
) -> Tensor:
    """See `rules.margin_loss`."""
    if (similarities.requires_grad or units.requires_grad) and torch.is_grad_enabled():
        with_gradient: Tensor = MarginLoss.apply(similarities, units, values, exclude, target, mask, memory)
        return with_gradient
    mean, _, _ = _margin_loss(similarities, units, values, exclude, target, mask, memory)
    return mean


class MarginLoss(torch.autograd.Function):
    """`margin_loss` with its gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        similarities: Tensor,
        units: Tensor,
        values: Tensor,
        exclude: Tensor | None,
        target: Tensor,
        mask: Tensor | None,
        memory: Memory,
    ) -> Tensor:
        """The loss, a scalar."""
        (n, k), key_size = similarities.shape, memory.key_size
        kept = torch.empty(n, 2, dtype=torch.int64), torch.empty(n), torch.empty(n, key_size)
        mean, ctx.count, ctx.newest = _margin_loss(similarities, units, values, exclude, target, mask, memory, kept)
        ctx.save_for_backward(*kept)
        ctx.shape = n, k, key_size
        return mean

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_loss: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of the similarities, (n, k), and of the units, (n, key_size)."""
        n, k, key_size = ctx.shape
        similarities = torch.zeros(n, k)
        units = torch.zeros(n, key_size) if ctx.newest else None
        loaded().margin_gradient(k, key_size, *ctx.saved_tensors, float(of_loss) / ctx.count, similarities, units)
        return similarities, units, None, None, None, None, None


def _margin_loss(
    similarities: Tensor,
    units: Tensor,
    values: Tensor,
    exclude: Tensor | None,
    target: Tensor,
    mask: Tensor | None,
    memory: Memory,
    kept: tuple[Tensor | None, Tensor | None, Tensor | None] = (None, None, None),
) -> tuple[Tensor, int, int]:
    """The mean of the losses, of how many queries (but at least 1), and how many of these have no right neighbour.

    Args:
        kept: where to keep what the gradient needs, the fields of Kept in native/margin.h.
    """
    chains, mean = memory.known_chains, torch.empty(())
    columns, slopes, positives = kept
    count, newest = loaded().margin_loss(
        fields_of(memory),
        None if chains is None else chains.fields,
        memory.k,
        units.contiguous(),
        similarities.contiguous(),
        values.contiguous(),
        _contiguous(exclude),
        target.contiguous(),
        _contiguous(mask),
        memory.margin,
        columns,
        slopes,
        positives,
        mean,
    )
    if newest < 0:  # a query has no right neighbour, and there are no chains yet
        assert memory.chains
        return _margin_loss(similarities, units, values, exclude, target, mask, memory, kept)
    return mean, max(count, 1), newest


def update(
    memory: Memory,
    units: Tensor,
    slots: Tensor,
    values: Tensor,
    target: Tensor,
    source: Tensor | None,
    generator: torch.Generator | None,
) -> Tensor:
    """Confirms and writes; returns the slots touched, ascending, int64; see `rules.update`."""
    clock, (n, key_size), chains = clock_of(memory), units.shape, memory.known_chains
    touched = torch.empty(n, dtype=torch.int64)
    before = torch.empty(n, key_size) if memory.histories else None
    zeros, missed, count, logged = loaded().update(
        fields_of(memory),
        clock.fields,
        None if chains is None else chains.fields,
        memory.k,
        units.contiguous(),
        slots.contiguous(),
        values.contiguous(),
        target.contiguous(),
        _contiguous(source),
        memory.age_noise,
        _draw,
        generator,
        touched,
        before,
    )
    check_room(missed, memory.capacity, zeros)
    if not logged:
        clock.rebuild()
    torch.autograd.graph.increment_version(tensors_of(memory))
    slots_of(memory)  # whose version is another now
    if chains is not None:
        chains.follow(memory)
    if count < n:
        touched = touched[:count]
    if before is not None:
        memory.histories.add(touched, before[:count])
    return touched


def _draw(generator: torch.Generator | None) -> int:
    """A number of torch's, which makes all that an update draws; one that need not choose a slot draws none."""
    return int(torch.randint(2**62, (), generator=generator))


def _contiguous(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()
