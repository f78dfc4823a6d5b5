"""The memory module: recall, loss, update and forget."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rarecall import eviction, storage
from rarecall.backend import Seed
from rarecall.checks import check_finite, check_ids, check_mask, check_query, check_room
from rarecall.class_means import SlotsWithMeans
from rarecall.compiling import run_eagerly
from rarecall.gradient import MarginLoss
from rarecall.recall import Recall
from rarecall.search import SEARCHES, Search, make
from rarecall.slots import FIELDS, Slots, check_slots, empty_slots

# Slots are numbered by 32 bits in an index; a recall has room for k numbers of each query.
MOST_SLOTS, MOST_NEIGHBOURS = 2**31 - 2, 2**20
# A file may announce this many bytes of slots without a word, and beyond it so many times what it holds itself.
MODEST, MODEST_TIMES = 2**30, 32


class Memory(SlotsWithMeans):
    """A life-long memory of keys and values ("Learning to Remember Rare Events", section 2).

    Everything it knows is in buffers, so `state_dict`, `copy.deepcopy` and `.to(device)` lose nothing:

    - `keys`: (capacity, key_size) of length 1, float32 even in a network of half precision;
    - `values`: (capacity,) int64, -1 in an empty slot;
    - `sources`: (capacity,) int64, the example that founded the slot, -1 where none was given;
    - `counts`: (capacity,) int64, how many examples the slot stands for;
    - `times`: (capacity,) int64, the update that last wrote or confirmed the slot, -1 in an empty slot;
    - `now`: () int64, updates so far.

    Threads: any number may recall at once. `update`, `write`, `forget`, `reset` and loading wait for them, and they
    wait for those. Between a recall and its update the memory must not change; else the update is refused.

    Args:
        key_size: the key dimension.
        capacity: number of slots.
        k: neighbours of a query.
        margin: the alpha of the loss.
        inverse_temperature: the t of the softmax over the similarities.
        age_noise: the slot to be written is argmax(age + r), r drawn from [0, age_noise).
        averaging: what a key weighs against a query that confirms it: "half", as much (the paper's), or "count", as
            many times as much as it stands for examples, so that it stays their mean.
        eviction: what makes room in a full memory: "age", the slot with the largest age + r (the paper's), or
            "balanced", so that what is rare stays: of a value with the most slots, the two most similar become one.
        search: "exact", "auto", or an already constructed search (`rarecall.Search`).
        target_recall: with "auto", the share of queries whose nearest neighbour is found; 0.95 by default.

    Example:
        >>> memory = Memory(key_size=256, capacity=1000)
        >>> query, target = torch.randn(32, 256), torch.randint(10, (32,))
        >>> recall = memory(query)                     # one search serves all three calls
        >>> loss = memory.loss(recall, target)         # ()
        >>> memory.update(recall, target)
        >>> len(memory)                                # all 32 were new to it
        32
    """

    def __init__(
        self,
        key_size: int,
        capacity: int,
        *,
        k: int = 256,
        margin: float = 0.1,
        inverse_temperature: float = 40.0,
        age_noise: float = 8.0,
        averaging: str = "half",
        eviction: str = "age",
        search: str | Search = "exact",
        target_recall: float | None = None,
    ) -> None:
        limits = ("key_size", key_size, 2**24), ("capacity", capacity, MOST_SLOTS), ("k", k, MOST_NEIGHBOURS)
        for name, number, most in limits:
            if not 1 <= number <= most:
                raise ValueError(f"Memory got {name}={number}; expected 1 to {most}.")
        for name, size in (("margin", margin), ("inverse_temperature", inverse_temperature), ("age_noise", age_noise)):
            if not 0 <= size < math.inf:
                raise ValueError(f"Memory got {name}={size}; expected a finite number, 0 or greater.")
        choices = ("averaging", averaging, ("half", "count")), ("eviction", eviction, ("age", "balanced"))
        for name, chosen, known in choices:
            if chosen not in known:
                raise ValueError(f"Memory got {name}={chosen!r}; expected one of {', '.join(known)}.")
        super().__init__(key_size, capacity, make(search, target_recall, key_size, capacity))
        self.averaging, self.eviction = averaging, eviction
        self.k, self.margin, self.inverse_temperature, self.age_noise = k, margin, inverse_temperature, age_noise

    @property
    def ages(self) -> Tensor:
        """(capacity,) int64: how many updates ago each slot was last written or confirmed; -1 in an empty slot."""
        return torch.where(self.times < 0, -1, self.now - self.times)

    def extra_repr(self) -> str:
        settings = ", ".join(f"{name}={value}" for name, value in self._settings().items())
        return f"{settings}, filled={len(self)} ({len(self) / self.capacity:.0%})"

    def forward(self, query: Tensor, exclude: Tensor | None = None) -> Recall:
        """Find the k neighbours of each query. Any number of threads may do so at once.

        Args:
            query: (..., key_size) of any floating type; gradients flow to it, never to the keys.
            exclude: (...,) int64, a source whose slots the query must not find; -1: none. A network that trains on its
                own memory must not be answered by the key that the same example wrote an epoch ago.
        """
        if torch.compiler.is_compiling():
            return run_eagerly(Memory.forward, self, query, exclude)
        check_query(query, self.key_size)
        shape, keys = query.shape, self._buffers["keys"]
        exclude = None if exclude is None else self._ids("exclude", exclude, shape[:-1], at_least=-1)
        asked = query if query.dtype == keys.dtype else query.to(keys.dtype)
        asked = asked if len(shape) == 2 else asked.reshape(-1, self.key_size)
        return self._reading(self._recall, asked, exclude, shape)

    def _recall(self, asked: Tensor, exclude: Tensor | None, shape: torch.Size) -> Recall:
        backend, with_gradient = self._followed(), asked.requires_grad
        found = backend.recall((asked.detach() if with_gradient else asked).contiguous(), exclude)
        history = self.begin_history(found) if with_gradient and torch.is_grad_enabled() else None
        exclude = None if exclude is None else exclude.view(shape[:-1])
        return Recall(self, self._state.version, backend, found, asked, shape, exclude, history)

    def loss(self, recall: Recall, target: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the margin loss, a scalar: the mean of `relu(q . K[n_b] - q . K[n_p] + margin)`.

        n_p is the first neighbour with the right value, n_b the first with a wrong one. Where no neighbour is right,
        the newest slot with the right value takes its place. A query adds nothing where memory has no such slot, or
        where no neighbour is wrong; the mean is over the queries that add something, and 0 where none does.

        Args:
            recall: of this memory as it stands now.
            target: (...,) int64, the right values.
            mask: (...,) bool, False where a query takes no part, such as padding.
        """
        if torch.compiler.is_compiling():
            return run_eagerly(Memory.loss, self, recall, target, mask)
        outer = recall.shape[:-1]
        target = self._ids("target", target, outer, at_least=0)
        mask = None if mask is None else self._mask(mask, outer)
        return self._reading(self._loss, recall, target, mask)

    def _loss(self, recall: Recall, target: Tensor, mask: Tensor | None) -> Tensor:
        self._check_recall(recall)
        if recall.history is None or not torch.is_grad_enabled():
            return recall.backend.loss(recall.found, target, mask, False)[0]
        loss: Tensor = MarginLoss.apply(recall.asked, recall.backend, recall.found, target, mask)
        return loss

    def update(
        self,
        recall: Recall,
        target: Tensor,
        source: Tensor | None = None,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        """Remember that the queries of `recall` have the values `target`. No gradient. Waits for all recalls.

        Where the nearest neighbour's value is right, the slot is confirmed: its key becomes the normalised sum of
        itself and the queries that confirm it. Elsewhere the query and its value are written to a slot of their own:
        an empty one, else the one with the largest age + r. Both have age 0 now, and all others are older by 1.

        Args:
            recall: of this memory as it stands now. Its batch is one update: no query sees another.
            target: (...,) int64, the right values, 0 or greater.
            source: (...,) int64, the ids of the examples; slots founded now can be traced to them. -1: no id.
            mask: (...,) bool, False where a query is not to be remembered, such as padding.
            generator: draws r; the global one by default.
        """
        if torch.compiler.is_compiling():
            return run_eagerly(Memory.update, self, recall, target, source, mask, generator)
        outer = recall.shape[:-1]
        target = self._ids("target", target, outer, at_least=0)
        source = None if source is None else self._ids("source", source, outer, at_least=-1)
        mask = None if mask is None else self._mask(mask, outer)
        self._changing(self._update, recall, target, source, mask, generator)

    def write(self, keys: Tensor, values: Tensor, sources: Tensor | None = None, counts: Tensor | None = None) -> None:
        """Write many keys at once, each to a slot of its own, without asking for any: one update in which all miss.

        Args:
            keys: (n, key_size), of any length but 0.
            values: (n,) int64, 0 or greater.
            sources: (n,) int64, the ids of the examples; -1: no id.
            counts: (n,) int64, how many examples each stands for; 1 by default.
        """
        check_query(keys, self.key_size)
        shape = keys.shape[:-1]
        if len(shape) != 1:
            raise ValueError(f"write got keys of shape {tuple(keys.shape)}; expected (n, {self.key_size}).")
        given = ("values", values, 0), ("sources", sources, -1), ("counts", counts, 1)
        ids = (each if each is None else self._ids(name, each, shape, least) for name, each, least in given)
        self._changing(self._write, keys.detach().to(self.keys).contiguous(), *ids)

    def put(self, slots: Tensor, *, now: int, **rows: Tensor) -> None:
        """Set what slots hold, as a journal says that it was: no search, no rule, the keys not normalised again.

        Args:
            slots: (n,) int64, ascending.
            now: what the memory's clock says from then on.
            rows: keys, values, sources, counts and times, (n, ...) each, as the buffers have them: keys of length 1,
                times up to now. In a slot that is to be emptied: 0, -1, -1, 0 and -1.
        """
        if rows.keys() != FIELDS.keys():
            raise TypeError(f"put got {', '.join(rows)}; expected {', '.join(FIELDS)}.")
        slots = slots.to(self.values).contiguous()
        rows = {name: rows[name].detach().to(self._buffers[name]).contiguous() for name in FIELDS}
        if any(row.shape != (len(slots), *self._buffers[name].shape[1:]) for name, row in rows.items()):
            shapes = {name: tuple(row.shape) for name, row in rows.items()}
            raise ValueError(f"put got {shapes} for {len(slots)} slots; expected one row for each of them.")
        ascending = bool(slots.diff().gt(0).all())
        if len(slots) and not (ascending and int(slots[0]) >= 0 and int(slots[-1]) < self.capacity):
            raise ValueError(f"put got slots {slots.tolist()}; expected ascending ones, 0 to {self.capacity - 1}.")
        check_slots(rows | {"now": torch.tensor(now)}, "put")
        self._changing(self._change, "put", slots, now, rows)

    def slots(self) -> Slots:
        """Return copies of what the filled slots hold."""
        with self.lock.shared():
            slots = (self.values >= 0).nonzero().squeeze(1)
            fields = (self._buffers[name][slots] for name in FIELDS if name != "times")
            return Slots._make([slots, *fields, self.ages[slots]])

    def trace(self, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Return the source and the age of slots, such as `recall.slots`: which examples an answer came from.

        Args:
            slots: (...,) int64; where it is -1 or empty, so are its source and its age.
        """
        with self.lock.shared():
            there = slots.clamp(min=0)
            return self._traced(slots, self.sources[there], self.times[there])

    def _traced(self, slots: Tensor, sources: Tensor, times: Tensor) -> tuple[Tensor, Tensor]:
        gone = (slots < 0) | (times < 0)
        return sources.masked_fill(gone, -1), (self.now - times).masked_fill(gone, -1)

    def merge(self, other: Memory) -> None:
        """Write all that another memory holds into this one, the oldest of it first; equal keys are kept apart."""
        if not isinstance(other, Memory):
            raise TypeError(f"merge got {type(other).__name__}; expected a Memory.")
        held = other.slots()
        order = held.ages.sort(descending=True, stable=True).indices
        self.write(held.keys[order], held.values[order], held.sources[order], held.counts[order])

    def forget(
        self,
        *,
        value: int | Sequence[int] | Tensor | None = None,
        source: int | Sequence[int] | Tensor | None = None,
        slots: int | Sequence[int] | Tensor | None = None,
    ) -> int:
        """Empty the slots with this value or these values, of these sources, or of these numbers; return how many."""
        named = ("value", value), ("source", source), ("slots", slots)
        given = {name: ids for name, ids in named if ids is not None}
        if len(given) != 1:
            raise ValueError(f"forget got {sorted(given) or 'nothing'}; expected exactly one of value, source, slots.")
        [(name, ids)] = given.items()
        ids = torch.as_tensor(ids, device=self.values.device).reshape(-1)
        if len(ids) == 0:
            return 0
        check_ids(name, ids, ids.shape, at_least=0)
        return self._changing(self._forget, name, ids)

    def reset(self) -> None:
        """Empty the whole memory and start its clock again."""
        self._changing(self._reset)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the memory to a safetensors file with a checksum; a kill at any time leaves the old or the new one."""
        built_in = [name for name, kind in SEARCHES.items() if kind is type(self.search)]
        settings = self._settings() | {
            "search": built_in[0] if built_in else type(self.search).__name__,
            "search_settings": self.search.settings(),
        }
        with self.lock.shared():
            # Slots that were never written are not worth their room on the disk.
            tensors = self.state_dict()
            tensors |= {name: tensors[name][: self.used] for name in FIELDS}
            storage.write(path, tensors, kind="memory", header={"settings": json.dumps(settings)})

    @classmethod
    def load(cls, path: str | os.PathLike[str], search: Search | None = None, capacity: int | None = None) -> Memory:
        """Read a memory from a file that `save` wrote, and check all of it first.

        Args:
            search: an object of the search that it was saved with, where that was one of the user's own.
            capacity: number of slots, where it is to be another than the file's.
        """
        tensors, header = storage.read(path, kind="memory")
        try:
            settings = json.loads(header["settings"])
            name, search_settings = settings.pop("search"), settings.pop("search_settings")
            size, needed = os.path.getsize(path), settings["capacity"] * (4 * settings["key_size"] + 8 * len(FIELDS))
            if capacity is None and needed > max(MODEST, MODEST_TIMES * size):
                raise ValueError(
                    f"{path} has {size} bytes and announces {settings['capacity']} slots, which take "
                    f"{needed / 2**30:.1f} GiB. If that is right, say so: Memory.load(path, capacity=...)."
                )
            same = capacity in (None, settings["capacity"])
            settings["capacity"] = settings["capacity"] if capacity is None else capacity
            if search is None:
                if name not in SEARCHES:
                    raise ValueError(
                        f"{path} was saved with a search of type {name!r}, which rarecall does not have. Pass one: "
                        f"Memory.load(path, search={name}(...))."
                    )
                search = SEARCHES[name](settings["key_size"], settings["capacity"], **search_settings)
            memory = cls(**settings, search=search)
        except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
            raise ValueError(f"{path} has settings that this version of rarecall cannot read: {error!r}.") from error
        for name in FIELDS.keys() & tensors.keys():  # slots that were never written are not in the file
            rows, own = tensors[name], memory._buffers[name]
            if rows.shape[1:] == own.shape[1:] and len(rows) <= len(own):
                tensors[name] = torch.cat([rows, own[len(rows) :].to(rows.dtype)])
        if not same:  # the search's state is of another capacity: it is made anew
            tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith("search.")}
        try:
            memory.load_state_dict(tensors, strict=same)
        except RuntimeError as error:
            raise ValueError(f"{path} does not hold the tensors that its settings announce: {error}") from error
        memory.lock.exclusive(memory._get_in_step)
        return memory

    # ---- under the lock ----

    def _update(
        self, recall: Recall, target: Tensor, source: Tensor | None, mask: Tensor | None, generator: Seed
    ) -> None:
        self._check_recall(recall)
        if self.eviction == "balanced":
            found = recall.found
            right = found.values[:, 0] == target
            missed = ~right if mask is None else ~right & mask
            zeros = ~found.query.any(1) if mask is None else ~found.query.any(1) & mask
            self._make_room(int(missed.sum()), int(zeros.sum()), found.slots[right, 0])
        self._change("update", recall.found, target, source, mask, generator)

    def _write(self, keys: Tensor, *args: Any) -> None:
        if self.eviction == "balanced":
            check_finite(int((~keys.isfinite()).sum()))
            self._make_room(len(keys), int((~keys.any(1)).sum()), self.values[:0])
        self._change("write", keys, *args, None)

    def _make_room(self, count: int, zeros: int, confirmed: Tensor) -> None:
        """Let slots of the largest classes become one, in pairs, until `count` slots are empty or no pair is left."""
        check_room(count, self.capacity, zeros)
        self._followed()
        while (missing := count - (self.capacity - len(self))) > 0:
            free = torch.ones_like(self.values, dtype=torch.bool)
            free[confirmed] = False
            slots = (self.values >= 0).nonzero().squeeze(1)
            missing = max(missing, self.capacity // eviction.AT_ONCE)
            chosen = eviction.pairs(self.values[slots], self.keys[slots], self.times[slots], free[slots], missing)
            if not len(chosen):
                return
            self._join(slots[chosen])

    def _join(self, pairs: Tensor) -> None:
        """Let pairs of slots, (m, 2), become one each: the second of them; the first is emptied."""
        both, m = pairs.T.flatten(), len(pairs)
        self.evicted.update(self.values[pairs[:, 0]].tolist())
        rows = {name: self._buffers[name][both] for name in FIELDS}
        for name, field in FIELDS.items():
            rows[name][:m] = field.empty
        rows["keys"][m:] = eviction.joined(self.keys[pairs], self.counts[pairs])
        rows["counts"][m:] = self.counts[pairs].sum(1)
        order = both.argsort()
        rows = {name: row[order].contiguous() for name, row in rows.items()}
        self._change("put", both[order].contiguous(), int(self.now), rows)

    def _forget(self, name: str, ids: Tensor) -> int:
        if name == "slots":
            if int(ids.max()) >= self.capacity:
                raise ValueError(f"forget got slot {int(ids.max())}; the memory has slots 0 to {self.capacity - 1}.")
            chosen = ids.long().unique()
        else:
            held = self.values if name == "value" else self.sources
            chosen = torch.isin(held[: self.used], ids).nonzero().squeeze(1)
        return self._empty(chosen[self.values[chosen] >= 0])

    def _empty(self, slots: Tensor) -> int:
        """Empty filled slots, (n,) int64, ascending; return how many."""
        if len(slots):
            self._put_empty(slots)
        return len(slots)

    def _put_empty(self, slots: Tensor) -> None:
        rows = {name: row.to(self._buffers[name]) for name, row in empty_slots(len(slots), self.key_size).items()}
        self._change("put", slots, int(self.now), rows)

    def _reset(self) -> None:
        self._empty((self.values >= 0).nonzero().squeeze(1))
        self.now.zero_()

    def _ids(self, name: str, ids: Tensor, shape: torch.Size, at_least: int) -> Tensor:
        """As contiguous int64 where the memory is, (n,): of this shape, none less than `at_least`."""
        backend = self._state.backend
        if backend is None or not backend.are_ids(ids, shape, at_least):
            check_ids(name, ids, shape, at_least)
            ids = ids.to(self._buffers["values"]).contiguous()
        return ids if len(shape) == 1 else ids.view(-1)

    def _mask(self, mask: Tensor, shape: torch.Size) -> Tensor:
        """One bool for each query, (n,), where the memory is."""
        check_mask(mask, shape)
        return mask.to(self.values.device).reshape(-1).contiguous()

    def _settings(self) -> dict[str, Any]:
        names = ("key_size", "capacity", "k", "margin", "inverse_temperature", "age_noise", "averaging", "eviction")
        return {name: getattr(self, name) for name in names}
