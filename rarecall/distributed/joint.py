"""One memory that several ranks hold together."""

from __future__ import annotations

import copy
import os
import threading
import weakref
import zlib
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Shard

from rarecall.backend.torch_backend import TorchBackend
from rarecall.checks import check_room
from rarecall.class_means import Project
from rarecall.distributed.backends import JointBackend
from rarecall.distributed.team import pack, unpack
from rarecall.gradient import History
from rarecall.memory import Memory
from rarecall.recall import Recall
from rarecall.search import SEARCHES
from rarecall.slots import FIELDS, NAMES, Slots

OneMemory = TypeVar("OneMemory", bound=Memory)


def empty_like(memory: Memory, kind: type[OneMemory], capacity: int, device: torch.device) -> OneMemory:
    """Return an empty memory with the settings and the kind of search of another, and a capacity of its own."""
    search: Any = memory.search
    if type(search) in SEARCHES.values():
        search = type(search)(memory.key_size, capacity, **search.settings())
    else:
        search = copy.deepcopy(search)  # of one's own: it takes up the slots that it finds
    settings: dict[str, Any] = memory._settings() | {"capacity": capacity, "search": search}
    with device:
        return kind(**settings).to(device, memory.keys.dtype)


class Part(Memory):
    """What one rank holds of a memory: a memory of its own slots, whose recalls and changes are those of all ranks."""

    shared = True
    joint: JointBackend
    whole: weakref.ref[JointMemory]

    def _followed(self) -> Any:
        super()._followed()
        return self.joint

    def begin_history(self, found: Any) -> History:
        history = super().begin_history(found)
        if self.joint.sharded:
            history.slots = None  # other ranks may ask for the keys of any
        return history

    def _check_recall(self, recall: Recall, asked: nn.Module | None = None) -> None:
        super()._check_recall(recall, self.whole())

    def _forget(self, name: str, ids: Tensor) -> int:
        joint, numbers = self.joint, ids.long().cpu().unique()
        if name == "slots":
            if int(ids.max()) >= joint.capacity:
                raise ValueError(f"forget got slot {int(ids.max())}; the memory has slots 0 to {joint.capacity - 1}.")
            ids = ids[(ids >= joint.first) & (ids < joint.first + joint.count)] - joint.first
        said = joint.team.meet("forget", zlib.crc32(name.encode()), zlib.crc32(numbers.numpy().tobytes()))
        joint.team.raise_together(_check_same, said)
        return super()._forget(name, ids) if len(ids) else self._empty(ids.long())

    def _make_room(self, count: int, zeros: int, confirmed: Tensor) -> None:
        team = self.joint.team
        heard = team.meet("make room", count, zeros, len(confirmed))
        count, zeros = heard[:, :2].sum(0).tolist()
        team.raise_together(check_room, count, self.capacity, zeros)
        super()._make_room(count, zeros, team.gather(confirmed, heard[:, 2].tolist()))

    def _empty(self, slots: Tensor) -> int:
        emptied = self.joint.of_all(self.joint.team.meet("empty", len(slots))[:, 0].tolist())
        if emptied:
            self._put_empty(slots)
            self.joint.filled -= emptied
        return emptied


def _check_same(said: Tensor) -> None:
    if not bool((said == said[0]).all()):
        raise ValueError("The ranks are to forget different things. Give forget the same on all of them.")


def _of_part(name: str) -> Any:
    return property(lambda self: getattr(self._part, name), lambda self, value: setattr(self._part, name, value))


def _of_all(name: str) -> Any:
    return property(lambda self: self._view(name))


