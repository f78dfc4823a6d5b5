"""The rules by torch: on any device, of any floating type, without a compiler."""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from rarecall.backend import Change, Seed, draw
from rarecall.checks import check_finite, check_room, refuse_candidates, refuse_edited_recall, refuse_out_of_step
from rarecall.search.exact import ranking
from rarecall.slots import FIELDS, stamp

if TYPE_CHECKING:
    from rarecall.memory import Memory

# The sum of a key and the queries that confirm it has no direction if it is shorter than this.
CANCELLED = 1e-6
# The constants of SplitMix64 (Steele et al. 2014), as int64.
GOLDEN, MIX_1, MIX_2 = (number - 2**64 for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


# Slots, similarities, values and times, (n, m) each; slot -1 and similarity -inf where there is none.
Scored: TypeAlias = tuple[Tensor, ...]


@dataclass(frozen=True, eq=False)
class TorchFound:
    """What n queries found, without gradient; the extension's has the same attributes.

    Attributes:
        query: (n, key_size), the queries made of length 1.
        inverse_lengths: (n,), by what each query was multiplied.
        slots: (n, k) int64, nearest first; -1 where there are fewer than k.
        similarities: (n, k); -inf where there is none.
        values: (n, k) int64; -1 where there is none.
        weights: (n, k), softmax of inverse temperature x similarities; 0 where there is none.
        exclude: (n,) int64, or None.
    """

    query: Tensor
    inverse_lengths: Tensor
    slots: Tensor
    similarities: Tensor
    values: Tensor
    weights: Tensor
    exclude: Tensor | None


class TorchBackend:
    """The paper's rules, and what `NativeBackend` does too."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.used = self.filled = 0
        self._stamp: tuple[Any, ...] = ()

    def is_in_step(self) -> bool:
        """Whether the buffers are as they were when it took them up; else every operation raises `OutOfStep`."""
        return self._stamp == stamp(self.memory._buffers)

    def are_ids(self, ids: Tensor, shape: torch.Size, at_least: int) -> bool:
        """Whether it is certain at a glance that ids need no check and no conversion."""
        return False

    def rebuild(self) -> None:
        """Take up the slots as they are now."""
        taken_up = stamp(self.memory._buffers)
        filled = (self.memory.values >= 0).nonzero().squeeze(1)
        self.used, self.filled = int(filled[-1]) + 1 if len(filled) else 0, len(filled)
        self._stamp = taken_up  # last: where Ctrl-C comes before, all of it is taken up again

    def recall(self, query: Tensor, exclude: Tensor | None, k: int | None = None) -> TorchFound:
        """Find the k neighbours of queries, (n, key_size), by default the memory's k; exclude: (n,) int64, or None."""
        memory = self._memory_in_step()
        k = memory.k if k is None else k
        units, inverse_lengths = normalise(query)
        found = memory.search.find(memory, units, k, exclude)
        if found.shape[1] > k or (found.numel() and int(found.max()) >= memory.capacity):
            refuse_candidates(found.shape[1], k, int(found.max()), memory.capacity)
        there = found.clamp(min=0)
        hidden = (found < 0) | (memory.values[there] < 0)
        if exclude is not None:
            hidden |= (memory.sources[there] == exclude[:, None]) & (exclude[:, None] >= 0)
        slots = found.masked_fill(hidden, -1)
        keys = functional.embedding(there, memory.keys)  # (n, k, key_size)
        # Not by matmul, which may round equal keys of one row differently.
        similarities = (units.unsqueeze(1) * keys).sum(2).masked_fill(hidden, -torch.inf)
        scored = slots, similarities, memory.values[there].masked_fill(hidden, -1), memory.times[there]
        return self._best(k, units, inverse_lengths, scored, exclude)

    def merge(self, query: Tensor, inverse_lengths: Tensor, scored: Scored, exclude: Tensor | None) -> TorchFound:
        """Return the k best of what several searches found for the same normalised queries; slots are distinct."""
        return self._best(self.memory.k, query, inverse_lengths, scored, exclude)

    def _best(
        self, k: int, query: Tensor, inverse_lengths: Tensor, scored: Scored, exclude: Tensor | None
    ) -> TorchFound:
        slots, similarities, values, times = scored
        best = ranking(similarities, times, slots)[:, :k]
        slots, similarities, values = (
            functional.pad(field.gather(1, best), (0, k - best.shape[1]), value=none)
            for field, none in ((slots, -1), (similarities, -torch.inf), (values, -1))
        )
        gone = slots < 0
        # A row without any neighbour would be nan in a softmax over -inf.
        lowest = torch.finfo(similarities.dtype).min
        logits = (self.memory.inverse_temperature * similarities).masked_fill_(gone, lowest)
        weights = logits.softmax(-1).masked_fill(gone, 0.0)
        return TorchFound(query, inverse_lengths, slots, similarities, values, weights, exclude)

    def found(self, tensors: dict[str, Tensor], exclude: Tensor | None) -> TorchFound:
        """Return what was found from tensors named as its attributes."""
        return TorchFound(**tensors, exclude=exclude)

    def recall_gradient(
        self, found: TorchFound, keys: Tensor, changed: tuple[Tensor, Tensor], of: tuple[Tensor | None, ...]
    ) -> Tensor:
        """Return the gradient of the queries, (n, key_size).

        Args:
            keys: (capacity, key_size), as they are now.
            changed: slots (m,), ascending, and their keys as they were, (m, key_size).
            of: the gradients of the normalised queries, of similarities and of weights, None for 0.
        """
        of_units, of_similarities, of_weights = of
        weights, slots = found.weights, found.slots
        by_slot = torch.zeros_like(weights)
        if of_similarities is not None:
            by_slot += of_similarities.masked_fill(slots < 0, 0.0)
        if of_weights is not None:
            scaled = self.memory.inverse_temperature * weights
            by_slot += scaled * (of_weights - (weights * of_weights).sum(1, keepdim=True))
        then = functional.embedding(slots.clamp(min=0), keys)  # (n, k, key_size)
        changed_slots, before = changed
        if len(changed_slots):
            place = torch.searchsorted(changed_slots, slots).clamp_(max=len(changed_slots) - 1)
            is_changed = changed_slots[place] == slots
            then[is_changed] = before[place[is_changed]]
        total = torch.bmm(by_slot.unsqueeze(1), then.to(by_slot)).squeeze(1)
        total = total if of_units is None else total + of_units
        return _before_normalising(total, found)

    def loss(
        self, found: TorchFound, target: Tensor, mask: Tensor | None, with_gradient: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Return the mean margin loss, a scalar, and its gradient by the queries, (n, key_size)."""
        memory = self._memory_in_step()
        right = found.values == target[:, None]
        wrong = ~right & (found.values >= 0)
        columns = torch.stack([right, wrong], 1).byte().argmax(2)  # (n, 2): the first of each
        to_positive, to_negative = found.similarities.gather(1, columns).unbind(1)
        positive, negative = found.slots.gather(1, columns).unbind(1)
        has_right, has_wrong = right.any(1), wrong.any(1)
        if not has_right.all():
            newest = self.newest(target, found.exclude)
            positive = torch.where(has_right, positive, newest)
            elsewhere = self.dots(found.query, memory.keys[newest.clamp(min=0)])
            to_positive = torch.where(has_right, to_positive, elsewhere)
            has_right |= newest >= 0
        taking_part = has_right & has_wrong if mask is None else has_right & has_wrong & mask
        losses = (to_negative - to_positive + memory.margin).relu().where(taking_part, -1.0)
        if not with_gradient:
            return self.mean(losses, None)
        both = self._held(torch.stack([positive, negative]).where(losses > 0, 0))
        difference = (memory.keys[both[1]] - memory.keys[both[0]]) * (losses > 0)[:, None]
        return self.mean(losses, _before_normalising(difference, found))

    def mean(self, losses: Tensor, gradient: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return the mean of losses, (n,), without those that are -1; and its gradient from that of their sum."""
        count = (losses >= 0).sum().clamp(min=1)
        return losses.clamp(min=0).sum() / count, None if gradient is None else gradient / count

    def dots(self, query: Tensor, keys: Tensor) -> Tensor:
        """Return the products of n normalised queries with one key each, (n,), rounded as in `recall`."""
        return (keys * query).sum(1)

    def newest(self, target: Tensor, exclude: Tensor | None) -> Tensor:
        """Return the newest slot with each target's value (not founded by its excluded source), -1 where none; (n,)."""
        memory = self.memory
        if not len(target):
            return target
        held = memory.values[: self.used]
        wanted, which = target.unique(return_inverse=True)
        place = torch.searchsorted(wanted, held).clamp_(max=len(wanted) - 1)
        slots = (wanted[place] == held).nonzero().squeeze(1)
        place = place[slots]
        # The time of a slot and its number as one, so that one maximum finds the newest slot.
        times = memory.times[slots] * memory.capacity + slots

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
        self, found: TorchFound, target: Tensor, source: Tensor | None, mask: Tensor | None, seed: Seed, keep: bool
    ) -> Change:
        """Confirm and write; keep: whether the keys that change are asked for."""
        memory = self._memory_in_step()
        rows = slice(None) if mask is None else mask
        query, nearest, answers = found.query[rows], found.slots[rows, 0], found.values[rows, 0]
        target, source = target[rows], None if source is None else source[rows]
        is_right = answers == target
        chosen = self._held(nearest[is_right])
        if not torch.equal(memory.values[chosen], target[is_right]):
            refuse_edited_recall()
        confirmed, which, added = chosen.unique(return_inverse=True, return_counts=True)
        before = memory.keys[confirmed]
        weighed = before * memory.counts[confirmed, None].to(before) if memory.averaging == "count" else before
        sums = weighed.index_put((which,), query[is_right], accumulate=True)
        # A query opposite to the key it confirms cancels it, and the key stays.
        cancelled = sums.norm(dim=1, keepdim=True) < CANCELLED
        keys = torch.where(cancelled, before, normalise(sums)[0])
        missed = ~is_right
        new = query[missed], target[missed], None if source is None else source[missed], None
        return self._change(query, (confirmed, keys, added), new, seed, keep)

    @torch.no_grad()
    def write(
        self, keys: Tensor, values: Tensor, sources: Tensor | None, counts: Tensor | None, seed: Seed, keep: bool
    ) -> Change:
        """Write each key to a slot of its own."""
        units = normalise(keys)[0]
        nothing = values[:0], units[:0], values[:0]
        return self._change(units, nothing, (units, values, sources, counts), seed, keep)

    def _change(
        self, query: Tensor, of_confirmed: tuple[Tensor, ...], new: tuple[Any, ...], seed: Seed, keep: bool
    ) -> Change:
        """Confirm slots, with their new keys and the examples added, and write keys, values, sources and counts."""
        memory = self._memory_in_step()
        (confirmed, confirmed_keys, added), (keys, values, sources, counts) = of_confirmed, new
        check_room(len(values), memory.capacity, zeros=int((~query.any(1)).sum()))
        written = self._choose(confirmed, len(values), seed)
        touched = torch.cat([confirmed, written]).unique()
        to_confirm, to_write = torch.searchsorted(touched, confirmed), torch.searchsorted(touched, written)
        rows = {name: memory._buffers[name][touched] for name in FIELDS}
        evicted, now = rows["values"][to_write], int(memory.now) + 1
        rows["keys"][to_confirm] = confirmed_keys
        rows["counts"][to_confirm] += added
        rows["keys"][to_write] = keys  # where a slot was confirmed as well, it is written
        rows["values"][to_write] = values
        rows["sources"][to_write] = -1 if sources is None else sources
        rows["counts"][to_write] = 1 if counts is None else counts
        rows["times"].fill_(now)
        touched, before, _ = self.put(touched, now, rows, keep)
        return touched, before, evicted[evicted >= 0].tolist()

    @torch.no_grad()
    def put(self, slots: Tensor, now: int, rows: dict[str, Tensor], keep: bool) -> Change:
        """Put rows, by the names of the buffers, into slots, (n,), ascending, and set the time.

        All of it is done or, where Ctrl-C or an error comes between, nothing.
        """
        buffers: dict[str, Any] = self._memory_in_step()._buffers
        old, old_now = {name: buffers[name][slots] for name in rows}, buffers["now"].clone()
        try:
            buffers["now"].fill_(now)
            for name, new in rows.items():
                buffers[name][slots] = new
        except BaseException:
            buffers["now"].copy_(old_now)
            for name, before in old.items():
                buffers[name][slots] = before
            raise
        buffers["mark"].fill_(secrets.randbits(63))
        self.rebuild()
        return slots, old["keys"] if keep else None, []

    def _memory_in_step(self) -> Memory:
        if not self.is_in_step():
            refuse_out_of_step()
        return self.memory

    def _held(self, slots: Tensor) -> Tensor:
        """The same slots, where the memory has them."""
        if slots.numel() and not 0 <= int(slots.min()) <= int(slots.max()) < self.memory.capacity:
            refuse_edited_recall()
        return slots

    def _choose(self, confirmed: Tensor, count: int, seed: Seed) -> Tensor:
        """(count,) int64: the slots to write: empty ones, lowest first, then by the largest age + r, then confirmed."""
        memory = self.memory
        empty = confirmed.new_empty(0)
        if count and self.filled < memory.capacity:
            empty = (memory.values < 0).nonzero().squeeze(1)[:count]
        left = count - len(empty)
        if left == 0:
            return empty
        oldest = self._oldest(confirmed, left, int(draw(seed)))[0]
        return torch.cat([empty, oldest, confirmed[: left - len(oldest)]])

    def offers(self, confirmed: Tensor, count: int, seed: int) -> Tensor:
        """Return the time less the noise of the slots that would be written over, the least first, (at most count,).

        Of several memories that are one, the least of all are written over.
        """
        return self._oldest(confirmed, count, seed)[1]

    def _oldest(self, confirmed: Tensor, count: int, seed: int) -> tuple[Tensor, Tensor]:
        """Up to `count` slots that are not confirmed, of the largest age + r, and their time less r."""
        memory = self.memory
        free = memory.values >= 0
        free[confirmed] = False
        slots = free.nonzero().squeeze(1)
        times = memory.times[slots]
        if len(slots) > count:
            # Noise below `age_noise` can lift a slot past the last of the oldest only if it was touched less than
            # `age_noise` updates after it.
            last = times.kthvalue(count).values
            near = times < last + max(math.ceil(memory.age_noise), 1)
            slots, times = slots[near], times[near]
        since = times.double() - memory.age_noise * uniform(seed, slots)
        since, order = since.sort(stable=True)
        return slots[order[:count]], since[:count]


def normalise(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """(n, d) -> (n, d) of length 1, and by what each was multiplied, (n,).

    Zero vectors stay zero; they are multiplied by 2, so that they have a gradient by which to leave. Scaled by the
    largest component first, so that neither huge nor tiny vectors leave the range of their type when they are squared.
    """
    check_finite(int((~vectors.isfinite()).sum()))
    scale = vectors.abs().amax(-1, keepdim=True)
    scaled = vectors / torch.where(scale > 0, scale, 1.0)
    length = scaled.norm(dim=-1, keepdim=True).clamp(min=0.5)  # it is at least 1 unless it is 0
    inverse_lengths = 1 / (length * torch.where(scale > 0, scale, 1.0)).squeeze(-1)
    return scaled / length, inverse_lengths


def uniform(seed: int, slots: Tensor) -> Tensor:
    """Return the noise of each slot, (n,) float64 in [0, 1), by SplitMix64; as in native/memory/book.cpp."""

    def shifted(x: Tensor, bits: int) -> Tensor:
        return (x >> bits) & ((1 << (64 - bits)) - 1)  # of unsigned numbers

    x = (slots + 1) * GOLDEN + seed
    x = (x ^ shifted(x, 30)) * MIX_1
    x = (x ^ shifted(x, 27)) * MIX_2
    return shifted(x ^ shifted(x, 31), 11).double() * 2.0**-53


def _before_normalising(of_units: Tensor, found: TorchFound) -> Tensor:
    """From the gradient of normalised queries, (n, key_size), to that of the queries."""
    along = (found.query * of_units).sum(1, keepdim=True)
    return (of_units - along * found.query) * found.inverse_lengths[:, None]
