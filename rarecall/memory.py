"""The memory module: recall, loss, update and forget."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import Tensor, nn

from rarecall import native_rules, rules, storage
from rarecall.checks import check_ids, check_mask, check_query
from rarecall.clock import Clock
from rarecall.compiling import apart
from rarecall.native import clock_of, loaded, search_of, slots_of, tensors_of
from rarecall.neighbours import Histories, neighbours
from rarecall.recall import Recall
from rarecall.search import SEARCHES, Search

if TYPE_CHECKING:
    from rarecall._native import Slots


class Memory(nn.Module):
    """A life-long memory of keys and values ("Learning to Remember Rare Events", section 2).

    Everything it knows is in buffers, so `state_dict`, `copy.deepcopy` and `.to(device)` lose nothing:

    - `keys`: (capacity, key_size) normalised, float32 even in a network of half precision;
    - `values`: (capacity,) int64, -1 in an empty slot;
    - `sources`: (capacity,) int64, the example that founded the slot, -1 where none was given;
    - `clock`: when each slot was last touched; `ages` follows from it;
    - `search`: whatever the search keeps.

    Args:
        key_size: numbers in a key.
        capacity: slots.
        k: neighbours of a query.
        margin: the alpha of the loss.
        inverse_temperature: the t of the softmax over the similarities.
        age_noise: the slot to be written is argmax(age + r), r drawn from [0, age_noise).
        search: "exact", "lsh", "auto", or an object of the search protocol (`rarecall.Search`).
        recall: with "lsh" and "auto", the share of queries whose nearest neighbour is to be found; 0.95 by default.

    Example:
        >>> memory = Memory(key_size=256, capacity=1000)
        >>> query, target = torch.randn(32, 256), torch.randint(10, (32,))
        >>> recall = memory(query)                     # one search serves all three calls
        >>> loss = memory.loss(recall, target)         # ()
        >>> memory.update(recall, target)
        >>> len(memory)                                # all 32 were new to it
        32
    """

    keys: Tensor
    values: Tensor
    sources: Tensor

    def __init__(
        self,
        key_size: int,
        capacity: int,
        *,
        k: int = 256,
        margin: float = 0.1,
        inverse_temperature: float = 40.0,
        age_noise: float = 8.0,
        search: str | Search = "exact",
        recall: float | None = None,
    ) -> None:
        super().__init__()
        for name, number in (("key_size", key_size), ("capacity", capacity), ("k", k)):
            if number < 1:
                raise ValueError(f"Memory got {name}={number}; expected at least 1.")
        for name, size in (("margin", margin), ("inverse_temperature", inverse_temperature), ("age_noise", age_noise)):
            if not 0 <= size < float("inf"):
                raise ValueError(f"Memory got {name}={size}; expected a finite number, 0 or greater.")
        if isinstance(search, str):
            if search not in SEARCHES:
                raise ValueError(
                    f"Memory got search={search!r}; expected one of {sorted(SEARCHES)} or an object of rarecall.Search."
                )
            if recall is not None and search == "exact":
                raise ValueError(f'Memory got recall={recall} with search="exact"; expected "lsh" or "auto" with it.')
            search = SEARCHES[search](key_size, capacity, **({} if recall is None else {"recall": recall}))
        elif not isinstance(search, Search):
            raise TypeError(
                f"Memory got search of type {type(search).__name__}; expected one of {sorted(SEARCHES)} or an object "
                "of rarecall.Search."
            )
        elif recall is not None:
            raise ValueError(f"Memory got recall={recall} with a search that is made already; give it to the search.")
        self.key_size, self.capacity, self.k = key_size, capacity, k
        self.margin, self.inverse_temperature, self.age_noise = margin, inverse_temperature, age_noise
        self.register_buffer("keys", torch.zeros(capacity, key_size, dtype=torch.float32))
        self.register_buffer("values", torch.full((capacity,), -1))
        self.register_buffer("sources", torch.full((capacity,), -1))
        self.clock = Clock(capacity)
        self.search = search
        self.histories = Histories()
        self.known_slots: Slots | None = None
        self.register_load_state_dict_pre_hook(_before_load)
        self.register_load_state_dict_post_hook(_after_load)

    @property
    def ages(self) -> Tensor:
        """(capacity,) int64: how many updates ago each slot was last written or confirmed; -1 in an empty slot."""
        return self.clock.ages

    @property
    def used(self) -> int:
        """No slot from this one on was ever written, so a search need not look there."""
        return self.clock.used

    def __len__(self) -> int:
        return self.clock.filled

    def extra_repr(self) -> str:
        settings = ", ".join(f"{name}={value}" for name, value in self._settings().items())
        return f"{settings}, filled={len(self)} ({len(self) / self.capacity:.0%})"

    def forward(self, query: Tensor, exclude: Tensor | None = None) -> Recall:
        """Finds the k neighbours of each query.

        Args:
            query: (..., key_size) of any floating type; gradients flow to it, never to the keys.
            exclude: (...,) int64, a source for each query: no slot founded by it is among the query's neighbours.
                -1 excludes nothing. A network that trains on its own memory must not be answered by the key that the
                same example wrote an epoch ago.
        """
        if torch.compiler.is_compiling():
            return apart(Memory.forward, self, query, exclude)
        held = self.known_slots
        ordinary = held is not None and exclude is None and held.asked_by(self._buffers, query)
        if ordinary and not (query.requires_grad and torch.is_grad_enabled()):
            found = search_of(self).found(self, query, None)
            return Recall(found, query.shape, None, self, self.histories.version)
        shape, known = query.shape, slots_of(self)
        check_query(query, shape, self.key_size)
        if known is None and torch.is_autocast_enabled(query.device.type):
            with torch.autocast(query.device.type, enabled=False):
                return self.forward(query, exclude)
        if exclude is not None:
            exclude = self._ids("exclude", exclude, shape, at_least=-1).contiguous()
        dtype = torch.float32 if known is not None else self.keys.dtype
        query = query if query.dtype == dtype else query.to(dtype)
        if len(shape) == 2:
            return Recall(neighbours(query, exclude, self), shape, exclude, self, self.histories.version)
        found = neighbours(query.reshape(-1, self.key_size), _flat(exclude), self)
        if isinstance(found, tuple):
            units, *others = found
            slots, similarities, values, weights = (tensor.view(*shape[:-1], self.k) for tensor in others)
            found = units.view(shape), slots, similarities, values, weights
        return Recall(found, shape, exclude, self, self.histories.version)

    def loss(self, recall: Recall, target: Tensor, mask: Tensor | None = None) -> Tensor:
        """The margin loss, a scalar: the mean of `relu(q . K[n_b] - q . K[n_p] + margin)`.

        n_p is the first neighbour with the right value, n_b the first with a wrong one. Where no neighbour is right,
        the newest slot with the right value takes its place. A query adds nothing where memory has no such slot, or
        where no neighbour is wrong; the mean is over the queries that add something, and 0 where none does.

        Args:
            recall: of this memory as it stands now.
            target: (...,) int64, the right values.
            mask: (...,) bool, False where a query takes no part, such as padding.
        """
        if torch.compiler.is_compiling():
            return apart(Memory.loss, self, recall, target, mask)
        if recall.memory is not self or recall.version != self.histories.version:
            self._refuse(recall)
        shape, slots, found = recall.shape, self.known_slots, recall.found
        if found is not None and mask is None and slots is not None:
            loss: Tensor | None = loaded().quick_loss(slots, self.k, found, self._buffers, shape, target, self.margin)
            if loss is not None:
                return loss
        native = slots_of(self) is not None
        target, mask = self._ids("target", target, shape, at_least=0), self._mask(mask, shape)
        if not native and torch.is_autocast_enabled(target.device.type):
            with torch.autocast(target.device.type, enabled=False):
                return self.loss(recall, target, mask)
        if not native:
            return rules.margin_loss(recall.rows(), _flat(target), _flat(mask), self)
        return native_rules.margin_loss(recall.found or recall.rows(), _flat(target), _flat(mask), self)

    def update(
        self,
        recall: Recall,
        target: Tensor,
        source: Tensor | None = None,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        """Remembers that the queries of `recall` have the values `target`. No gradient.

        Where the nearest neighbour's value is right, the slot is confirmed: its key becomes the normalised sum of
        itself and the queries that confirm it. Elsewhere the query and its value are written to a slot of their own:
        an empty one, else the one with the largest age + r. Both have age 0 now, and all others are older by 1.

        Args:
            recall: of this memory as it stands now. The batch is one update: no query of it sees another.
            target: (...,) int64, the right values, 0 or greater.
            source: (...,) int64, the ids of the examples; slots founded now can be traced to them. -1: no id.
            mask: (...,) bool, False where a query is not to be remembered, such as padding.
            generator: draws r; the global one by default.
        """
        if torch.compiler.is_compiling():
            return apart(Memory.update, self, recall, target, source, mask, generator)
        histories = self.histories
        if recall.memory is not self or recall.version != histories.version:
            self._refuse(recall)
        slots, found, touched = self.known_slots, recall.found, None
        if found is not None and mask is None and source is None and slots is not None and not histories.open:
            touched = loaded().quick_update(
                *(slots, clock_of(self).fields, self.k, found, self._buffers, recall.shape, target),
                *(self.age_noise, generator),
            )
        if touched is None:
            touched = self._update(recall, target, source, mask, generator)
        histories.version += 1
        search_of(self).updated(self, touched)

    @torch.no_grad()
    def forget(
        self,
        *,
        value: int | Sequence[int] | Tensor | None = None,
        source: int | Sequence[int] | Tensor | None = None,
        slots: int | Sequence[int] | Tensor | None = None,
    ) -> int:
        """Empties the slots with this value, founded by this source, or of these numbers; several at once is fine.

        Returns:
            How many slots were emptied. They are the first to be written again.
        """
        given = {"value": value, "source": source, "slots": slots}
        asked = {name: ids for name, ids in given.items() if ids is not None}
        if len(asked) != 1:
            raise ValueError(f"forget got {sorted(asked) or 'nothing'}; expected exactly one of value, source, slots.")
        [(name, ids)] = asked.items()
        ids = torch.as_tensor(ids, device=self.values.device).reshape(-1)
        if len(ids) == 0:
            return 0
        check_ids(name, ids, ids.shape, at_least=0)
        if name == "slots":
            if int(ids.max()) >= self.capacity:
                raise ValueError(f"forget got slot {int(ids.max())}; the memory has slots 0 to {self.capacity - 1}.")
            chosen = ids.unique()
        else:
            held = self.values if name == "value" else self.sources
            chosen = torch.isin(held[: self.used], ids).nonzero().squeeze(1)
        chosen = chosen[self.values[chosen] >= 0]
        self._empty(chosen)
        return len(chosen)

    @torch.no_grad()
    def reset(self) -> None:
        """Empties the whole memory and starts its clock again."""
        self._empty((self.values >= 0).nonzero().squeeze(1))
        self.clock.reset()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the memory to a safetensors file: beside `path` first, then renamed.

        A kill at any moment leaves the old file or the new one. A search of one's own is saved with its buffers.
        """
        built_in = [name for name, kind in SEARCHES.items() if kind is type(self.search)]
        settings = self._settings() | {
            "search": built_in[0] if built_in else type(self.search).__name__,
            "search_settings": self.search.settings(),
        }
        # Slots that were never written are not worth their room on the disk.
        tensors = {
            name: tensor[: self.used] if name in _BY_SLOT else tensor for name, tensor in self.state_dict().items()
        }
        storage.write(path, tensors, kind="memory", header={"settings": json.dumps(settings)})

    @classmethod
    def load(cls, path: str | os.PathLike[str], search: Search | None = None) -> Memory:
        """Reads a memory from a file that `save` wrote.

        Args:
            search: an object of the search that it was saved with, where that was one of the user's own.
        """
        tensors, header = storage.read(path, kind="memory")
        try:
            settings = json.loads(header["settings"])
            name, search_settings = settings.pop("search"), settings.pop("search_settings")
            if search is None:
                if name not in SEARCHES:
                    raise ValueError(
                        f"{path} was saved with a search of type {name!r}, which rarecall does not have. Pass one: "
                        f"Memory.load(path, search={name}(...))."
                    )
                search = SEARCHES[name](settings["key_size"], settings["capacity"], **search_settings)
            memory = cls(**settings, search=search)
        except (KeyError, TypeError, json.JSONDecodeError) as error:
            raise ValueError(f"{path} has settings that this version of rarecall cannot read: {error!r}.") from error
        state = memory.state_dict()
        for slot_tensor in _BY_SLOT & tensors.keys():
            rows = tensors[slot_tensor]
            if len(rows) <= memory.capacity and rows.shape[1:] == state[slot_tensor].shape[1:]:
                tensors[slot_tensor] = torch.cat([rows, state[slot_tensor][len(rows) :]])
        try:
            memory.load_state_dict(tensors)
        except RuntimeError as error:
            raise ValueError(f"{path} does not hold the tensors that its settings announce: {error}") from error
        return memory

    def _settings(self) -> dict[str, int | float]:
        return {
            "key_size": self.key_size,
            "capacity": self.capacity,
            "k": self.k,
            "margin": self.margin,
            "inverse_temperature": self.inverse_temperature,
            "age_noise": self.age_noise,
        }

    def _empty(self, slots: Tensor) -> None:
        """Empties filled slots, (n,) int64, ascending."""
        self.histories.changing(self.keys, slots)
        known = slots_of(self)
        chained = known if known is not None and known.chained else None
        if chained is not None:
            chained.unchain(slots)
        self.keys[slots] = 0.0
        self.values[slots] = -1
        self.sources[slots] = -1
        self.clock.forget(slots)
        if chained is not None and slots_of(self) is chained:
            chained.follow()
        self.histories.version += 1
        self.search.changed(self, slots)

    def _update(
        self,
        recall: Recall,
        target: Tensor,
        source: Tensor | None,
        mask: Tensor | None,
        generator: torch.Generator | None,
    ) -> Tensor:
        """Does what `update` does to the slots; returns those touched, ascending."""
        shape, native = recall.shape, slots_of(self) is not None
        target = _flat(self._ids("target", target, shape, at_least=0))
        if source is not None:
            source = _flat(self._ids("source", source, shape, at_least=-1))
        found: Any = recall.found if native and mask is None else None
        if found is None:
            found = recall.rows()
        if mask is not None:
            which = _flat(self._mask(mask, shape))
            found = tuple(None if tensor is None else tensor[which] for tensor in found)
            target, source = target[which], None if source is None else source[which]
        update: Any = native_rules.update if native else rules.update
        touched: Tensor = update(self, found, target, source, generator)
        return touched

    def _ids(self, name: str, ids: Tensor, shape: torch.Size, at_least: int) -> Tensor:
        """As int64 where the memory is: one id for each query, (..., *), none less than `at_least`."""
        slots = self.known_slots
        if slots is not None and slots.take(self._buffers, ids, shape, at_least):
            return ids
        check_ids(name, ids, shape[:-1], at_least)
        _, values, _ = tensors_of(self)
        return ids.to(values)

    def _mask(self, mask: Tensor | None, shape: torch.Size) -> Tensor | None:
        """Where the memory is: one bool for each query, (..., *), or None."""
        if mask is None:
            return None
        check_mask(mask, shape[:-1])
        return mask.to(self.values.device)

    def _refuse(self, recall: Recall) -> NoReturn:
        if recall.memory is not self:
            raise ValueError("This recall is of another memory; pass a recall that this memory made: memory(query).")
        changes = self.histories.version - recall.version
        raise ValueError(
            f"This recall was made {changes} change(s) of the memory ago, its slots may hold other keys by now. "
            "Ask again: memory(query); and call loss before update."
        )

    def __getstate__(self) -> dict[str, Any]:
        # What follows from the buffers is left out by deepcopy and pickle.
        return self.__dict__ | {"known_slots": None}

    def _apply(self, fn: Any, recurse: bool = True) -> Memory:
        # network.half() must not round the keys, nor the hash vectors that they were hashed with.
        def at_least_float32(tensor: Tensor) -> Tensor:
            applied: Tensor = fn(tensor)
            rounded = applied.is_floating_point() and applied.dtype.itemsize < tensor.dtype.itemsize <= 4
            return tensor.to(applied.device) if rounded else applied

        super()._apply(at_least_float32, recurse)
        self.histories.version += 1
        return self


def _flat(tensor: Any) -> Any:
    """(...,) as (n,), one number a query; None stays None."""
    return None if tensor is None else tensor.reshape(-1)


# The tensors of a state_dict that have one row a slot.
_BY_SLOT = {"keys", "values", "sources", "clock.touched"}


def _before_load(memory: Memory, *_: object) -> None:
    memory.histories.changing(memory.keys, torch.arange(memory.used, device=memory.keys.device))


def _after_load(memory: Memory, incompatible_keys: object) -> None:
    memory.histories.version += 1
    memory.search.loaded(memory)
