"""The slots of one rank, as replicas ask for them and change them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rarecall.distributed.backends import NARROW, Examples, JointBackend, confirming
from rarecall.distributed.joint import Part
from rarecall.memory import Memory

Tensors = Sequence[Tensor | None]
EMPTY = -(2.0**53)  # an empty slot is older than any filled one


@dataclass
class Conflicts:
    """What replicas wanted of this rank's slots, and how often another had come before.

    Attributes:
        written: examples that got a slot of their own here.
        taken: of these, those for whom an old slot was chosen that another replica wrote or confirmed before they came.
            They got the next oldest.
        confirmed: examples that confirmed a slot here.
        moved: examples that were to confirm a slot that was written over or forgotten since their recall. They were
            written to a slot of their own, and count there too.
    """

    written: int = 0
    taken: int = 0
    confirmed: int = 0
    moved: int = 0


class Owner:
    """Answers requests for the slots of this rank; as a backend of these, notes which were founded when.

    Its requests have slots of this rank, and the owner's clock (updates so far) when the replica made its recall: what
    was founded later is not what the replica saw. All updates of all replicas come to all owners, so that in the end
    their clocks are the same.

    Attributes:
        conflicts: what is counted.
        done: whether this rank's own training has left the block.
        failed: why it has left it by an error.
    """

    sharded = True

    def __init__(self, part: Part, joint: JointBackend) -> None:
        self.part, self.first, self.count, self._own = part, joint.first, joint.count, joint._own
        self.conflicts, self.done, self.failed = Conflicts(), False, ""
        # For whoever asks the memory after an error, and is refused.
        self.team, self.capacity, self.filled = joint.team, joint.capacity, joint.filled
        self._founded = torch.zeros_like(part.values)  # the update that last wrote or emptied each slot
        self._offered: dict[int, Tensor] = {}  # to each replica

    @property
    def now(self) -> Tensor:
        """() int64: updates so far."""
        return self.part.now

    @property
    def local(self) -> Any:
        """The backend of this rank's slots."""
        return self.part._state.backend

    def answer(self, request: str, rank: int, given: Tensors) -> Tensors:
        """Return the answer to a request of a replica, by name."""
        if self.failed:
            raise RuntimeError(f"it has stopped: {self.failed}")
        requests: dict[str, Callable[..., Tensors]] = {
            "recall": lambda *query: self.recall(*query)[1],
            "keys": self.keys,
            "newest": self.newest,
            "offers": lambda *wanted: self.offers(rank, *wanted),
            "update": lambda *examples: self.remember("update", rank, *examples),
            "write": lambda *examples: self.remember("write", rank, *examples),
            "forget value": lambda ids: self.forget("values", ids),
            "forget source": lambda ids: self.forget("sources", ids),
            "forget slots": lambda slots: self.forget("", slots),
            "done": lambda: [torch.tensor(int(self.done))],
        }
        return requests[request](*given)

    # ---- what is asked ----

    def recall(self, query: Tensor, exclude: Tensor | None) -> tuple[Any, Tensors]:
        """Return what was found here, and the answer: (clock, filled slots); slots, similarities, values, times."""
        with self.part.lock.shared():
            found = self.local.recall(query, exclude)
            slots = found.slots
            columns = max(1, int((slots >= 0).sum(1).max())) if len(slots) else 1
            slots = slots[:, :columns]
            about = torch.tensor([int(self.part.now), self.local.filled])
            times = self.part.times[slots.clamp(min=0)]
        return found, [about, *map(_narrow, (slots, found.similarities[:, :columns], found.values[:, :columns], times))]

    def keys(self, slots: Tensor, clocks: Tensor) -> Tensors:
        """Return the keys of slots, (n,) -> (n, key_size); zeros where a slot was founded after its clock."""
        with self.part.lock.shared():
            seen = self._founded[slots] <= clocks
            return [self.part.keys[slots] * seen[:, None]]

    def newest(self, target: Tensor, exclude: Tensor | None) -> Tensors:
        """Return clock, and the newest slot with each value and its time, (n,) each; time -1 where there is none."""
        with self.part.lock.shared():
            slots = self.local.newest(target, exclude)
            times = torch.where(slots < 0, -1, self.part.times[slots.clamp(min=0)])
            return [self.part.now.cpu(), slots + self.first, times]

    def offers(self, rank: int, count: Tensor, seed: Tensor) -> Tensors:
        """Return time less noise of the slots that would be written, the least first, (at most count,) float64."""
        with self.part.lock.shared():
            self._offered[rank] = self._offers(int(count), int(seed))
            return [self._offered[rank]]

    def _offers(self, count: int, seed: int) -> Tensor:
        room = self.count - self.local.filled
        empty = EMPTY - torch.arange(room, max(room - count, 0), -1, dtype=torch.float64)  # the more room, the sooner
        nothing = self.part.values[:0]
        left = min(count, self.count) - len(empty)
        oldest = self.local.offers(nothing, left, self._own(seed)).cpu() if left else empty[:0]
        return torch.cat([empty, oldest])

    # ---- what is changed ----

    def remember(
        self,
        call: str,
        rank: int,
        clock: Tensor,
        seed: Tensor,
        keep: Tensor,
        keys: Tensor,
        nearest: Tensor,
        values: Tensor,
        sources: Tensor | None,
        counts: Tensor | None,
    ) -> Tensors:
        """Make an update, or a write, of examples whose nearest slot is here or that are to be written here.

        Returns:
            Where it is to keep them, the slots touched, ascending, and the keys that they had.
        """
        args = call, rank, int(clock), int(seed), Examples(keys, nearest, values, sources, counts)
        touched, before, _ = self.part._changing(self._remember, *args)
        return [touched + self.first, before] if keep else []

    def _remember(self, call: str, rank: int, clock: int, seed: int, examples: Examples) -> Any:
        part, conflicts = self.part, self.conflicts
        keys, nearest, values, sources, counts = examples
        offered = self._offered.pop(rank, None)
        if offered is not None:
            chosen = offered[: int((nearest < 0).sum())]
            left = Counter(self._offers(len(chosen), seed).tolist())
            conflicts.taken += (Counter(chosen[chosen > EMPTY].tolist()) - left).total()
        at = nearest.clamp(min=0)
        moved = (nearest >= 0) & ((self._founded[at] > clock) | (part.values[at] != values))
        nearest = torch.where(moved, -1, nearest)
        # As if they came one after the other: where there are more than slots, the last ones stay.
        writing = nearest < 0
        kept = ~writing | (writing.flip(0).cumsum(0).flip(0) <= self.count)
        keys, nearest, values = keys[kept], nearest[kept], values[kept]
        sources, counts = (None if each is None else each[kept] for each in (sources, counts))
        conflicts.moved += int(moved.sum())
        conflicts.written += int((nearest < 0).sum())
        conflicts.confirmed += int((nearest >= 0).sum())
        own = self._own(seed)
        if call == "write":
            part._change("write", keys, values, sources, counts, own)
        else:
            part._change("update", confirming(self.local, keys, nearest, values), values, sources, None, own)
        return self._touched

    def forget(self, field: str, ids: Tensor) -> Tensors:
        """Empty the slots with these values or sources, or these slots; return how many."""
        return [torch.tensor(self.part._changing(self._forget, field, ids))]

    def _forget(self, field: str, ids: Tensor) -> int:
        part = self.part
        chosen = torch.isin(getattr(part, field)[: part.used], ids).nonzero().squeeze(1) if field else ids
        return Memory._empty(part, chosen[part.values[chosen] >= 0])  # of this rank alone

    # ---- a backend of this rank's slots ----

    def update(self, found: Any, *args: Any) -> Any:
        """As the backend does, and note what was founded."""
        return self._noted(self.local.update(found, *args[:-1], True), found.slots[:, 0])

    def write(self, *args: Any) -> Any:
        """As the backend does, and note what was founded."""
        return self._noted(self.local.write(*args[:-1], True), self.part.values[:0])

    def put(self, slots: Tensor, *args: Any) -> Any:
        """As the backend does, to empty slots, and note that nobody has seen what will be there."""
        self._founded[slots] = self.part.now + 1
        return self.local.put(slots, *args)

    def _noted(self, change: Any, confirmed: Tensor) -> Any:
        touched = change[0]
        self._founded[touched[~torch.isin(touched, confirmed)]] = self.part.now
        self._touched = change
        return change


def _narrow(tensor: Tensor) -> Tensor:
    """As int32 where that is enough."""
    fits = tensor.dtype == torch.int64 and (not tensor.numel() or int(tensor.max()) < NARROW)
    return tensor.int() if fits else tensor
