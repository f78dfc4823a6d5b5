"""The rules by torch: on any device, of any floating type, without a compiler."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from rarecall import backend
from rarecall.checks import check_finite, check_room, refuse_candidates, refuse_edited_recall, refuse_out_of_step

if TYPE_CHECKING:
    from rarecall.memory import Memory

# The sum of a key and the queries that confirm it has no direction if it is shorter than this.
CANCELLED = 1e-6
# The constants of SplitMix64 (Steele et al. 2014), as int64.
GOLDEN, MIX_1, MIX_2 = (number - 2**64 for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


@dataclass(frozen=True, eq=False)
class TorchFound:
    """What n queries found, without gradient; that of the extension has the same attributes.

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
        slots = functional.pad(found, (0, k - found.shape[1]), value=-1)
        there = slots.clamp(min=0)
        hidden = (slots < 0) | (memory.values[there] < 0)
        if exclude is not None:
            hidden |= (memory.sources[there] == exclude[:, None]) & (exclude[:, None] >= 0)
        # Stable sorts from the last criterion to the first: similarity, then the newest, then the highest slot.
        slots = slots.masked_fill(hidden, -1).sort(dim=1, descending=True).values
        slots = slots.gather(1, memory.times[slots.clamp(min=0)].sort(dim=1, descending=True, stable=True).indices)
        gone = slots < 0
        keys = functional.embedding(slots.clamp(min=0), memory.keys)  # (n, k, key_size)
        # Not by matmul, which may round equal keys of one row differently.
        similarities = (units.unsqueeze(1) * keys).sum(2).masked_fill(gone, -torch.inf)
        similarities, order = similarities.sort(dim=1, descending=True, stable=True)
        slots, gone = slots.gather(1, order), gone.gather(1, order)
        values = memory.values[slots.clamp(min=0)].masked_fill(gone, -1)
        return TorchFound(units, inverse_lengths, slots, similarities, values, self._weights(similarities), exclude)

    def _weights(self, similarities: Tensor) -> Tensor:
        gone = similarities == -torch.inf
        # A row without any neighbour would be nan in a softmax over -inf.
        lowest = torch.finfo(similarities.dtype).min
        logits = (self.memory.inverse_temperature * similarities).masked_fill_(gone, lowest)
        return logits.softmax(-1).masked_fill(gone, 0.0)

    def merge(
        self, query: Tensor, inverse_lengths: Tensor, scored: tuple[Tensor, ...], exclude: Tensor | None
    ) -> TorchFound:
        """Return the k best of what several searches found for the same normalised queries.

        Args:
            scored: slots, similarities, values and times, (n, m); slot -1 and similarity -inf where there is none. Of
                equally similar slots the newest comes first, of these the one in the later column.
        """
        *fields, times = (tensor.flip(1) for tensor in scored)
        order = times.sort(dim=1, descending=True, stable=True).indices
        order = order.gather(1, fields[1].gather(1, order).sort(dim=1, descending=True, stable=True).indices)
        order = order[:, : self.memory.k]
        pad = 0, self.memory.k - order.shape[1]
        slots, similarities, values = (
            functional.pad(field.gather(1, order), pad, value=empty)
            for field, empty in zip(fields, (-1, -torch.inf, -1), strict=True)
        )
        return TorchFound(query, inverse_lengths, slots, similarities, values, self._weights(similarities), exclude)

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
        both = torch.stack([positive, negative]).where(losses > 0, 0)
        if both.numel() and not 0 <= int(both.min()) <= int(both.max()) < memory.capacity:
            refuse_edited_recall()
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
        # The time of a slot and its number as one number, so that one maximum finds the newest slot.
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
        self,
        found: TorchFound,
        target: Tensor,
        source: Tensor | None,
        mask: Tensor | None,
        generator: torch.Generator | int | None,
        keep: bool,
    ) -> backend.Change:
        """Confirm and write.

        Returns:
            The slots touched, ascending; their old keys where these are to be kept; the values that were written over.
        """
        memory = self._memory_in_step()
        rows = slice(None) if mask is None else mask
        query, nearest, answers = found.query[rows], found.slots[rows, 0], found.values[rows, 0]
        target, source = target[rows], None if source is None else source[rows]
        is_right = answers == target
        chosen = nearest[is_right]
        if len(chosen) and not 0 <= int(chosen.min()) <= int(chosen.max()) < memory.capacity:
            refuse_edited_recall()
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
        return self._change(query, (confirmed, keys, added), new, generator, keep)

    @torch.no_grad()
    def write(
        self,
        keys: Tensor,
        values: Tensor,
        sources: Tensor | None,
        counts: Tensor | None,
        generator: torch.Generator | int | None,
        keep: bool,
    ) -> backend.Change:
        """Write each key to a slot of its own; returns the same."""
        none, units = values.new_empty(0), normalise(keys)[0]
        confirmed = none, units.new_empty((0, self.memory.key_size)), none
        return self._change(units, confirmed, (units, values, sources, counts), generator, keep)

    def _change(
        self,
        query: Tensor,
        of_confirmed: tuple[Tensor, Tensor, Tensor],
        new: tuple[Tensor, Tensor, Tensor | None, Tensor | None],
        generator: torch.Generator | int | None,
        keep: bool,
    ) -> backend.Change:
        """Confirm slots, with their new keys and the examples added, and write keys, values, sources and counts."""
        memory = self._memory_in_step()
        (confirmed, confirmed_keys, added), (keys, values, sources, counts) = of_confirmed, new
        check_room(len(values), memory.capacity, zeros=int((~query.any(1)).sum()))
        written = self._choose(confirmed, len(values), generator)
        touched = torch.cat([confirmed, written]).unique()
        to_confirm, to_write = torch.searchsorted(touched, confirmed), torch.searchsorted(touched, written)
        old = {name: memory._buffers[name][touched] for name in ("keys", "values", "sources", "counts")}
        new_rows = {name: rows.clone() for name, rows in old.items()}
        new_rows["keys"][to_confirm] = confirmed_keys
        new_rows["counts"][to_confirm] += added
        new_rows["keys"][to_write] = keys  # where a slot was confirmed as well, it is written
        new_rows["values"][to_write] = values
        new_rows["sources"][to_write] = -1 if sources is None else sources
        new_rows["counts"][to_write] = 1 if counts is None else counts
        now = memory.now + 1
        self._assign(touched, now, times=now.expand(len(touched)), **new_rows)
        evicted = old["values"][to_write]
        return touched, old["keys"] if keep else None, evicted[evicted >= 0].tolist()

    def _assign(self, slots: Tensor, now: Tensor, **rows: Tensor) -> None:
        """Put new rows into slots and set the time: all of it or, where Ctrl-C or an error comes between, nothing."""
        buffers: dict[str, Any] = self.memory._buffers
        old, old_now = {name: buffers[name][slots] for name in rows}, buffers["now"].clone()
        try:
            buffers["now"].copy_(now)
            for name, new in rows.items():
                buffers[name][slots] = new
        except BaseException:
            buffers["now"].copy_(old_now)
            for name, before in old.items():
                buffers[name][slots] = before
            raise
        buffers["mark"].fill_(secrets.randbits(63))
        self.rebuild()

    def _memory_in_step(self) -> Memory:
        if not self.is_in_step():
            refuse_out_of_step()
        return self.memory

    def _choose(self, confirmed: Tensor, count: int, generator: torch.Generator | int | None) -> Tensor:
        """(count,) int64: the slots to write: empty ones, the lowest first, then those of the largest age + r.

        A confirmed slot is taken only where there is no other left.
        """
        memory = self.memory
        empty = confirmed.new_empty(0)
        if count and self.filled < memory.capacity:
            empty = (memory.values < 0).nonzero().squeeze(1)[:count]
        left = count - len(empty)
        if left == 0:
            return empty
        oldest = self._oldest(confirmed, left, int(backend.draw(generator)))[0]
        return torch.cat([empty, oldest, confirmed[: left - len(oldest)]])

    def offers(self, confirmed: Tensor, count: int, seed: int) -> Tensor:
        """Return what the slots that would be written over have, if `count` were to be: (at most count,) float64.

        Their time less their noise, the least first. Of several memories that are one, the least of all are written
        over; the seed tells a memory's slots from the same ones of another.
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

    @torch.no_grad()
    def put(self, slots: Tensor, now: int, rows: dict[str, Tensor], keep: bool) -> backend.Change:
        """Put rows, by the names of the buffers, into slots, (n,), ascending; returns the same."""
        before = self._memory_in_step().keys[slots]
        self._assign(slots, torch.tensor(now), **rows)
        return slots, before if keep else None, []

    @torch.no_grad()
    def erase(self, slots: Tensor, keep: bool) -> backend.Change:
        """Empty filled slots, (n,), ascending; returns the same."""
        memory, none = self._memory_in_step(), torch.full_like(slots, -1)
        before = memory.keys[slots]
        empty = torch.zeros_like(before)
        self._assign(slots, memory.now, keys=empty, values=none, sources=none, counts=none + 1, times=none)
        return slots, before if keep else None, []


def stamp(buffers: Mapping[str, Any]) -> tuple[Any, ...]:
    """What is different when a buffer was replaced, moved or written to.

    The mark changes with every change of any process: it tells of what torch does not count, such as a broadcast.
    """
    mark = buffers["mark"]
    versions = ((id(t), t.data_ptr(), 0 if t.is_inference() else t._version) for t in buffers.values())
    return (*versions, int(mark) if mark.is_cpu else 0)


def normalise(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """(n, d) -> (n, d) of length 1, and by what each was multiplied, (n,).

    Raises where a number is nan or infinite. Zero vectors stay zero; they are multiplied by 2, so that they have a
    gradient by which to leave. Scaled by the largest component first, so that neither huge nor tiny vectors leave the
    range of their type when they are squared.
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
