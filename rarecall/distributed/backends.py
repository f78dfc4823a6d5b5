"""The rules across ranks: each rank does what its backend does for one process, and tells the others what they need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from rarecall import backend
from rarecall.backend.torch_backend import GOLDEN
from rarecall.checks import check_finite, check_room
from rarecall.distributed.team import Team, pack, unpack

if TYPE_CHECKING:
    from rarecall.memory import Memory

NARROW = 2**31  # numbers below it travel in four bytes


class Examples(NamedTuple):
    """Examples to remember.

    Attributes:
        keys: (n, key_size), normalised in an update.
        nearest: (n,) int64, the slot that each confirms; -1 where it needs one of its own.
        values: (n,) int64.
        sources, counts: (n,) int64, or None.
    """

    keys: Tensor
    nearest: Tensor
    values: Tensor
    sources: Tensor | None
    counts: Tensor | None


class JointBackend:
    """A backend for one batch that is spread over the ranks, in their order; see `TorchBackend` for what it does.

    Args:
        team: all ranks.
        capacity: slots of all ranks.

    Attributes:
        part: the slots of this rank, set by whoever makes it.
        sharded: whether each rank has slots of its own.
    """

    part: Memory
    sharded: bool

    def __init__(self, team: Team, capacity: int) -> None:
        self.team, self.capacity = team, capacity
        self.length = -(-capacity // team.size) if self.sharded else capacity  # slots of a rank, but the last ones
        self.first = min(self.length * team.rank, capacity) if self.sharded else 0  # of this rank's slots
        self.count = min(self.length, capacity - self.first)
        self.filled = 0  # slots of all ranks, as far as this rank was told
        self.with_gradient = False  # whether this rank wants gradients of the next recall; then, whether any does

    def of_all(self, numbers: list[int]) -> int:
        """From a number of slots on each rank to that of the memory."""
        return sum(numbers) if self.sharded else numbers[0]

    @property
    def local(self) -> Any:
        """The backend of this rank's slots."""
        return self.part._state.backend

    @property
    def now(self) -> Tensor:
        """() int64: updates so far."""
        return self.part.now

    def found(self, tensors: dict[str, Tensor], exclude: Tensor | None) -> Any:
        return self.local.found(tensors, exclude)

    def loss(
        self, found: Any, target: Tensor, mask: Tensor | None, with_gradient: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Return the mean over the queries of all ranks, and its gradient by this rank's."""
        right = found.values == target[:, None]
        wrong = ~right & (found.values >= 0)
        has_right, has_wrong = right.any(1), wrong.any(1)
        if mask is not None:
            has_wrong &= mask
        columns = torch.stack([right, wrong], 1).byte().argmax(2)  # (n, 2): the first of each
        positive, negative = found.slots.gather(1, columns).unbind(1)
        to_positive, to_negative = found.similarities.gather(1, columns).unbind(1)
        # Where no neighbour is right, the newest slot with the right value takes its place.
        seeking = (has_wrong & ~has_right).nonzero().squeeze(1)
        heard = self.team.meet("loss", len(target), len(seeking), int(with_gradient))
        counts, seeking_counts, with_gradients = heard.T.tolist()[:3]
        positive = torch.where(has_right, positive, -1)
        if any(seeking_counts):
            exclude = None if found.exclude is None else found.exclude[seeking]
            positive[seeking] = self._newest(target[seeking], exclude, seeking_counts)
        takes_part = has_wrong & (positive >= 0)
        needed = takes_part & ~has_right
        if with_gradient:
            needed |= takes_part & (to_negative - to_positive + self.part.margin > 0)
        keys = self.part.keys.new_zeros((2, len(target), self.part.key_size))
        if any(seeking_counts) or any(with_gradients):
            keys[:, needed] = self._keys(torch.stack([positive, negative])[:, needed])
            takes_part[needed] &= keys[:, needed].any(2).all(0)  # zeros: another replica wrote the slot over meanwhile
        elsewhere = needed & ~has_right
        to_positive[elsewhere] = self.local.dots(found.query[elsewhere], keys[0, elsewhere])
        losses = (to_negative - to_positive + self.part.margin).relu().where(takes_part, -1.0)
        gradient = None
        if with_gradient:
            difference = (keys[1] - keys[0]) * (losses > 0)[:, None]
            gradient = self._gradient(found, torch.full_like(found.slots[:, :1], -1), keys[0], (difference, None, None))
        return self.local.mean(self.team.gather(losses, counts), gradient)

    def merge(
        self, query: Tensor, inverse_lengths: Tensor, by_rank: Sequence[Sequence[Tensor]], exclude: Tensor | None
    ) -> Any:
        """Return the k best of what the ranks found.

        Args:
            by_rank: slots of the rank, similarities, values and times, (n, m) each.
        """
        scored = []
        # A rank's list ends with the lowest slot of equal ones; turned round, later columns have higher slots.
        for field, kind in zip(zip(*by_rank, strict=True), (torch.int64, query.dtype, *[torch.int64] * 2), strict=True):
            scored.append([each.to(kind).flip(1) for each in field])
        scored[0] = [torch.where(each < 0, -1, each + rank * self.length) for rank, each in enumerate(scored[0])]
        return self.local.merge(query, inverse_lengths, tuple(torch.cat(each, 1) for each in scored), exclude)

    def put(self, *args: Any) -> Any:
        """Set what slots of this rank hold."""
        self.team.meet("put")
        return self.local.put(*args)

    def _gradient(self, found: Any, slots: Tensor, keys: Tensor, of: tuple[Tensor | None, ...]) -> Tensor:
        """The gradient of the queries, (n, key_size); slots: (n, m), rows of keys."""
        names, m = ("similarities", "values", "weights"), slots.shape[1]
        tensors = {name: getattr(found, name)[:, :m] for name in names} | {"slots": slots}
        tensors |= {name: getattr(found, name) for name in ("query", "inverse_lengths")}
        keys = keys if len(keys) else keys.new_zeros((1, self.part.key_size))
        nothing = slots.new_empty(0), keys[:0]
        return self.local.recall_gradient(self.local.found(tensors, None), keys, nothing, of)

    def update(
        self,
        found: Any,
        target: Tensor,
        source: Tensor | None,
        mask: Tensor | None,
        generator: torch.Generator | int | None,
        keep: bool,
    ) -> backend.Change:
        """Confirm and write on all ranks; return the slots touched on this one and their old keys."""
        rows = slice(None) if mask is None else mask
        query, nearest, right = found.query[rows], found.slots[rows, 0], (found.values[:, 0] == target)[rows]
        source = None if source is None else source[rows]
        examples = Examples(query, torch.where(right, nearest, -1), target[rows], source, None)
        return self._remember("update", examples, generator, keep)

    def write(
        self,
        keys: Tensor,
        values: Tensor,
        sources: Tensor | None,
        counts: Tensor | None,
        generator: torch.Generator | int | None,
        keep: bool,
    ) -> backend.Change:
        examples = Examples(keys, torch.full_like(values, -1), values, sources, counts)
        return self._remember("write", examples, generator, keep)

    def _remember(
        self, call: str, examples: Examples, generator: torch.Generator | int | None, keep: bool
    ) -> backend.Change:
        """Check what all ranks bring together, then let each do its share."""
        missed = examples.nearest < 0
        keys = examples.keys
        bad, zeros = int((~keys.isfinite()).sum()), int((~keys.any(1)).sum())
        has = (examples.sources is not None) + 2 * (examples.counts is not None)
        heard = self.team.meet(call, int(missed.sum()), len(missed), bad, zeros, has, self.count - self.local.filled)
        self.team.raise_together(check_finite, int(heard[:, 2].sum()))
        missing = heard[:, 0].tolist()
        self.team.raise_together(check_room, sum(missing), self.capacity, int(heard[:, 3].sum()))
        fields = [name for bit, name in ((1, "sources"), (2, "counts")) if bool((heard[:, 4] & bit).any())]
        room = self.of_all(heard[:, 5].tolist())
        seed = self.team.first(int(backend.draw(generator))) if sum(missing) > room else 0
        mine = self._share(examples, missing, heard[:, 1].tolist(), heard[:, 5].tolist(), fields, seed)
        self.filled = self.capacity - room + min(room, sum(missing))
        if call == "write":
            optional = (getattr(mine, name) if name in fields else None for name in ("sources", "counts"))
            return self.local.write(mine.keys, mine.values, *optional, self._own(seed), keep)
        found = confirming(self.local, *mine[:3])
        sources = mine.sources if "sources" in fields else None
        return self.local.update(found, mine.values, sources, None, self._own(seed), keep)

    def _pack(self, examples: Examples, fields: list[str], rows: Tensor) -> Tensor:
        """Examples as bytes, (n, width); those without a source or a count get the default."""
        values = examples.values[rows]
        optional = [getattr(examples, name) for name in fields]
        defaults = [{"sources": -1, "counts": 1}[name] for name in fields]
        columns = (
            torch.full_like(values, default) if column is None else column[rows]
            for column, default in zip(optional, defaults, strict=True)
        )
        return pack(examples.keys[rows], examples.nearest[rows], values, *columns)

    def _unpack(self, rows: Tensor, fields: list[str]) -> Examples:
        like = (self.part.keys.dtype, self.part.key_size), *[(torch.int64, 1)] * (2 + len(fields))
        keys, *columns = unpack(rows, *like)
        nearest, values, *optional = (column.squeeze(1) for column in columns)
        given = {"sources": None, "counts": None} | dict(zip(fields, optional, strict=True))
        return Examples(keys, nearest, values, **given)

    def _own(self, seed: int) -> int:
        """The seed by which this rank's slots get the noise that they would have in one memory.

        A slot's noise follows from seed + (slot + 1) * GOLDEN, in 64 bits; this rank's slots begin at `first`.
        """
        return (seed + self.first * GOLDEN + 2**63) % 2**64 - 2**63

    def _share(
        self, examples: Examples, missing: list[int], counts: list[int], rooms: list[int], fields: list[str], seed: int
    ) -> Examples:
        """What of all ranks' examples this rank is to remember, in their order; its nearest slots are its own."""
        raise NotImplementedError

    def fetch(self, slots: Tensor, held: Tensor, changed: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Return what slots of any ranks hold, (n,) int64, ascending -> (n, ...); changed: what some held before."""
        raise NotImplementedError

    def _newest(self, target: Tensor, exclude: Tensor | None, counts: list[int]) -> Tensor:
        """(n,) int64: the newest slot of all ranks with each value; -1 where there is none."""
        raise NotImplementedError

    def _keys(self, slots: Tensor) -> Tensor:
        """Slots of any ranks, (...) -> (..., key_size)."""
        raise NotImplementedError


class ReplicatedBackend(JointBackend):
    """Every rank has all slots and remembers the examples of all ranks."""

    sharded = False

    def recall(self, query: Tensor, exclude: Tensor | None) -> Any:
        return self.local.recall(query, exclude)

    def recall_gradient(
        self, found: Any, keys: Tensor, changed: tuple[Tensor, Tensor], of: tuple[Tensor | None, ...]
    ) -> Tensor:
        return self.local.recall_gradient(found, keys, changed, of)

    def _share(
        self, examples: Examples, missing: list[int], counts: list[int], rooms: list[int], fields: list[str], seed: int
    ) -> Examples:
        everything = torch.arange(len(examples.values), device=examples.values.device)
        return self._unpack(self.team.gather(self._pack(examples, fields, everything), counts), fields)

    def _newest(self, target: Tensor, exclude: Tensor | None, counts: list[int]) -> Tensor:
        return self.local.newest(target, exclude)

    def _keys(self, slots: Tensor) -> Tensor:
        return self.part.keys[slots]


class ShardedBackend(JointBackend):
    """Every rank has a range of the slots, as long as the others' but for the last ones.

    Which slots are written over, the oldest of all ranks, is decided together; a rank then makes an ordinary update of
    its own slots with the examples that fall to it.
    """

    sharded = True

    def recall(self, query: Tensor, exclude: Tensor | None) -> Any:
        """Return what this rank's queries found on all ranks."""
        team, part, dtype = self.team, self.part, query.dtype
        heard = team.meet(
            "recall",
            len(query),
            exclude is not None,
            self.with_gradient,
            self.local.filled,
            int(part.now),
            dtype.itemsize,
        )
        counts, excludes, gradients, filled, times, _ = heard.T.tolist()
        team.raise_together(_check_times, times)
        self.filled, self.with_gradient = sum(filled), any(gradients)
        asked = [query]
        if any(excludes):
            asked.append(query.new_full((len(query),), -1, dtype=torch.int64) if exclude is None else exclude)
        gathered = team.gather(pack(*asked), counts)
        query, *excluded = unpack(gathered, (dtype, part.key_size), *[(torch.int64, 1)] * any(excludes))
        try:
            found = self.local.recall(query, excluded[0].squeeze(1) if excluded else None)
        except Exception as error:
            team.refuse("recall", error)
            raise
        slots = found.slots
        columns = max(1, int((slots >= 0).sum(1).max())) if len(slots) else 1
        heard = team.meet("recall", columns, int(found.values.max()) if len(slots) else 0)
        widths, largest = heard[:, 0].tolist(), int(heard[:, 1].max())
        like = (
            torch.int32,
            dtype,
            torch.int32 if largest < NARROW else torch.int64,
            torch.int32 if times[0] < NARROW else torch.int64,
        )
        slots = slots[:, :columns]
        fields = slots, found.similarities[:, :columns], found.values[:, :columns], part.times[slots.clamp(min=0)]
        entries = pack(*(field.to(kind).reshape(-1, 1) for field, kind in zip(fields, like, strict=True)))
        mine = counts[team.rank]
        to, of = [count * columns for count in counts], [mine * width for width in widths]
        answers = unpack(team.exchange(entries, to, of), *((kind, 1) for kind in like))
        by_rank = zip(*(field.split(of) for field in answers), strict=True)
        scored = [[each.view(mine, width) for each in its] for its, width in zip(by_rank, widths, strict=True)]
        own = slice(sum(counts[: team.rank]), sum(counts[: team.rank + 1]))
        return self.merge(found.query[own], found.inverse_lengths[own], scored, exclude)

    def recall_gradient(
        self, found: Any, keys: Tensor, changed: tuple[Tensor, Tensor], of: tuple[Tensor | None, ...]
    ) -> Tensor:
        """Return the gradient of this rank's queries. The keys that they found come from all ranks.

        Args:
            keys: this rank's, (slots of this rank, key_size).
            changed: slots of this rank and their keys as they were.
        """
        self.team.meet("backward")
        used, rows = found.slots.clamp(min=0).unique(return_inverse=True)
        return self._gradient(found, torch.where(found.slots < 0, -1, rows), self.fetch(used, keys, changed), of)

    def _share(
        self, examples: Examples, missing: list[int], counts: list[int], rooms: list[int], fields: list[str], seed: int
    ) -> Examples:
        team = self.team
        confirming = (examples.nearest >= 0).nonzero().squeeze(1)
        owners = examples.nearest[confirming] // self.length
        rows, to = _by_rank(confirming, owners, team.size)
        came = team.exchange(self._pack(examples, [], rows), to)
        confirmed = self._unpack(came, [])
        slots = confirmed.nearest - self.first
        owners = self._choose(missing, rooms, slots, seed)
        each = owners.split(missing)
        rows, to = _by_rank((examples.nearest < 0).nonzero().squeeze(1), each[team.rank], team.size)
        of = [int((its == team.rank).sum()) for its in each]
        written = self._unpack(team.exchange(self._pack(examples, fields, rows), to, of), fields)
        both = [torch.cat(pair) for pair in zip(confirmed[:3], written[:3], strict=True)]
        both[1] = torch.cat([slots, written.nearest])
        optional = (None if given is None else torch.cat([torch.full_like(slots, -1), given]) for given in written[3:])
        return Examples(*both, *optional)

    def _choose(self, missing: list[int], rooms: list[int], confirmed: Tensor, seed: int) -> Tensor:
        """Which ranks remember the examples that need a slot of their own, in the order of these: (n,) int64.

        Empty slots first, the lowest before the others; then those of the largest age + r; then confirmed ones.
        """
        size, count, ranks = self.team.size, sum(missing), torch.arange(self.team.size, device=confirmed.device)
        chosen = [ranks.repeat_interleave(torch.tensor(rooms, device=ranks.device))[:count]]
        left = count - len(chosen[0])
        if left:
            confirmed = confirmed.unique()
            since = self.local.offers(confirmed, left, self._own(seed)).to(ranks.device)
            offers = since.new_full((left + 1,), torch.inf)
            offers[0], offers[1 : len(since) + 1] = len(confirmed), since
            heard = self.team.gather(offers[None], [1] * size)  # (size, left + 1)
            # Stable: of equal ones the lower rank, which has the lower slots.
            since, order = heard[:, 1:].flatten().sort(stable=True)
            chosen.append(order[:left][since[:left] < torch.inf] // left)
            chosen.append(ranks.repeat_interleave(heard[:, 0].long())[: left - len(chosen[1])])
        return torch.cat(chosen)

    def _newest(self, target: Tensor, exclude: Tensor | None, counts: list[int]) -> Tensor:
        team = self.team
        exclude = torch.full_like(target, -1) if exclude is None else exclude
        wanted = team.gather(torch.stack([target, exclude], 1), counts)
        slots = self.local.newest(*(column.contiguous() for column in wanted.unbind(1)))
        times = torch.where(slots < 0, -1, self.part.times[slots.clamp(min=0)])
        answers = team.exchange(torch.stack([slots + self.first, times], 1), counts, [len(target)] * team.size)
        return newest_of(*answers.view(team.size, len(target), 2).unbind(2))

    def _keys(self, slots: Tensor) -> Tensor:
        used, rows = slots.unique(return_inverse=True)
        return self.fetch(used, self.part.keys)[rows]

    def fetch(self, slots: Tensor, held: Tensor, changed: tuple[Tensor, Tensor] | None = None) -> Tensor:
        to = (slots // self.length).bincount(minlength=self.team.size).tolist()
        of = self.team.counts(to)
        wanted = self.team.exchange(slots, to, of) - self.first
        sent = held[wanted]
        changed_slots, before = changed or (slots[:0], held[:0])
        if len(changed_slots):
            place = torch.searchsorted(changed_slots, wanted).clamp_(max=len(changed_slots) - 1)
            is_changed = changed_slots[place] == wanted
            sent[is_changed] = before[place[is_changed]]
        return self.team.exchange(sent, of, to)


def newest_of(slots: Tensor, times: Tensor) -> Tensor:
    """Return the newest slot of those that the ranks have for n values, (ranks, n) each; -1 where all times are -1."""
    # Of equal times the higher rank, which has the higher slots.
    ranks = torch.arange(len(times), device=times.device)[:, None]
    best = (times * len(times) + ranks).argmax(0, keepdim=True)
    return torch.where(times.gather(0, best) < 0, -1, slots.gather(0, best)).squeeze(0)


def confirming(local: Any, query: Tensor, nearest: Tensor, values: Tensor) -> Any:
    """Return a recall for an update in which normalised queries, (n, d), confirm a slot each, (n,), or none: -1."""
    slots = nearest[:, None]
    answers = torch.where(slots < 0, -1, values[:, None])
    zeros = torch.zeros_like(slots, dtype=query.dtype)
    tensors = {"query": query, "inverse_lengths": zeros[:, 0], "slots": slots, "values": answers}
    return local.found(tensors | {"similarities": zeros, "weights": zeros}, None)


def _check_times(times: list[int]) -> None:
    if len(set(times)) > 1:
        raise RuntimeError(f"The ranks are at different updates: {times}. Load the same checkpoint on all of them.")


def _by_rank(rows: Tensor, ranks: Tensor, size: int) -> tuple[Tensor, list[int]]:
    """Rows, (n,), in the order of the ranks that they are for, (n,), and how many are for each."""
    return rows[ranks.sort(stable=True).indices], ranks.bincount(minlength=size).tolist()
