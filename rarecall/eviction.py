"""Making room in a full memory without losing what is rare."""

from __future__ import annotations

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
        values: (n,) int64, of the filled slots.
        keys: (n, key_size).
        times: (n,) int64.
        free: (n,) bool, which slots may be taken.
        count: how many pairs; fewer where classes are left with one slot each.

    Returns:
        (m, 2) int64: rows, the older of each pair first; no row is in two pairs.
    """
    _, column, sizes = values.unique(return_inverse=True, return_counts=True)
    order = times.sort(stable=True).indices
    order = order[column[order].sort(stable=True).indices]  # by class, then the oldest first
    starts = sizes.cumsum(0) - sizes
    found = []
    for chosen, quota in _quotas(sizes, count):
        rows = order[starts[chosen] : starts[chosen] + sizes[chosen]]
        rows = rows[free[rows]][: max(COMPARED, 2 * quota)]
        found.append(rows[_closest(keys[rows], quota)])
    return torch.cat(found) if found else order.new_empty((0, 2))


def _quotas(sizes: Tensor, count: int) -> list[tuple[int, int]]:
    """Return (class, slots to take) so that the largest classes become equally large; at most half of a class."""
    most = sizes.div(2, rounding_mode="floor")
    low, high = 1, int(sizes.max())
    while low < high:  # the least size that at most `count` slots above it bring all classes down to
        level = (low + high) // 2
        if int((sizes - level).clamp(min=0).minimum(most).sum()) <= count:
            high = level
        else:
            low = level + 1
    quotas = (sizes - low).clamp(min=0).minimum(most)
    left = count - int(quotas.sum())
    if left > 0:  # some of those of just that size, from the first
        more = ((sizes - quotas == low) & (quotas < most)).nonzero().squeeze(1)[:left]
        quotas[more] += 1
    return [(i, int(quotas[i])) for i in quotas.nonzero().squeeze(1).tolist()]


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
