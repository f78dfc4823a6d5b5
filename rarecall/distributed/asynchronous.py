"""Ranks that ask and update one sharded memory each at its own pace: the paper's asynchronous replicas.

Each rank is two things. As the owner of its slots it answers the others, in a thread for each of them (owner.py); as a
replica it asks all owners, itself included. An owner makes every change in one piece and alone; nothing keeps owners in
step.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor

from rarecall import backend
from rarecall.backend.torch_backend import TorchFound
from rarecall.checks import check_finite, check_room
from rarecall.distributed.backends import Examples, JointBackend, newest_of
from rarecall.distributed.joint import JointMemory, Part
from rarecall.distributed.owner import Conflicts, Owner, Tensors
from rarecall.distributed.team import NUMBERS
from rarecall.distributed.wire import Peers

NO_VERSION = -(2**62)  # recalls of replicas have other versions than those of all ranks together


@contextmanager
def asynchronous(memory: JointMemory) -> Iterator[Conflicts]:
    """Let each rank ask and update a sharded memory at its own pace, until all ranks have left the block.

    Inside, `memory(query)`, `loss`, `update`, `write` and `forget` are calls of this rank alone, and `loss` is the mean
    over its own queries. What concerns all ranks (`slots`, `save`, `state_dict`, ...) is refused. Leaving waits for the
    others; then the memory is as before, with what all of them have learned. An error on one rank is one on all.

    Yields:
        How often replicas came into each other's way in the slots of this rank.

    Example:
        >>> memory = shard(Memory(key_size=256, capacity=10**6), mesh)   # doctest: +SKIP
        >>> with asynchronous(memory):                                   # doctest: +SKIP
        ...     for x, target in batches:                                # as many as this rank has
        ...         recall = memory(network(x))
        ...         memory.update(recall, target)
        >>> memory.save(path)                                            # doctest: +SKIP
    """
    if not isinstance(memory, JointMemory) or not memory._joint.sharded:
        raise ValueError("asynchronous got a memory that is not sharded; expected one that `shard` returned.")
    part, joint = memory._part, memory._joint
    if isinstance(part, Replica):
        part.joint.team.refuse("asynchronous")
    if part.keys.device.type != "cpu":
        raise ValueError(f"asynchronous got a memory on {part.keys.device}; replicas work on CPUs only.")
    owner = Owner(part, joint)
    as_backend: Any = owner

    def connect() -> Peers:
        part.joint = as_backend  # before the first request comes
        try:
            return Peers(joint.team, owner)
        except BaseException:
            part.joint = joint
            raise

    peers: Peers = memory._together("asynchronous", connect)
    replica = Replica(**part._settings() | {"capacity": 1}).to(part.keys.dtype)
    replica.joint, replica.whole = AsynchronousBackend(peers, owner, replica, joint), weakref.ref(memory)
    replica._state.version = NO_VERSION
    memory.__dict__["_part"] = replica
    try:
        yield owner.conflicts
        peers.leave()
        joint.filled = sum(joint.team.meet("leaving asynchronous", owner.local.filled)[:, 0].tolist())
        part.joint = joint  # after an error it stays the owner's, whose threads may be in the middle of a request
    except BaseException as error:
        owner.failed = joint.team.lost = f"{type(error).__name__}: {error}"
        raise
    finally:
        memory.__dict__["_part"] = part
        joint.team.sent += peers.sent
        peers.close()


class Replica(Part):
    """A memory without slots, whose recalls and changes are requests to the owners."""

    joint: AsynchronousBackend

    def _forget(self, name: str, ids: Tensor) -> int:
        if name == "slots" and int(ids.max()) >= self.joint.capacity:
            raise ValueError(f"forget got slot {int(ids.max())}; the memory has slots 0 to {self.joint.capacity - 1}.")
        forgotten = self.joint.forget(name, ids.long().unique())
        if forgotten:
            self._change("nothing")  # so that this rank's recalls are out of date
        return forgotten


@dataclass(frozen=True, eq=False)
class AgedFound(TorchFound):
    """What queries found at owners.

    Attributes:
        clocks: (n, ranks) int64, those of the owners when they were asked.
    """

    clocks: Tensor

    @property
    def oldest(self) -> Tensor:
        """(ranks,) int64: the clocks at the first of the recalls that were stacked."""
        return self.clocks.amin(0) if len(self.clocks) else self.clocks.new_zeros(self.clocks.shape[1])


class AsynchronousBackend(JointBackend):
    """What a replica does: asks all owners, and puts their answers together."""

    sharded = True
    rows = ("query", "inverse_lengths", "slots", "similarities", "values", "weights", "clocks")  # of a stacked recall

    def __init__(self, peers: Peers, owner: Owner, part: Part, joint: JointBackend) -> None:
        self.peers, self.owner, self.part, self.ranks = peers, owner, part, joint.team.size
        self.capacity, self.length, self.filled = joint.capacity, joint.length, joint.filled
        self.team: Any = Alone(peers)
        self.with_gradient = False

    @property
    def now(self) -> Tensor:
        """() int64: updates of this rank's slots so far."""
        return self.owner.part.now

    def found(self, tensors: dict[str, Tensor], exclude: Tensor | None) -> Any:
        return AgedFound(**tensors, exclude=exclude)

    def recall(self, query: Tensor, exclude: Tensor | None) -> Any:
        check_finite(int((~query.isfinite()).sum()))  # before anyone is asked
        own: list[Any] = []

        def ask_own() -> Tensors:
            found, answer = self.owner.recall(query, exclude)
            own.append(found)
            return answer

        answers = self.peers.ask("recall", [(query, exclude)] * self.ranks, ask_own)
        clocks, filled = torch.stack([answer[0] for answer in answers], 1)
        self.filled = int(filled.sum())
        merged = self.merge(own[0].query, own[0].inverse_lengths, [answer[1:] for answer in answers], exclude)
        tensors = {name: getattr(merged, name) for name in self.rows if name != "clocks"}
        return self.found(tensors | {"clocks": clocks.expand(len(query), -1)}, exclude)

    def recall_gradient(
        self, found: Any, keys: Tensor, changed: tuple[Tensor, Tensor], of: tuple[Tensor | None, ...]
    ) -> Tensor:
        """Return the gradient of the queries.

        It is by the keys as this rank's own updates found them. What others have confirmed since counts as it is now,
        and what they have written over not at all.
        """
        used, rows = found.slots.clamp(min=0).unique(return_inverse=True)
        fetched = self._fetch(used, found.oldest[used // self.length])
        slots, before = changed
        own = torch.isin(used, slots)
        fetched[own] = before[torch.searchsorted(slots, used[own])]
        return self._gradient(found, torch.where(found.slots < 0, -1, rows), fetched, of)

    def loss(
        self, found: Any, target: Tensor, mask: Tensor | None, with_gradient: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Return the mean over this rank's queries. One whose neighbours were written over since adds nothing."""
        self._clocks, self._late_clocks, self._late = found.oldest, found.oldest, target[:0]
        return super().loss(found, target, mask, with_gradient)

    def _newest(self, target: Tensor, exclude: Tensor | None, counts: list[int]) -> Tensor:
        answers = self.peers.ask("newest", [(target, exclude)] * self.ranks)
        self._late_clocks, slots, times = (torch.stack(each) for each in zip(*answers, strict=True))
        self._late = newest_of(slots, times)
        return self._late

    def _keys(self, slots: Tensor) -> Tensor:
        flat = slots.flatten()
        owners, late = flat // self.length, torch.isin(flat, self._late)  # seen later than the neighbours
        fetched = self._fetch(flat, torch.where(late, self._late_clocks[owners], self._clocks[owners]))
        return fetched.view(*slots.shape, self.part.key_size)

    def _fetch(self, slots: Tensor, clocks: Tensor) -> Tensor:
        """The keys of slots of any ranks, (n,) -> (n, key_size); zeros where one was founded after its clock."""
        rows = [(slots // self.length == rank).nonzero().squeeze(1) for rank in range(self.ranks)]
        asked = [(slots[each] - rank * self.length, clocks[each]) for rank, each in enumerate(rows)]
        keys = self.part.keys.new_empty((len(slots), self.part.key_size))
        answers = self.peers.ask("keys", [each if len(each[0]) else None for each in asked])
        for each, answer in zip(rows, answers, strict=True):
            if len(each):
                keys[each] = answer[0]
        return keys

    def update(self, found: Any, *args: Any) -> Any:
        self._clocks = found.oldest
        return super().update(found, *args)

    def _remember(
        self, call: str, examples: Examples, generator: torch.Generator | int | None, keep: bool
    ) -> backend.Change:
        """Choose owners for what needs a slot, those with the oldest; then tell all owners, and wait until they did."""
        keys, nearest = examples.keys, examples.nearest
        missed = (nearest < 0).nonzero().squeeze(1)
        check_finite(int((~keys.isfinite()).sum()))
        check_room(len(missed), self.capacity, int((~keys.any(1)).sum()))
        seed, owners = backend.draw(generator), nearest // self.length
        if len(missed):
            offers = [offer for [offer] in self.peers.ask("offers", [(torch.tensor(len(missed)), seed)] * self.ranks)]
            of = torch.arange(self.ranks).repeat_interleave(torch.tensor([len(offer) for offer in offers]))
            owners[missed] = of[torch.cat(offers).sort(stable=True).indices[: len(missed)]]
        clocks = self._clocks if call == "update" else torch.zeros(self.ranks, dtype=torch.int64)
        told = []
        for rank in range(self.ranks):
            mine = owners == rank
            slots = torch.where(nearest < 0, -1, nearest - rank * self.length)[mine]
            optional = (None if each is None else each[mine] for each in (examples.sources, examples.counts))
            about = clocks[rank], seed, torch.tensor(int(keep))
            told.append((*about, keys[mine], slots, examples.values[mine], *optional))
        answers = self.peers.ask(call, told)
        if not keep:
            return self.nothing(keep)
        touched, before = (torch.cat(each) for each in zip(*answers, strict=True))
        return touched, before, []  # the owners count what they evict

    def nothing(self, keep: bool) -> backend.Change:
        """Return what a change returns that touches no slot."""
        return self.part.values[:0], None, []

    def forget(self, name: str, ids: Tensor) -> int:
        """Empty slots of all ranks; return how many."""
        asked: list[Tensors] = [(ids,)] * self.ranks
        if name == "slots":
            asked = [(ids[ids // self.length == rank] - rank * self.length,) for rank in range(self.ranks)]
        return sum(int(count) for [count] in self.peers.ask(f"forget {name}", asked))


class Alone:
    """Stands for the team in calls that one rank makes alone, and refuses those that all make together."""

    calls = ("recall", "loss", "update", "write", "forget")

    def __init__(self, peers: Peers) -> None:
        self.peers = peers

    @property
    def sent(self) -> int:
        """As that of a team."""
        return self.peers.team.sent + self.peers.sent

    def call(self, name: str, method: Callable[..., Any], *args: Any) -> Any:
        """Return what a method returns, if it is of one rank."""
        if name not in self.calls:
            self.refuse(name)
        self.peers.refuse_if_lost()
        return method(*args)

    def refuse_if_lost(self) -> None:
        """Raise: the state is that of all ranks."""
        self.refuse("state")

    def refuse(self, name: str) -> NoReturn:
        """Raise: all ranks would have to make this call."""
        raise RuntimeError(
            f"`{name}` concerns the slots of all ranks, and inside `asynchronous` each goes its own way. Leave the "
            "block first: that waits for the others."
        )

    def meet(self, call: str, *numbers: int) -> Tensor:
        """Return what this rank says, (1, NUMBERS)."""
        return torch.tensor([[*numbers, *[0] * (NUMBERS - len(numbers))]])

    def gather(self, rows: Tensor, counts: Sequence[int]) -> Tensor:
        """Return this rank's rows."""
        return rows