class JointMemory(Memory):
    """A memory that several ranks hold together: the calls of `Memory`, made by all ranks, each with its own batch.

    All ranks make the same calls in the same order (of a rank without examples with empty tensors), and the memory is
    bit for bit the one that a single process has after the same calls with the ranks' batches joined in their order.
    `loss` is the mean over all ranks' queries; its gradient is by this rank's. A call that one rank cannot make raises
    on all. The numbers that are drawn are those of rank 0's generator; the others draw too.

    It has no parameters and no buffers, so that neither DistributedDataParallel nor FSDP sends or changes any of it.
    """

    key_size, k, margin = _of_part("key_size"), _of_part("k"), _of_part("margin")
    inverse_temperature, age_noise = _of_part("inverse_temperature"), _of_part("age_noise")
    averaging, eviction = _of_part("averaging"), _of_part("eviction")
    lock, search, _state = _of_part("lock"), _of_part("search"), _of_part("_state")
    now = property(lambda self: self._joint.now)
    evicted = _of_part("evicted")  # of this rank's slots
    keys, values, sources = _of_all("keys"), _of_all("values"), _of_all("sources")
    counts, times, ages = _of_all("counts"), _of_all("times"), _of_all("ages")
    capacity = property(lambda self: self._joint.capacity)
    _part: Part

    def __init__(self, part: Part, joint: JointBackend) -> None:
        nn.Module.__init__(self)
        self.__dict__["_part"] = part  # not as a submodule: its buffers are nobody's but this rank's
        self._one_call = threading.RLock()
        part.joint, part.whole, joint.part = joint, weakref.ref(self), part

    @property
    def backend(self) -> Any:
        """What does the arithmetic, across ranks."""
        self._part.backend  # noqa: B018 - takes up what was edited by hand
        return self._joint

    @property
    def bytes_sent(self) -> int:
        """Payload that this rank has sent to others so far."""
        return self._joint.team.sent

    @property
    def _joint(self) -> JointBackend:
        return self._part.joint

    def __len__(self) -> int:
        """Return the number of filled slots of all ranks, as of the last recall or change."""
        return self._joint.filled

    def forward(self, query: Tensor, exclude: Tensor | None = None) -> Recall:
        if not self._joint.sharded:
            return self._ask(query, exclude)  # every rank has all of it, and asks when it likes
        recall: Recall = self._together("recall", self._ask, query, exclude)
        return recall

    def _ask(self, query: Tensor, exclude: Tensor | None) -> Recall:
        part, joint = self._part, self._joint
        joint.with_gradient = query.requires_grad and torch.is_grad_enabled()
        recall = part.forward(query, exclude)
        recall.memory = self
        if joint.with_gradient and recall.history is None:
            recall.history = part.begin_history(recall.found)  # another rank's gradient needs this one's keys
        return recall

    def loss(self, recall: Recall, target: Tensor, mask: Tensor | None = None) -> Tensor:
        return self._together("loss", self._part.loss, recall, target, mask)

    def update(
        self,
        recall: Recall,
        target: Tensor,
        source: Tensor | None = None,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        self._together("update", self._part.update, recall, target, source, mask, generator)

    def write(self, keys: Tensor, values: Tensor, sources: Tensor | None = None, counts: Tensor | None = None) -> None:
        self._together("write", self._part.write, keys, values, sources, counts)

    def put(self, slots: Tensor, *, now: int, **rows: Tensor) -> None:
        """Set what slots hold: all ranks give all of them."""
        first, end = self._joint.first, self._joint.first + self._joint.count
        mine = (slots >= first) & (slots < end)
        own = {name: row[mine] for name, row in rows.items()}
        self._together("put", lambda: self._part.put(slots[mine] - first, now=now, **own))

    def forget(self, **given: Any) -> int:
        return self._together("forget", lambda: self._part.forget(**given))

    def reset(self) -> None:
        self._together("reset", self._part.reset)

    def slots(self) -> Slots:
        """Return copies of what the filled slots of all ranks hold, on every rank."""
        slots: Slots = self._together("slots", self._gather_slots)
        return slots

    def trace(self, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Return the source and the age of each slot, as `Memory` does; each rank may ask for others."""
        if not self._joint.sharded:
            return self._part.trace(slots)
        found: tuple[Tensor, Tensor] = self._together("trace", self._trace, slots)
        return found

    def class_means(self, values: Tensor) -> Tensor:
        """Return the mean of the keys of each value on all ranks, as `Memory` does; each rank may ask for others."""
        if not self._joint.sharded:
            return self._part.class_means(values)
        means: Tensor = self._together("class_means", self._add_means, values)[0]
        return means

    def class_vectors(self, project: Project, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return what is made of the class means of all ranks, as `Memory` does."""
        if not self._joint.sharded:
            return self._part.class_vectors(project, values)
        means, examples = self._together("class_means", self._add_means, values)
        return *project(means), examples

    def merge(self, other: Memory) -> None:
        """Write all that each rank's other memory holds into this one; of one that all ranks hold, rank 0 brings it."""
        if isinstance(other, JointMemory):
            held, bring = other.slots(), self._joint.team.rank == 0
            order = held.ages.sort(descending=True, stable=True).indices[: None if bring else 0]
            self.write(held.keys[order], held.values[order], held.sources[order], held.counts[order])
        else:
            super().merge(other)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all of it to one file, which `Memory.load` opens; rank 0 does."""
        self._together("save", self._save_whole, path)

    def gathered(self) -> Memory:
        """Return an ordinary memory with all that the ranks hold, on every rank."""
        return self._together("gathered", self._gather_memory)

    @classmethod
    def load(cls, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise: a file is read by `Memory.load`, and spread by `shard` or `replicate`."""
        raise TypeError("A distributed memory is made from an ordinary one: shard(Memory.load(path), mesh).")

    def begin_history(self, found: Any) -> History:
        return self._part.begin_history(found)

    # ---- together ----

    @torch.compiler.disable
    def _together(self, name: str, call: Callable[..., Any], *args: Any) -> Any:
        def in_step() -> Any:
            self._part.lock.exclusive(self._part._get_in_step)
            return call(*args)

        with self._one_call:
            return self._joint.team.call(name, in_step)

    def _gather_slots(self) -> Slots:
        held, joint = self._part.slots(), self._joint
        counts = joint.team.meet("slots", len(held.slots))[:, 0].tolist()
        if not joint.sharded:
            return held
        held = held._replace(slots=held.slots + joint.first)
        like = [(tensor.dtype, tensor.shape[1:].numel()) for tensor in held]
        tensors = zip(Slots._fields, unpack(joint.team.gather(pack(*held), counts), *like), strict=True)
        return Slots(*(tensor if name == "keys" else tensor.squeeze(1) for name, tensor in tensors))

    def _add_means(self, values: Tensor) -> tuple[Tensor, Tensor]:
        team, part = self._joint.team, self._part
        counts = team.meet("class_means", len(values))[:, 0].tolist()
        wanted = team.gather(values, counts)
        part.class_means(wanted[:0])  # makes them, or has kept them up
        means = part._state.means
        assert means is not None
        sums, examples = means.totals(wanted)
        heard = team.exchange(torch.cat([sums, examples[:, None]], 1), counts, [len(values)] * team.size)
        total = heard.view(team.size, len(values), -1).sum(0)  # of integers: in any order the same
        return means.mean(total[:, :-1], total[:, -1]), total[:, -1]

    def _trace(self, slots: Tensor) -> tuple[Tensor, Tensor]:
        self._joint.team.meet("trace")
        used, rows = slots.clamp(min=0).unique(return_inverse=True)
        sources, times = (self._joint.fetch(used, held)[rows] for held in (self._part.sources, self._part.times))
        return self._traced(slots, sources, times)

    def _gather_memory(self) -> Memory:
        memory = empty_like(self, Memory, self.capacity, self.now.device)
        slots, *rows, ages = self._gather_slots()
        with torch.no_grad():
            memory.now.copy_(self.now)
            for name, tensor in zip(FIELDS, (*rows, memory.now - ages), strict=True):
                memory._buffers[name][slots] = tensor
        return memory

    def _view(self, name: str) -> Any:
        """A field of the slots of all ranks: a DTensor of which this rank has its own, or a tensor that all have."""
        self._joint.team.refuse_if_lost()
        joint, mine = self._joint, getattr(self._part, name)
        if not joint.sharded:
            return mine
        shape = torch.Size([joint.capacity, *mine.shape[1:]])
        return DTensor.from_local(
            mine[: joint.count], joint.team.mesh, [Shard(0)], run_check=False, shape=shape, stride=mine.stride()
        )

    def _own_rows(self, tensor: Tensor) -> Tensor:
        """Of a field of the slots of all ranks, those of this rank."""
        joint = self._joint
        if isinstance(tensor, DTensor):
            tensor = tensor.to_local()
        elif joint.sharded and len(tensor) == joint.capacity:
            tensor = tensor[joint.first : joint.first + joint.count]
        return tensor

    def _save_whole(self, path: str | os.PathLike[str]) -> None:
        memory, team = self._gather_memory(), self._joint.team
        try:
            if team.rank == 0:
                memory.save(path)
        except Exception as error:
            team.refuse("save", error)
            raise
        team.meet("save")

    # ---- nn.Module: copying, moving, saving, loading ----

    def __deepcopy__(self, memo: Any) -> JointMemory:
        part = copy.deepcopy(self._part, memo)
        return JointMemory(part, part.joint)

    def __reduce__(self) -> Any:
        return Elsewhere, (self._joint.team.rank,)

    def _apply(self, fn: Any, recurse: bool = True) -> JointMemory:
        self._joint.team.refuse_if_lost()
        device = fn(torch.empty((), dtype=torch.int64, device=self.now.device)).device
        if device.type != self.now.device.type:
            raise ValueError(
                f"Cannot move a memory of a mesh of {self.now.device.type} to {device}. Move it before it is sharded."
            )
        self._part._apply(fn, recurse)
        return self

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        self._joint.team.refuse_if_lost()
        for name in FIELDS:
            destination[prefix + name] = self._view(name)
        destination[prefix + "now"] = self.now

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
        self._joint.team.refuse_if_lost()
        given = {name: state_dict[prefix + name] for name in NAMES if prefix + name in state_dict}
        missing_keys += [prefix + name for name in NAMES if strict and name not in given]
        if self._joint.count:
            own = {prefix + name: self._own_rows(each) if name in FIELDS else each for name, each in given.items()}
        else:  # a rank without slots has one that is never filled
            own = {prefix + name: each for name, each in given.items() if name == "now"}
        arguments = local_metadata, False, missing_keys, unexpected_keys, error_msgs
        self._part._load_from_state_dict(own, prefix, *arguments)


class Elsewhere:
    """Stands for the memory of another process in what that process has sent, such as its recalls."""

    version = -1

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.backend = TorchBackend(self)  # type: ignore[arg-type] # for what was found, which is only looked at

    def __call__(self, *args: Any) -> NoReturn:
        """Raise: only the rank that holds it can ask it."""
        raise ValueError(f"This memory is that of rank {self.rank}, which alone can use it.")
