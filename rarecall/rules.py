"""The paper's rules on tensors of any kind and device: recall, loss and update.

On the CPU the C++ extension does the same in fewer calls, see `native_rules`; tests hold the two together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from rarecall.checks import check_finite, check_room

if TYPE_CHECKING:
    from rarecall.memory import Memory
    from rarecall.recall import Rows

# The sum of a key and the queries that confirm it has no direction if it is shorter than this.
CANCELLED = 1e-6


def normalise(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """(n, d) -> (n, d) of length 1, and by what each was multiplied, (n,).

    Raises where a number is nan or infinite.

    Zero vectors stay zero; they are multiplied by 2, so that they have a gradient by which to leave. Scaled by the
    largest component first, so that neither huge nor tiny vectors leave the range of their type when they are squared.
    """
    check_finite(int((~vectors.isfinite()).sum()))
    scale = vectors.abs().amax(-1, keepdim=True)
    scaled = vectors / torch.where(scale > 0, scale, 1.0)
    length = scaled.norm(dim=-1, keepdim=True).clamp(min=0.5)  # it is at least 1 unless it is 0
    inverse_lengths = 1 / (length * torch.where(scale > 0, scale, 1.0)).squeeze(-1)
    return scaled / length, inverse_lengths


def recall(units: Tensor, found: Tensor, exclude: Tensor | None, memory: Memory) -> tuple[Tensor, ...]:
    """Scores, sorts and weighs what a search found.

    Args:
        units: (n, key_size) normalised queries.
        found: (n, at most k) int64, slots, -1 for none.
        exclude: (n,) int64, or None.

    Returns:
        slots, similarities, values, weights, each (n, k).
    """
    slots = nn.functional.pad(found, (0, memory.k - found.shape[1]), value=-1)
    there = slots.clamp(min=0)
    hidden = (slots < 0) | (memory.values[there] < 0)
    if exclude is not None:
        hidden |= (memory.sources[there] == exclude[:, None]) & (exclude[:, None] >= 0)
    # Among equally similar slots the lowest comes first, whatever order the search found them in.
    slots = slots.masked_fill(hidden, memory.capacity).sort(dim=1).values
    gone = slots == memory.capacity
    keys = nn.functional.embedding(slots.masked_fill(gone, 0), memory.keys)  # (n, k, key_size)
    similarities = torch.bmm(units.unsqueeze(1), keys.transpose(1, 2)).squeeze(1)
    similarities, order = similarities.masked_fill_(gone, -torch.inf).sort(descending=True, stable=True)
    slots, gone = slots.gather(1, order), gone.gather(1, order)
    # A row without any neighbour would be nan in a softmax over -inf.
    logits = (memory.inverse_temperature * similarities).masked_fill_(gone, torch.finfo(similarities.dtype).min)
    weights = logits.softmax(-1).masked_fill_(gone, 0.0)
    values = memory.values[slots.masked_fill(gone, 0)].masked_fill_(gone, -1)
    return slots.masked_fill_(gone, -1), similarities, values, weights


def margin_loss(recall: Rows, target: Tensor, mask: Tensor | None, memory: Memory) -> Tensor:
    """The mean of `relu(q . K[n_b] - q . K[n_p] + margin)`; a scalar.

    Args:
        recall: of n queries.
        target: (n,) int64, the right values.
        mask: (n,) bool, or None.
    """
    query, _, similarities, values, exclude = recall
    right = values == target[:, None]
    wrong = ~right & (values >= 0)
    columns = torch.stack([right, wrong], 1).byte().argmax(2)  # (n, 2): the first of each
    positive, negative = similarities.gather(1, columns).unbind(1)
    has_right, has_wrong = right.any(1), wrong.any(1)
    if not has_right.all():
        newest = find_newest(memory, target, exclude)
        elsewhere = (memory.keys[newest.clamp(min=0)] * query).sum(1)
        positive, has_right = torch.where(has_right, positive, elsewhere), has_right | (newest >= 0)
    taking_part = has_right & has_wrong if mask is None else has_right & has_wrong & mask
    losses = (negative - positive + memory.margin).relu()
    return losses.where(taking_part, 0.0).sum() / taking_part.sum().clamp(min=1)


def find_newest(memory: Memory, target: Tensor, exclude: Tensor | None) -> Tensor:
    """(n,) int64: the newest slot with each target's value (not founded by its excluded source), -1 where none."""
    wanted, which = target.unique(return_inverse=True)
    place = torch.searchsorted(wanted, memory.values[: memory.used]).clamp_(max=len(wanted) - 1)
    slots = (wanted[place] == memory.values[: memory.used]).nonzero().squeeze(1)
    place = place[slots]
    # The time of a slot and its number as one number, so that one maximum finds the newest slot.
    times = memory.clock.touched[slots] * memory.capacity + slots

    def newest(times: Tensor) -> Tensor:
        best = times.new_full((len(wanted),), -1).scatter_reduce(0, place, times, "amax")
        return torch.where(best < 0, -1, best % memory.capacity)  # (len(wanted),)

    first = newest(times)
    if exclude is None:
        return first[which]
    # Where the newest slot is the query's own, the newest of any other source is the answer.
    founder = memory.sources[first.clamp(min=0)]
    second = newest(times.masked_fill(memory.sources[slots] == founder[place], -1))
    own = (exclude == founder[which]) & (exclude >= 0)
    return torch.where(own, second[which], first[which])


@torch.no_grad()
def update(
    memory: Memory, recall: Rows, target: Tensor, source: Tensor | None, generator: torch.Generator | None
) -> Tensor:
    """Confirms the slots whose answer was right, and writes the other queries to slots of their own.

    Args:
        recall: of n queries; the first neighbours are the answers.
        target: (n,) int64, the right values.
        source: (n,) int64, or None.
        generator: draws r.

    Returns:
        The slots touched, ascending, int64.
    """
    query, slots, _, values, _ = recall
    is_right = values[:, 0] == target
    confirmed, which = slots[is_right, 0].unique(return_inverse=True)
    before = memory.keys[confirmed]
    sums = before.index_put((which,), query[is_right], accumulate=True)
    # A query opposite to the key it confirms cancels it, and the key stays.
    cancelled = sums.norm(dim=1, keepdim=True) < CANCELLED
    keys = torch.where(cancelled, before, normalise(sums)[0])
    missed = (~is_right).nonzero().squeeze(1)
    check_room(len(missed), memory.capacity, zeros=int((~query.any(1)).sum()))

    written, touched = memory.clock.tick(confirmed, len(missed), memory.age_noise, generator)
    memory.histories.changing(memory.keys, touched)
    memory.keys[confirmed] = keys
    memory.keys[written] = query[missed]  # where a slot was confirmed as well, it is written last
    memory.values[written] = target[missed]
    memory.sources[written] = -1 if source is None else source[missed]
    return touched
