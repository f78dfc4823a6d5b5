"""The rules of the loss and of the update: by the C++ extension where it can, by torch elsewhere."""

from __future__ import annotations

import torch
from torch import Tensor

from rarecall.native import extension, loaded, pointer

# The sum of a key and the queries that confirm it has no direction if it is shorter than this.
CANCELLED = 1e-6


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


def normalize(vectors: Tensor) -> Tensor:
    """(n, d) -> (n, d) of length 1; zero vectors stay zero.

    Scaled by the largest component first, so that neither huge nor tiny vectors leave the range of their type when
    they are squared. The scale cancels out, in the gradient too, so it is a constant to it.
    """
    scale = vectors.detach().abs().amax(-1, keepdim=True)
    scaled = vectors / torch.where(scale > 0, scale, 1.0)
    return scaled / scaled.norm(dim=-1, keepdim=True).clamp(min=0.5)  # the norm is at least 1 unless it is 0
