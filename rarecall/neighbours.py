"""From the slots that a search found to the neighbours of a query, and the gradient from them back to the query."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from rarecall import rules
from rarecall.native import extension, loaded, search_of

if TYPE_CHECKING:
    from rarecall._native import Found
    from rarecall.memory import Memory
    from rarecall.search import Search

# Of n queries: they themselves of length 1, (n, key_size); slots, similarities, values, weights, each (n, k).
Tensors: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]

# Of a recall: the normalised queries, (n, key_size); by what they were multiplied, (n,); slots and weights, (n, k).
Recalled: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor]
# The gradients of the normalised queries, of similarities and of weights, None for 0.
Gradients: TypeAlias = tuple[Tensor | None, Tensor | None, Tensor | None]


class Neighbours(torch.autograd.Function):
    """Normalises queries, searches for their neighbours, scores, sorts and weighs them.

    The gradient of a similarity is the slot's key as it stood when it was found, though the memory may have changed
    since: an update usually comes before `backward`. Rather than a copy of all keys found, (n, k, key_size), the few
    that change are kept; see `History`.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, exclude: Tensor | None, memory: Memory) -> Tensors:
        """query: (n, key_size) -> the same of length 1; slots, similarities, values, weights, each (n, k)."""
        if memory.known_slots is None:
            units, inverse_lengths, slots, similarities, values, weights = _found(query, exclude, memory)
        else:
            found: Found = search_of(memory).found(memory, query.contiguous(), exclude)
            units, inverse_lengths = found.query, found.inverse_lengths
            slots, similarities, values, weights = found.slots, found.similarities, found.values, found.weights
        ctx.mark_non_differentiable(slots, values)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(units, inverse_lengths, slots, weights)
        ctx.inverse_temperature = memory.inverse_temperature
        ctx.history = memory.histories.begin(memory.keys, slots)
        return units, slots, similarities, values, weights

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any,
        of_units: Tensor | None,
        _: None,
        of_similarities: Tensor | None,
        __: None,
        of_weights: Tensor | None,
    ) -> tuple[Tensor | None, ...]:
        """From the gradients of units, (n, key_size), similarities and weights, (n, k), to that of the query."""
        by_slot = ctx.history.gradient_natively if ctx.history.usable else ctx.history.gradient
        of = (of_units, of_similarities, of_weights)
        gradient: Tensor = by_slot(ctx.saved_tensors, of, ctx.inverse_temperature)
        return gradient, None, None


def neighbours(query: Tensor, exclude: Tensor | None, memory: Memory) -> Found | Tensors:
    """The same; where no gradient can be asked for, without room for one.

    `slots_of(memory)` was asked just before.
    """
    if query.requires_grad and torch.is_grad_enabled():
        with_gradient: Tensors = Neighbours.apply(query, exclude, memory)
        return with_gradient
    if memory.known_slots is not None:
        found: Found = search_of(memory).found(memory, query.contiguous(), exclude)
        return found
    units, _, slots, similarities, values, weights = _found(query, exclude, memory)
    return units, slots, similarities, values, weights


