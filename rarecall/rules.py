"""The rules of the loss and of the update: by the C++ extension where it can, by torch elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rarecall.checks import check_finite
from rarecall.native import extension, loaded, pointer, usable

if TYPE_CHECKING:
    from rarecall.memory import Memory

# The sum of a key and the queries that confirm it has no direction if it is shorter than this.
CANCELLED = 1e-6


class Normalize(torch.autograd.Function):
    """What `normalize` computes, of float32 on the CPU, by the extension."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor) -> Tensor:
        """(n, d) -> (n, d) of length 1; zero vectors stay zero."""
        n, size = vectors.shape
        vectors = vectors.contiguous()
        units, inverse_lengths = torch.empty_like(vectors), torch.empty(n)
        bad = loaded().normalise(pointer(vectors, n, size), n, size, units.data_ptr(), inverse_lengths.data_ptr())
        check_finite(bad)
        ctx.save_for_backward(units, inverse_lengths)
        return units

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_units: Tensor) -> Tensor:
        """From the gradient of the units to that of the vectors, (n, d)."""
        units, inverse_lengths = ctx.saved_tensors
        n, size = units.shape
        of_units, of_vectors = of_units.contiguous(), torch.empty_like(units)
        loaded().normalise_gradient(
            units.data_ptr(), inverse_lengths.data_ptr(), pointer(of_units, n, size), n, size, of_vectors.data_ptr()
        )
        return of_vectors


