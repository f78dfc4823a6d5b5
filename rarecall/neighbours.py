"""From the slots that a search found to the neighbours of a query, and the gradient from them back to the query."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from rarecall.native import extension, loaded, pointer, usable

if TYPE_CHECKING:
    from rarecall.memory import Memory


class Neighbours(torch.autograd.Function):
    """Scores, sorts and weighs the slots that a search found.

    The gradient of a similarity is the slot's key as it stood when it was found, though the memory may have changed
    since: an update usually comes before `backward`. Rather than a copy of all keys found, (n, k, key_size), the few
    that change are kept; see `History`.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, found: Tensor, exclude: Tensor | None, memory: Memory
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """query: (n, key_size); found: (n, at most k) int64 -> slots, similarities, values, weights, each (n, k)."""
        recall = _recall_natively if usable(memory) else _recall
        slots, similarities, values, weights = recall(query, found, exclude, memory)
        ctx.mark_non_differentiable(slots, values)
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(slots, weights)
            ctx.inverse_temperature = memory.inverse_temperature
            ctx.history = memory.histories.begin(memory.keys, slots)
        return slots, similarities, values, weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor, similarities: Tensor, __: Tensor, weights: Tensor) -> tuple[Tensor | None, ...]:
        """From the gradients of similarities and weights, (n, k), to that of the query, (n, key_size)."""
        slots, softmax = ctx.saved_tensors
        through_softmax = softmax * (weights - (weights * softmax).sum(1, keepdim=True))
        by_slot = similarities.masked_fill(slots < 0, 0.0) + ctx.inverse_temperature * through_softmax
        return ctx.history.weigh(slots, by_slot), None, None, None


class Histories:
    """The histories of one memory whose gradient is still to come."""

    def __init__(self) -> None:
        self._open: weakref.WeakSet[History] = weakref.WeakSet()

    def begin(self, keys: Tensor, slots: Tensor) -> History:
        """Follows the keys ((capacity, key_size)) of these slots ((n, k) int64, -1 for none) from now on."""
        history = History(keys, slots)
        self._open.add(history)
        return history

    def changing(self, keys: Tensor, slots: Tensor) -> None:
        """Is called before the keys in `slots` ((m,) int64, ascending) change."""
        histories = list(self._open)
        if histories and len(slots):
            before = keys[slots]
            for history in histories:
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

    def weigh(self, slots: Tensor, weights: Tensor) -> Tensor:
        """(n, key_size): the sum over j of weights[i, j] * the key of slots[i, j] (none where -1); both (n, k)."""
        self._sum_up()
        if self._keys.device.type == "cpu" and self._keys.dtype == torch.float32 and extension() is not None:
            n, k = slots.shape
            weights = weights.contiguous()
            total = torch.empty(n, self._keys.shape[1])
            loaded().weigh(
                pointer(self._keys, *self._keys.shape),
                self._keys.shape[1],
                pointer(self._slots, len(self._slots)),
                pointer(self._before, *self._before.shape),
                len(self._slots),
                pointer(slots, n, k),
                pointer(weights, n, k),
                n,
                k,
                torch.get_num_threads(),
                total.data_ptr(),
            )
            return total
        keys = nn.functional.embedding(slots.clamp(min=0), self._keys)  # (n, k, key_size)
        if len(self._slots):
            place = torch.searchsorted(self._slots, slots).clamp_(max=len(self._slots) - 1)
            changed = self._slots[place] == slots
            keys[changed] = self._before[place[changed]]
        return torch.bmm(weights.unsqueeze(1), keys).squeeze(1)

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


def _recall_natively(query: Tensor, found: Tensor, exclude: Tensor | None, memory: Memory) -> tuple[Tensor, ...]:
    (n, m), k, capacity = found.shape, memory.k, memory.capacity
    slots, values = torch.empty(2, n, k, dtype=torch.int64)
    similarities, weights = torch.empty(2, n, k)
    found, query = found.contiguous(), query.contiguous()
    exclude = None if exclude is None else exclude.contiguous()
    loaded().recall(
        pointer(memory.keys, capacity, memory.key_size),
        pointer(memory.values, capacity),
        pointer(memory.sources, capacity),
        memory.key_size,
        pointer(query, n, memory.key_size),
        n,
        pointer(found, n, m),
        m,
        0 if exclude is None else pointer(exclude, n),
        memory.inverse_temperature,
        torch.get_num_threads(),
        *(tensor.data_ptr() for tensor in (slots, similarities, values, weights)),
        k,
    )
    return slots, similarities, values, weights


def _recall(query: Tensor, found: Tensor, exclude: Tensor | None, memory: Memory) -> tuple[Tensor, ...]:
    slots = nn.functional.pad(found, (0, memory.k - found.shape[1]), value=-1)
    there = slots.clamp(min=0)
    hidden = (slots < 0) | (memory.values[there] < 0)
    if exclude is not None:
        hidden |= (memory.sources[there] == exclude[:, None]) & (exclude[:, None] >= 0)
    # Among equally similar slots the lowest comes first, whatever order the search found them in.
    slots = slots.masked_fill(hidden, memory.capacity).sort(dim=1).values
    gone = slots == memory.capacity
    keys = nn.functional.embedding(slots.masked_fill(gone, 0), memory.keys)  # (n, k, key_size)
    similarities = torch.bmm(query.unsqueeze(1), keys.transpose(1, 2)).squeeze(1)
    similarities, order = similarities.masked_fill_(gone, -torch.inf).sort(descending=True, stable=True)
    slots, gone = slots.gather(1, order), gone.gather(1, order)
    # A row without any neighbour would be nan in a softmax over -inf.
    logits = (memory.inverse_temperature * similarities).masked_fill_(gone, torch.finfo(similarities.dtype).min)
    weights = logits.softmax(-1).masked_fill_(gone, 0.0)
    values = memory.values[slots.masked_fill(gone, 0)].masked_fill_(gone, -1)
    return slots.masked_fill_(gone, -1), similarities, values, weights