def _found(
    query: Tensor, exclude: Tensor | None, memory: Memory
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """By torch: query of length 1, by what it was multiplied, slots, similarities, values, weights."""
    units, inverse_lengths = rules.normalise(query)
    search: Search = search_of(memory)
    slots, similarities, values, weights = rules.recall(units, search.slots(memory, units, exclude), exclude, memory)
    return units, inverse_lengths, slots, similarities, values, weights


class Histories:
    """The histories of one memory whose gradient is still to come.

    `version` grows with every change of the memory: a recall of an older version is out of date.
    """

    def __init__(self) -> None:
        self.version = 0
        self.open: set[weakref.ref[History]] = set()  # a WeakSet takes longer to say that it is empty

    def begin(self, keys: Tensor, slots: Tensor) -> History:
        """Follows the keys ((capacity, key_size)) of these slots ((n, k) int64, -1 for none) from now on."""
        history = History(keys, slots)
        self.open.add(weakref.ref(history, self.open.discard))
        return history

    def changing(self, keys: Tensor, slots: Tensor) -> None:
        """Is called before the keys in `slots` ((m,) int64, ascending) change."""
        if self.open and len(slots):
            self.add(slots, keys[slots])

    def add(self, slots: Tensor, before: Tensor) -> None:
        """The keys in `slots` change, or have just changed; before: (m, key_size), what they were."""
        for known in list(self.open):
            history = known()
            if history is not None:
                history.add(slots, before)

    def __reduce__(self) -> tuple[type[Histories], tuple[()]]:
        # A copy of a memory has made no recalls yet.
        return Histories, ()


class History:
    """What the keys that a recall found were then, where the memory has changed them since."""

    def __init__(self, keys: Tensor, slots: Tensor) -> None:
        self._keys, self._found = keys, slots
        self._slots, self._before = slots.new_empty(0), keys.new_empty(0, keys.shape[1])
        self._changes: list[tuple[Tensor, Tensor]] = []

    def add(self, slots: Tensor, keys: Tensor) -> None:
        """The keys in `slots` ((m,) int64, ascending) are about to change; until now they are `keys`, (m, key_size)."""
        self._changes.append((slots, keys))
        if sum(len(slots) for slots, _ in self._changes) > max(self._found.numel(), 1024):
            self._sum_up()  # a recall that is kept for long must not keep all that ever changed

    @property
    def usable(self) -> bool:
        """Whether the extension can compute the gradient."""
        return self._keys.device.type == "cpu" and self._keys.dtype == torch.float32 and extension() is not None

    def gradient(self, recalled: Recalled, of: Gradients, inverse_temperature: float) -> Tensor:
        """(n, key_size): the gradient of the queries before they were normalised."""
        units, inverse_lengths, slots, weights = recalled
        of_units, of_similarities, of_weights = of
        self._sum_up()
        by_slot = torch.zeros_like(weights)
        if of_similarities is not None:
            by_slot += of_similarities.masked_fill(slots < 0, 0.0)
        if of_weights is not None:
            by_slot += inverse_temperature * weights * (of_weights - (weights * of_weights).sum(1, keepdim=True))
        keys = nn.functional.embedding(slots.clamp(min=0), self._keys)  # (n, k, key_size)
        if len(self._slots):
            place = torch.searchsorted(self._slots, slots).clamp_(max=len(self._slots) - 1)
            changed = self._slots[place] == slots
            keys[changed] = self._before[place[changed]]
        total = torch.bmm(by_slot.unsqueeze(1), keys.to(by_slot)).squeeze(1)
        total = total if of_units is None else total + of_units
        along = (units * total).sum(1, keepdim=True)
        return (total - along * units) * inverse_lengths[:, None]

    def gradient_natively(self, recalled: Recalled, of: Gradients, inverse_temperature: float) -> Tensor:
        """What `gradient` computes, by the extension."""
        units, inverse_lengths, slots, weights = recalled
        self._sum_up()
        gradient = torch.empty(units.shape)
        loaded().recall_gradient(
            *(units.shape[1], self._keys, self._slots, self._before, units),
            *(slots.shape[1], slots, weights, inverse_lengths),
            *(None if each is None else each.contiguous() for each in of),
            *(inverse_temperature, torch.get_num_threads(), gradient),
        )
        return gradient

    def _sum_up(self) -> None:
        """Of each slot that changed and was found the first key alone, in the order of the slots."""
        if not self._changes:
            return
        if len(self._changes) == 1 and not len(self._slots):
            [(self._slots, self._before)] = self._changes  # one update, then the gradient: as it nearly always is
            self._changes = []
            return
        slots = torch.cat([self._slots, *(slots for slots, _ in self._changes)])
        before = torch.cat([self._before, *(keys for _, keys in self._changes)])
        slots, order = slots.sort(stable=True)
        kept = torch.isin(slots, self._found)
        kept[1:] &= slots[1:] != slots[:-1]
        self._slots, self._before, self._changes = slots[kept], before[order[kept]], []
