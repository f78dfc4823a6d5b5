"""The buffers of a memory, and what keeps all that follows from them in step."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from rarecall import backend
from rarecall.backend.native_backend import NativeBackend
from rarecall.checks import OutOfStep, refuse_edited_recall, warn_of_drift
from rarecall.gradient import History
from rarecall.locking import ReadWriteLock
from rarecall.recall import Recall
from rarecall.search import Search


class Field(NamedTuple):
    """One of the things that every slot holds."""

    dtype: torch.dtype
    empty: int  # what an empty slot has
    least: int  # the least that a filled slot may have; keys have length 1 instead


FIELDS = {
    "keys": Field(torch.float32, 0, -1),
    "values": Field(torch.int64, -1, 0),
    "sources": Field(torch.int64, -1, -1),
    "counts": Field(torch.int64, 0, 1),
    "times": Field(torch.int64, -1, 0),
}
NAMES = (*FIELDS, "now")  # of all buffers
# How far the length of a key may be from 1: float32 rounds by less than 1e-6, half precision by less than 1e-3.
LENGTH_TOLERANCE = 2e-3
LATEST = 2**52  # updates: ages are compared as float64, which holds these exactly
T = TypeVar("T")


class Slots(NamedTuple):
    """The filled slots of a memory, as copies: their fields in the order of `FIELDS`, with ages for times.

    Attributes:
        slots: (n,) int64, their numbers, ascending.
        keys: (n, key_size), of length 1.
        values: (n,) int64.
        sources: (n,) int64, the example that founded each; -1 where none was given.
        counts: (n,) int64, how many examples each stands for.
        ages: (n,) int64, how many updates ago each was last written or confirmed.
    """

    slots: Tensor
    keys: Tensor
    values: Tensor
    sources: Tensor
    counts: Tensor
    ages: Tensor


def check_slots(slots: Mapping[str, Tensor], what: str) -> None:
    """Expect what a memory may hold: fields of slots, (n, ...) each, and now, (); what: what errors call them."""
    now, filled = int(slots["now"]), slots["values"] >= 0
    if not 0 <= now <= LATEST:
        raise ValueError(f"{what} has now={now}; expected 0 to {LATEST} updates.")
    lengths = torch.linalg.vector_norm(slots["keys"], dim=1)
    for name, (_, empty, least) in FIELDS.items():
        if name == "keys":
            wrong = filled & ~((lengths - 1).abs() <= LENGTH_TOLERANCE)
        else:
            wrong = torch.where(filled, slots[name] < least, slots[name] != empty)
        if name == "times":
            wrong |= slots[name] > now
        if wrong.any():
            slot = int(wrong.nonzero()[0])
            held = ", ".join(f"{each} {int(slots[each][slot])}" for each in FIELDS if each != "keys")
            raise ValueError(
                f"{what} has {name} that cannot be: slot {slot} has {held} and a key of length "
                f"{float(lengths[slot]):.4g}, at update {now}. Expected {name} of {least} or more in a filled "
                f"slot, {empty} in an empty one, whose value is -1; keys of length 1, and no times after now."
            )


def empty_slots(count: int, key_size: int) -> dict[str, Tensor]:
    """Return what empty slots hold: the fields, (count, ...) each."""
    rows = {}
    for name, (dtype, empty, _) in FIELDS.items():
        shape = (count, key_size) if name == "keys" else (count,)
        if empty or torch.get_default_device().type != "cpu":
            rows[name] = torch.full(shape, empty, dtype=dtype)
        else:  # numpy's zeros take no memory until they are written; torch's do
            rows[name] = torch.from_numpy(np.zeros(shape, str(dtype).removeprefix("torch.")))
    return rows


def stamp(buffers: Mapping[str, Any]) -> tuple[Any, ...]:
    """What is different when a buffer was replaced, moved or written to."""
    mark = buffers["mark"]
    versions = ((id(t), t.data_ptr(), 0 if t.is_inference() else t._version) for t in buffers.values())
    return (*versions, int(mark) if mark.is_cpu else 0)


class SlotBuffers(nn.Module):
    """Slots in buffers, a search that follows them, and a backend that works on them.

    What follows from the buffers remembers the version that it is of, follows changes through the memory step by step,
    and is made anew where its version is not the memory's. Buffers that were edited by hand, loaded, copied or moved
    have another stamp: the backend refuses them (`OutOfStep`), and they are taken up before it is asked again.
    """

    keys: Tensor
    values: Tensor
    sources: Tensor
    counts: Tensor
    times: Tensor
    now: Tensor
    search: Search
    #: How many slots each value has given up to make room, since this object was made: {value: slots}.
    evicted: Counter[int]
    shared = False  # whether ranks hold it together
    # nn.Module looks these up more slowly as attributes.
    _buffers: dict[str, Any]
    _modules: dict[str, Any]

    def __init__(self, key_size: int, capacity: int, search: Search) -> None:
        super().__init__()
        self.key_size, self.capacity, self.search = key_size, capacity, search
        for name, rows in empty_slots(capacity, key_size).items():
            self.register_buffer(name, rows)
        self.register_buffer("now", torch.zeros((), dtype=torch.int64))
        # Another number after every change of any process: what torch does not count (a broadcast of buffers under
        # DistributedDataParallel, a process that shares them) is noticed by it.
        self.register_buffer("mark", torch.zeros((), dtype=torch.int64), persistent=False)
        self.evicted = Counter[int]()
        self.lock = ReadWriteLock()
        self._state = _State()

    @property
    def backend(self) -> backend.Backend:
        """What does the arithmetic, in step with the buffers."""
        state = self._state
        if state.backend is None or not state.backend.is_in_step():
            self.lock.exclusive(self._take_up_buffers)
        return state.backend

    @property
    def native(self) -> NativeBackend | None:
        """The same where it is the C++ extension."""
        return self.backend if isinstance(self.backend, NativeBackend) else None

    @property
    def version(self) -> int:
        """Grows with every change: a recall of an older version is out of date."""
        self.backend  # noqa: B018 - takes up what was edited by hand
        return self._state.version

    @property
    def used(self) -> int:
        """No slot from this one on is filled, so a search need not look there."""
        return self.backend.used

    def __len__(self) -> int:
        return self.backend.filled

    # ---- in step ----

    def _reading(self, read: Callable[..., T], *args: Any) -> T:
        """Return what `read` returns, called beside others that read, with everything in step."""
        while True:
            try:
                with self.lock.shared():
                    return read(*args)
            except OutOfStep:
                self.lock.exclusive(self._get_in_step)

    def _changing(self, change: Callable[..., T], *args: Any) -> T:
        """Return what `change` returns, called alone, with everything in step before."""
        while True:
            try:
                return self.lock.exclusive(change, *args)
            except OutOfStep:
                self.lock.exclusive(self._get_in_step)

    def _followed(self) -> Any:
        """Return the backend, where the search has followed it."""
        state = self._state
        if self._modules["search"].followed != state.version:
            raise OutOfStep
        return state.backend

    def _get_in_step(self: Any) -> None:
        """Take up buffers that were edited by hand, loaded, copied or moved."""
        self._take_up_buffers()
        state, search = self._state, self.search
        if search.followed != state.version:
            search.restore(self) if state.fits == stamp(self._buffers) else search.rebuild(self)
            state.fits = None
            search.__dict__["followed"] = state.version

    def _take_up_buffers(self: Any) -> None:
        state = self._state
        if state.backend is not None and state.backend.is_in_step():
            return
        check_slots(self._buffers, "The memory")
        if not self.shared:
            warn_of_drift()
        chosen = backend.choose(self)
        chosen.rebuild()
        state.backend, state.version = chosen, state.version + 1

    def _change(self, operation: str, *args: Any) -> None:
        """Change slots by an operation of the backend, and tell whoever has to know."""
        change = getattr(self._followed(), operation)
        state, search = self._state, self._modules["search"]
        # The search is out of step until it has followed: if Ctrl-C comes between, the numbers say so.
        state.version += 1
        try:
            touched, before, evicted = change(*args, bool(state.followers))
        except Exception:
            state.version -= 1  # it was refused, and nothing has changed
            raise
        if evicted:
            self.evicted.update(evicted)
        if before is not None:
            self._tell(touched, before)
        if search.native_index is None:
            with torch.no_grad(), torch.autocast(self.keys.device.type, enabled=False):
                search.changed(self, touched)
        search.__dict__["followed"] = state.version

    def begin_history(self, found: Any) -> History:
        """Follow the keys of what was found from now on, for a gradient that is to come."""
        history = History(self, found)
        self._state.add(history)
        return history

    def _tell(self, slots: Tensor, before: Tensor) -> None:
        """Tell whoever follows which slots, (m,) int64, ascending, had which keys before, (m, key_size)."""
        for known in list(self._state.followers):
            follower = known()
            if follower is not None:
                follower.follow(self, slots, before)

    def _tell_of_all(self) -> None:
        """All keys may change from here on."""
        if self._state.followers:
            slots = (self.values >= 0).nonzero().squeeze(1)
            self._tell(slots, self.keys[slots])

    def _check_recall(self, recall: Recall, asked: nn.Module | None = None) -> None:
        if recall.memory is not (self if asked is None else asked):
            raise ValueError("This recall is of another memory; pass a recall that this memory made: memory(query).")
        if recall.version != self._state.version:
            raise ValueError(
                "This recall is out of date: the memory was changed after it was made, and its slots may hold other "
                "keys by now. Ask again: memory(query); and call loss before update."
            )
        if recall._made and recall.edited:
            refuse_edited_recall()

    # ---- nn.Module: copying, moving, loading ----

    def __getstate__(self) -> dict[str, Any]:
        # A copy begins anew; its search need only be restored where its state is of these buffers.
        state = _State()
        state.version, state.fits = self._state.version, (0,) if self._search_fits() else None
        buffers = {name: tensor.clone() for name, tensor in self._buffers.items()}  # else processes would share them
        return super().__getstate__() | {"_state": state, "_buffers": buffers}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if self._state.fits is not None:
            self._state.fits = stamp(self._buffers)

    def _search_fits(self) -> bool:
        """Whether the search's own state is of the buffers as they are now."""
        state = self._state
        followed = self.search.followed == state.version and state.backend is not None and state.backend.is_in_step()
        return followed or state.fits == stamp(self._buffers)

    def _apply(self, fn: Any, recurse: bool = True) -> SlotBuffers:
        # network.half() must not round the keys, nor what a search keeps.
        def at_least_float32(tensor: Tensor) -> Tensor:
            applied: Tensor = fn(tensor)
            rounded = applied.is_floating_point() and applied.dtype.itemsize < 4
            return tensor.to(applied.device, torch.float32) if rounded else applied

        self.lock.exclusive(self._move, at_least_float32, recurse)
        return self

    def _move(self, fn: Any, recurse: bool) -> None:
        state, fits = self._state, self._search_fits()
        self._tell_of_all()
        super()._apply(fn, recurse)
        state.version, state.fits = state.version + 1, stamp(self._buffers) if fits else None

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        given = {name: state_dict[prefix + name] for name in NAMES if prefix + name in state_dict}
        mine = [name for name in state_dict if name.startswith(prefix)]
        try:
            self._check_given(given)
        except (ValueError, TypeError) as error:
            error_messages = args[-1]
            error_messages.append(f"{error} Nothing of the memory {prefix.rstrip('.')!r} was loaded.")
            for name in mine:
                del state_dict[name]  # the search's part neither
            return
        self._tell_of_all()
        super()._load_from_state_dict(state_dict, prefix, *args)
        if given:
            # Slots and search that come together fit together.
            together = len(given) == len(NAMES) and any(name.startswith(f"{prefix}search.") for name in mine)
            self._state.fits = stamp(self._buffers) if together else None
            self._state.version += 1

    def _check_given(self, given: Mapping[str, Any]) -> None:
        for name, tensor in given.items():
            own = self._buffers[name]
            fits = isinstance(tensor, Tensor) and tensor.is_floating_point() == own.is_floating_point()
            if not fits or tensor.shape != own.shape:
                came = f"{tensor.dtype} of {tuple(tensor.shape)}" if isinstance(tensor, Tensor) else type(tensor)
                raise ValueError(f"size mismatch for {name}: got {came}; expected {own.dtype} of {tuple(own.shape)}.")
        if given:
            device = self.values.device
            check_slots({name: given.get(name, own).to(device) for name, own in self._buffers.items()}, "The state")


@dataclass(slots=True, eq=False)
class _State:
    """What follows from the buffers, and what tells whether it still does."""

    version: int = 0
    fits: tuple[Any, ...] | None = None  # the stamp of the buffers that the search's own state is of, without an index
    backend: Any = None
    followers: set[weakref.ref[Any]] = field(default_factory=set)  # are told the keys that changed, as they were
    means: Any = None  # those of the classes, once they were asked for

    def add(self, follower: Any) -> None:
        self.followers.add(weakref.ref(follower, self.followers.discard))
