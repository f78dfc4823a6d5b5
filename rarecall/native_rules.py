"""The rules of `rules`, of float32 on the CPU, by the C++ extension: a few calls a step.

At small batches a call of torch costs more than the work of a whole step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rarecall.checks import check_finite, check_room
from rarecall.native import clock_of, fields_of, loaded, pointer, tensors_of
from rarecall.newest import NO_CHAINS

if TYPE_CHECKING:
    from rarecall.memory import Memory


def normalise(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """(n, d) -> (n, d) of length 1, and by what each was multiplied, (n,); see `rules.normalise`."""
    n, size = vectors.shape
    vectors = vectors.contiguous()
    units, inverse_lengths = torch.empty(n, size), torch.empty(n)
    check_finite(loaded().normalise(pointer(vectors, n, size), n, size, units.data_ptr(), inverse_lengths.data_ptr()))
    return units, inverse_lengths


def recall(units: Tensor, found: Tensor, exclude: Tensor | None, memory: Memory) -> tuple[Tensor, ...]:
    """Scores, sorts and weighs what a search found; see `rules.recall`."""
    (n, m), k = found.shape, memory.k
    slots, values = torch.empty(n, k, dtype=torch.int64), torch.empty(n, k, dtype=torch.int64)
    similarities, weights = torch.empty(n, k), torch.empty(n, k)
    found, exclude = found.contiguous(), _contiguous(exclude)
    loaded().recall(
        *fields_of(memory),
        pointer(units, n, memory.key_size),
        n,
        pointer(found, n, m),
        m,
        _optional(exclude, n),
        memory.inverse_temperature,
        torch.get_num_threads(),
        *(slots.data_ptr(), similarities.data_ptr(), values.data_ptr(), weights.data_ptr()),
        k,
    )
    return slots, similarities, values, weights


def margin_loss(similarities: Tensor, units: Tensor, *others: Any) -> Tensor:
    """See `rules.margin_loss`, whose arguments it has."""
    if torch.is_grad_enabled() and (similarities.requires_grad or units.requires_grad):
        with_gradient: Tensor = MarginLoss.apply(similarities, units, *others)
        return with_gradient
    total, count, _ = _margin_loss(similarities, units, *others)
    return torch.scalar_tensor(total / count)


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
        columns, slopes, positives = torch.empty(n, 2, dtype=torch.int64), torch.empty(n), torch.empty(n, key_size)
        kept = (columns.data_ptr(), slopes.data_ptr(), positives.data_ptr())
        total, ctx.count, ctx.newest = _margin_loss(similarities, units, values, exclude, target, mask, memory, kept)
        ctx.save_for_backward(columns, slopes, positives)
        ctx.shape = n, k, key_size
        return torch.scalar_tensor(total / ctx.count)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_loss: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of the similarities, (n, k), and of the units, (n, key_size)."""
        columns, slopes, positives = ctx.saved_tensors
        n, k, key_size = ctx.shape
        similarities = torch.zeros(n, k)
        units = torch.zeros(n, key_size) if ctx.newest else None
        loaded().margin_gradient(
            *(columns.data_ptr(), slopes.data_ptr(), positives.data_ptr()),
            *(n, k, key_size),
            float(of_loss) / ctx.count,
            similarities.data_ptr(),
            0 if units is None else units.data_ptr(),
        )
        return similarities, units, None, None, None, None, None


def _margin_loss(
    similarities: Tensor,
    units: Tensor,
    values: Tensor,
    exclude: Tensor | None,
    target: Tensor,
    mask: Tensor | None,
    memory: Memory,
    kept: tuple[int, int, int] = (0, 0, 0),
) -> tuple[float, int, int]:
    """The sum of the losses, of how many queries (but at least 1), and how many of these have no right neighbour.

    Args:
        kept: where to keep what the gradient needs, the fields of Kept in native/margin.h; 0 for nowhere.
    """
    (n, k), key_size = similarities.shape, memory.key_size
    similarities, units, values = similarities.contiguous(), units.contiguous(), values.contiguous()
    exclude, target, mask = _contiguous(exclude), target.contiguous(), _contiguous(mask)
    asked = (
        *(pointer(units, n, key_size), pointer(similarities, n, k), pointer(values, n, k), _optional(exclude, n)),
        *(n, k, pointer(target, n), _optional(mask, n)),
    )
    native, slots, known = loaded(), fields_of(memory), memory.known_chains
    chains = NO_CHAINS if known is None else known.fields
    total, count, newest = native.margin_loss(*slots, *asked, chains, memory.margin, *kept)
    if newest < 0:  # a query has no right neighbour, and there are no chains yet
        total, count, newest = native.margin_loss(*slots, *asked, memory.chains.fields, memory.margin, *kept)
    return total, max(count, 1), newest


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
    clock, (n, key_size), k = clock_of(memory), units.shape, memory.k
    units, slots, values = units.contiguous(), slots.contiguous(), values.contiguous()
    target, source = target.contiguous(), _contiguous(source)
    # One number of torch's makes all that the update draws, and only one that may have to choose draws any.
    seed = 0 if clock.has_room(n) else int(torch.randint(2**62, (), generator=generator))
    touched = torch.empty(n, dtype=torch.int64)
    before = torch.empty(n, key_size) if memory.histories else None
    chains = memory.known_chains
    zeros, missed, count, ticked = loaded().update(
        *fields_of(memory),
        clock.fields,
        NO_CHAINS if chains is None else chains.fields,
        *(pointer(units, n, key_size), pointer(slots, n, k), pointer(values, n, k), k),
        *(pointer(target, n), _optional(source, n), n, memory.age_noise, seed),
        touched.data_ptr(),
        0 if before is None else before.data_ptr(),
    )
    check_room(missed, memory.capacity, zeros)
    clock.ticked(*ticked)
    torch.autograd.graph.increment_version(tensors_of(memory))
    if chains is not None:
        chains.follow(memory)
    if count < n:
        touched = touched[:count]
    if before is not None:
        memory.histories.add(touched, before[:count])
    return touched


def _contiguous(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()


def _optional(tensor: Tensor | None, n: int) -> int:
    """Where the numbers of a tensor of shape (n,) are, or 0."""
    return 0 if tensor is None else pointer(tensor, n)