class MarginLoss(torch.autograd.Function):
    """The mean of `relu(q . K[n_b] - q . K[n_p] + margin)`, of float32 on the CPU, by the extension."""

    @staticmethod
    def forward(
        ctx: Any,
        similarities: Tensor,
        query: Tensor,
        columns: Tensor,
        newest: Tensor | None,
        mask: Tensor | None,
        memory: Memory,
    ) -> Tensor:
        """The loss, a scalar.

        Args:
            similarities: (n, k) of the neighbours.
            query: (n, key_size) normalised.
            columns: (n, 2) int64, of the first right neighbour and the first wrong one, -1 where there is none.
            newest: (n,) int64, the positive where no neighbour is right, or -1; None where all have a right one.
            mask: (n,) bool, or None.
        """
        (n, k), key_size = similarities.shape, memory.key_size
        similarities, query = similarities.contiguous(), query.contiguous()
        mask = None if mask is None else mask.contiguous()
        slopes = torch.empty(n)
        positives = torch.empty(0 if newest is None else n, key_size)
        total, count = loaded().margin_loss(
            pointer(similarities, n, k),
            pointer(columns, n, 2),
            0 if newest is None else pointer(newest, n),
            0 if mask is None else pointer(mask, n),
            *(n, k, key_size),
            pointer(query, n, key_size),
            pointer(memory.keys, memory.capacity, key_size),
            memory.margin,
            slopes.data_ptr(),
            positives.data_ptr(),
        )
        ctx.save_for_backward(columns, slopes, positives)
        ctx.shape, ctx.count = (n, k, key_size), max(count, 1)
        return torch.tensor(total / ctx.count)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_loss: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of the similarities, (n, k), and of the query, (n, key_size)."""
        columns, slopes, positives = ctx.saved_tensors
        n, k, key_size = ctx.shape
        similarities = torch.zeros(n, k)
        query = torch.zeros(n, key_size) if len(positives) else None
        loaded().margin_gradient(
            columns.data_ptr(),
            *(n, k, key_size),
            slopes.data_ptr(),
            positives.data_ptr(),
            float(of_loss) / ctx.count,
            similarities.data_ptr(),
            0 if query is None else query.data_ptr(),
        )
        return similarities, query, None, None, None, None


def first_right_and_wrong(values: Tensor, target: Tensor) -> Tensor:
    """(n, 2) int64: where in values, (n, k), the first right value is and the first wrong one; -1 where there is none.

    target: (n,) int64.
    """
    n, k = values.shape
    if values.device.type == "cpu" and extension() is not None:
        columns = torch.empty(n, 2, dtype=torch.int64)
        values, target = values.contiguous(), target.contiguous()
        loaded().first_right_and_wrong(pointer(values, n, k), pointer(target, n), n, k, columns.data_ptr())
        return columns
    right = values == target[:, None]
    both = torch.stack([right, ~right & (values >= 0)], 1)  # (n, 2, k)
    return torch.where(both.any(2), both.byte().argmax(2), -1)


def margin_loss(
    similarities: Tensor, query: Tensor, columns: Tensor, newest: Tensor | None, mask: Tensor | None, memory: Memory
) -> Tensor:
    """The mean of `relu(q . K[n_b] - q . K[n_p] + margin)`; the arguments are those of `MarginLoss`."""
    if usable(memory) and similarities.dtype == torch.float32:
        loss: Tensor = MarginLoss.apply(similarities, query, columns, newest, mask, memory)
        return loss
    right, wrong = (columns >= 0).unbind(1)
    positive, negative = similarities.gather(1, columns.clamp(min=0)).unbind(1)
    if newest is not None:
        elsewhere = (memory.keys[newest.clamp(min=0)] * query).sum(1)
        positive, right = torch.where(right, positive, elsewhere), right | (newest >= 0)
    taking_part = right & wrong if mask is None else right & wrong & mask
    losses = (negative - positive + memory.margin).relu()
    return losses.where(taking_part, 0.0).sum() / taking_part.sum().clamp(min=1)


def confirm(
    keys: Tensor, query: Tensor, slots: Tensor, answer: Tensor, target: Tensor
) -> tuple[Tensor, Tensor, Tensor, int]:
    """What an update does to the keys that gave the right answers; changes nothing yet.

    Args:
        keys: (capacity, key_size), the memory's.
        query: (n, key_size) normalised.
        slots, answer, target: (n,) int64: the nearest slot of each query, its value, and the right value.

    Returns:
        The slots whose answer was right, (c,) int64, ascending; what their keys become, (c, key_size): the normalised
        sum of the key and all queries that confirm it; the rows of the queries that missed, (m,) int64; and how many
        queries are zero vectors.
    """
    n, key_size = query.shape
    if keys.device.type == "cpu" and keys.dtype == torch.float32 and extension() is not None:
        confirmed, missed = torch.empty(2, n, dtype=torch.int64)
        sums = torch.empty(n, key_size)
        query, slots, answer, target = (tensor.contiguous() for tensor in (query, slots, answer, target))
        right, wrong, zeros = loaded().plan(
            pointer(keys, *keys.shape),
            key_size,
            pointer(query, n, key_size),
            *(pointer(tensor, n) for tensor in (slots, answer, target)),
            n,
            *(tensor.data_ptr() for tensor in (confirmed, sums, missed)),
        )
        return confirmed[:right], sums[:right], missed[:wrong], zeros
    is_right = answer == target
    confirmed, which = slots[is_right].unique(return_inverse=True)
    before = keys[confirmed]
    sums = before.index_put((which,), query[is_right], accumulate=True)
    # A query opposite to the key it confirms cancels it, and the key stays.
    cancelled = sums.norm(dim=1, keepdim=True) < CANCELLED
    missed = (~is_right).nonzero().squeeze(1)
    return confirmed, torch.where(cancelled, before, normalize(sums)), missed, int((~query.any(1)).sum())


def write(
    memory: Memory,
    confirmed: Tensor,
    keys: Tensor,
    written: Tensor,
    missed: Tensor,
    query: Tensor,
    target: Tensor,
    source: Tensor | None,
) -> None:
    """Writes what `confirm` found: the keys of the confirmed slots, and the queries that missed to slots of their own.

    written: (m,) int64; where a slot was confirmed and is written as well, it is written last. source: (n,) or None.
    """
    if usable(memory):
        n, key_size = query.shape
        query, target = query.contiguous(), target.contiguous()
        source = None if source is None else source.contiguous()
        loaded().write(
            *(confirmed.data_ptr(), keys.data_ptr(), len(confirmed), missed.data_ptr(), len(missed)),
            pointer(query, n, key_size),
            pointer(target, n),
            0 if source is None else pointer(source, n),
            pointer(written, len(missed)),
            key_size,
            pointer(memory.keys, memory.capacity, key_size),
            *(pointer(tensor, memory.capacity) for tensor in (memory.values, memory.sources)),
        )
        torch.autograd.graph.increment_version((memory.keys, memory.values, memory.sources))
        return
    memory.keys[confirmed] = keys
    memory.keys[written] = query[missed]
    memory.values[written] = target[missed]
    memory.sources[written] = -1 if source is None else source[missed]


def normalize(vectors: Tensor) -> Tensor:
    """(n, d) -> (n, d) of length 1; zero vectors stay zero. Raises where a number is nan or infinite.

    Scaled by the largest component first, so that neither huge nor tiny vectors leave the range of their type when
    they are squared. The scale cancels out, in the gradient too, so it is a constant to it.
    """
    if vectors.device.type == "cpu" and vectors.dtype == torch.float32 and extension() is not None:
        units: Tensor = Normalize.apply(vectors)
        return units
    check_finite(int((~vectors.isfinite()).sum()))
    scale = vectors.detach().abs().amax(-1, keepdim=True)
    scaled = vectors / torch.where(scale > 0, scale, 1.0)
    return scaled / scaled.norm(dim=-1, keepdim=True).clamp(min=0.5)  # the norm is at least 1 unless it is 0
