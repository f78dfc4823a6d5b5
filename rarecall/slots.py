"""The buffers of a memory, and what keeps all that follows from them in step."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from rarecall import backend
from rarecall.backend.native_backend import NativeBackend
from rarecall.backend.torch_backend import stamp
from rarecall.checks import OutOfStep, check_slots, refuse_edited_recall, warn_of_drift
from rarecall.class_means import ClassMeans, Project
from rarecall.gradient import History
from rarecall.locking import ReadWriteLock
from rarecall.recall import Recall
from rarecall.search import Search

# What each slot holds: the type, and what an empty slot has.
FIELDS = {
    "keys": (torch.float32, 0),
    "values": (torch.int64, -1),
    "sources": (torch.int64, -1),
    "counts": (torch.int64, 0),
    "times": (torch.int64, -1),
}
NAMES = (*FIELDS, "now")  # of all buffers
T = TypeVar("T")


class SlotBuffers(nn.Module):
    """Slots in buffers, a search that follows them, and a backend that works on them.

    Whatever follows from the buffers remembers the version that it is of, and is made anew where that is not the
    memory's. A change through the memory is followed step by step. Buffers that were edited by hand, loaded, copied or
    moved have another stamp than those that the backend is of; it refuses to work on them (`OutOfStep`), and they are
    taken up before it is asked again.

    Args:
        key_size: the key dimension.
        capacity: number of slots.
        search: follows the slots.
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
        for name, (dtype, empty) in FIELDS.items():
            shape = (capacity, key_size) if name == "keys" else (capacity,)
            if empty or torch.get_default_device().type != "cpu":
                slots = torch.full(shape, empty, dtype=dtype)
            else:  # numpy's zeros take no memory until they are written; torch's do
                slots = torch.from_numpy(np.zeros(shape, str(dtype).removeprefix("torch.")))
            self.register_buffer(name, slots)
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

    def _changing(self, change: Callable[..., Any], *args: Any) -> Any:
        """Change alone, with everything in step before."""
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
            touched, before, evicted = change(*args, bool(state.histories) or state.means is not None)
        except Exception:
            state.version -= 1  # it was refused, and nothing has changed
            raise
        if evicted:
            self.evicted.update(evicted)
        if before is not None:
            self._keep(touched, before)
        if search.native_index is None:
            with torch.no_grad(), torch.autocast(self.keys.device.type, enabled=False):
                search.changed(self, touched)
        search.__dict__["followed"] = state.version
        if state.means is not None and state.means.version == state.version - 1:
            with torch.no_grad():
                state.means.follow(self, touched, before, state.version)

    def class_means(self, values: Tensor) -> Tensor:
        """Return the mean of the keys of each value, (n, key_size), each key as often as its slot has examples.

        They are kept up from the first time that they are asked for: a change costs what it touches, and they are
        exactly those of the slots at any time.

        Args:
            values: (n,) int64; a value that no slot has gets zeros.
        """
        return self.with_class_means(None, lambda means: means.of(values))

    def class_vectors(self, project: Project, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return what is made of class means: vectors, (n, key_size), and offsets, (n,); and the examples, (n,) int64.

        Args:
            project: makes the vectors, (c, key_size), and the offsets, (c,), of means, (c, key_size). They are kept
                ready, and follow the means, as long as it is the same object.
            values: (n,) int64; a value that no slot has gets 0 examples.
        """
        return self.with_class_means(project, lambda means: means.vectors_of(values))

    def with_class_means(self, project: Project | None, ask: Callable[[ClassMeans], T]) -> T:
        """Return what `ask` returns of the class means, with vectors by `project`, called while nobody changes them."""
        while True:
            version = self.version
            with self.lock.shared():
                means = self._state.means
                in_step = means is not None and means.version == version == self._state.version
                if means is not None and in_step and (project is None or means.project is project):
                    return ask(means)
            self.lock.exclusive(self._make_means, project)

    def _make_means(self, project: Project | None) -> None:
        state, version = self._state, self.version
        with torch.no_grad():
            if state.means is None or state.means.version != version:
                state.means = ClassMeans(self, version)
            if project is not None:
                state.means.prepare(project)

    def begin_history(self, found: Any) -> History:
        """Follow the keys of what was found from now on, for a gradient that is to come."""
        history = History(self, found)
        self._state.histories.add(weakref.ref(history, self._state.histories.discard))
        return history

    def _keep(self, slots: Tensor, before: Tensor) -> None:
        """Hand over the keys that slots ((m,) int64, ascending) had, to the recalls whose gradient is to come."""
        for known in list(self._state.histories):
            history = known()
            if history is not None:
                history.add(slots, before)

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
        # network.half() must not round the keys, nor the hash vectors that they were hashed with.
        def at_least_float32(tensor: Tensor) -> Tensor:
            applied: Tensor = fn(tensor)
            rounded = applied.is_floating_point() and applied.dtype.itemsize < 4
            return tensor.to(applied.device, torch.float32) if rounded else applied

        self.lock.exclusive(self._move, at_least_float32, recurse)
        return self

    def _move(self, fn: Any, recurse: bool) -> None:
        state = self._state
        fits = self._search_fits()
        self._keep_all()
        super()._apply(fn, recurse)
        state.version, state.fits = state.version + 1, stamp(self._buffers) if fits else None

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        given = {name: state_dict[prefix + name] for name in NAMES if prefix + name in state_dict}
        mine = [name for name in state_dict if name.startswith(prefix)]
        try:
            self._check_given(given)
        except (ValueError, TypeError) as error:
            error_msgs.append(f"{error} Nothing of the memory {prefix.rstrip('.')!r} was loaded.")
            for name in mine:
                del state_dict[name]  # the search's part neither
            return
        self._keep_all()
        arguments = local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        super()._load_from_state_dict(state_dict, prefix, *arguments)
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

    def _keep_all(self) -> None:
        """All keys may change: keep them for gradients that are to come."""
        if self._state.histories:
            slots = (self.values >= 0).nonzero().squeeze(1)
            self._keep(slots, self.keys[slots])


class _State:
    """What follows from the buffers, and what tells whether it still does."""

    __slots__ = ("backend", "fits", "histories", "means", "version")

    def __init__(self) -> None:
        self.version = 0
        # The stamp of the buffers that the search's own state is of, where it has no index.
        self.fits: tuple[Any, ...] | None = None
        self.backend: Any = None
        self.histories: set[weakref.ref[History]] = set()  # recalls whose gradient is to come
        self.means: ClassMeans | None = None  # once they were asked for
