"""Making room in a full memory without losing what is rare."""

from __future__ import annotations

import heapq

import torch
from torch import Tensor
from torch.nn.functional import normalize

# Slots of a class that are compared with each other: its oldest. More find better pairs and cost their square.
COMPARED = 512
# Similarities are rounded to this, so that they order pairs in the same way whoever computed the keys.
STEP = 2.0**-14
# One in so many slots is freed at once, so that the look at all slots is paid for by that many writes.
AT_ONCE = 64


def pairs(values: Tensor, keys: Tensor, times: Tensor, free: Tensor, count: int) -> Tensor:
    """Choose pairs of slots that become one, of the classes that have the most slots, the most similar ones first.

    Args:
        values, times: (n,) int64, of the filled slots.
        keys: (n, key_size).
        free: (n,) bool, which slots may be taken.
        count: how many pairs; fewer where classes are left with one slot each.

    Returns:
        (m, 2) int64: rows, the older of each pair first; no row is in two pairs.
    """
    _, column, sizes = values.unique(return_inverse=True, return_counts=True)
    order = times.sort(stable=True).indices
    order = order[column[order].sort(stable=True).indices]  # by class, then the oldest first
    found, ends = [order.new_empty((0, 2))], sizes.cumsum(0).tolist()
    for end, size, quota in zip(ends, sizes.tolist(), _quotas(sizes.tolist(), count), strict=True):
        if quota:
            rows = order[end - size : end]
            rows = rows[free[rows]][: max(COMPARED, 2 * quota)]
            found.append(rows[_closest(keys[rows], quota)])
    return torch.cat(found)


def _quotas(sizes: list[int], count: int) -> list[int]:
    """Return how many slots each class gives up: one by one, from that which is largest then; at most half of it."""
    quotas = [0] * len(sizes)
    largest = [(-size, i) for i, size in enumerate(sizes) if size > 1]
    heapq.heapify(largest)
    while count and largest:
        size, i = heapq.heappop(largest)
        quotas[i], count = quotas[i] + 1, count - 1
        if quotas[i] < sizes[i] // 2:
            heapq.heappush(largest, (size + 1, i))
    return quotas


def _closest(keys: Tensor, count: int) -> Tensor:
    """(m, 2) int64: at most `count` pairs of rows, the most similar first, no row in two of them."""
    n = len(keys)
    first, second = torch.triu_indices(n, n, 1, device=keys.device)
    similarities = ((keys @ keys.T)[first, second] / STEP).round()
    order = similarities.sort(descending=True, stable=True).indices
    taken, chosen = set[int](), list[tuple[int, int]]()
    for a, b in zip(first[order].tolist(), second[order].tolist(), strict=True):
        if len(chosen) == count:
            break
        if a not in taken and b not in taken:
            taken |= {a, b}
            chosen.append((a, b))
    return torch.tensor(chosen, dtype=torch.int64, device=keys.device).view(-1, 2)


def joined(keys: Tensor, counts: Tensor) -> Tensor:
    """Return the means of pairs of keys, (m, 2, key_size) -> (m, key_size) of length 1, by their counts, (m, 2)."""
    sums = (keys.double() * counts[..., None]).sum(1)
    # Opposite keys cancel each other; the newer one stays then.
    return torch.where(sums.norm(dim=1, keepdim=True) < 1e-6, keys[:, 1].double(), normalize(sums)).to(keys.dtype)
