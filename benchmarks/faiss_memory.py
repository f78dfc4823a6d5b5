"""The paper's memory as a good engineer would write it with FAISS, numpy and torch: what `training` compares with."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize, relu

from benchmarks.peers import Array, Peer


class Flat:
    """`faiss.IndexFlatIP`; keys are written straight into its storage, the cheapest update that it can have."""

    def __init__(self, keys: Array, k: int, threads: int) -> None:
        import faiss

        faiss.omp_set_num_threads(threads)
        self.k, self.index = k, faiss.IndexFlatIP(keys.shape[1])
        self.index.add(keys)
        self.keys: Array = faiss.rev_swig_ptr(self.index.get_xb(), keys.size).reshape(keys.shape)

    efforts = ()

    def set(self, effort: int) -> None:
        """It always reads all keys."""

    def search(self, query: Array) -> Array:
        return self.index.search(query, self.k)[1]

    def update(self, slots: Array, keys: Array) -> None:
        self.keys[slots] = keys


class FaissMemory:
    """A full memory; the index finds, torch has keys and values, and a queue knows the oldest slots.

    The age noise r, which only chooses among slots of nearly the same age, is left out. Of the similarities it takes
    only the two that the loss needs once more, with gradient.

    Args:
        index: holds `keys`.
        keys: (size, key_size) float32, normalised.
        values: (size,) int64.
        times: (size,) int64, the update that last touched each slot.
        most: no value is greater.
        margin: the alpha of the loss.
    """

    def __init__(self, index: Peer, keys: Array, values: Array, times: Array, most: int, margin: float) -> None:
        self.index, self.margin = index, margin
        self.keys, self.values, self.times = keys.copy(), values.copy(), times.copy()
        self.now = int(times.max())
        order = np.argsort(times, kind="stable")
        # A slot stands in the queue once for every time it was touched; only the last of these counts.
        self.queue: deque[tuple[int, int]] = deque(zip(order.tolist(), times[order].tolist(), strict=True))
        self.newest = np.full(most + 1, -1)  # of each value the newest slot, unless it holds another value by now
        self.newest[values[order]] = order

    def recall(self, query: Tensor) -> tuple[Tensor, Tensor]:
        """(n, key_size), the normalised queries, and (n, k) int64, the slots nearest to them."""
        unit = normalize(query)
        return unit, torch.from_numpy(self.index.search(unit.detach().numpy()))

    def loss(self, unit: Tensor, slots: Tensor, target: Tensor) -> Tensor:
        """The margin loss: of the first neighbour with a wrong value against the first with the right one."""
        right = (torch.from_numpy(self.values)[slots] == target[:, None]) & (slots >= 0)
        wrong = ~right & (slots >= 0)
        newest = torch.from_numpy(self.newest)[target]
        newest[torch.from_numpy(self.values)[newest] != target] = -1
        first_right, first_wrong = (
            slots.gather(1, each.byte().argmax(1, keepdim=True))[:, 0] for each in (right, wrong)
        )
        positive = torch.where(right.any(1), first_right, newest)
        counts = ((positive >= 0) & wrong.any(1)).nonzero()[:, 0]
        keys = torch.from_numpy(self.keys)
        apart = keys[first_wrong[counts]] - keys[positive[counts]]
        return relu((unit[counts] * apart).sum(1) + self.margin).sum() / max(len(counts), 1)

    def update(self, unit: Tensor, slots: Tensor, target: Tensor) -> None:
        """Confirm the nearest slot where its value is right, elsewhere overwrite the oldest slot."""
        query, nearest, value = unit.detach().numpy(), slots[:, 0].numpy(), target.numpy()
        right = self.values[nearest] == value
        confirmed, which = np.unique(nearest[right], return_inverse=True)
        sums = self.keys[confirmed]
        np.add.at(sums, which, query[right])
        sums /= np.linalg.norm(sums, axis=1, keepdims=True)
        self.now += 1
        self.times[confirmed] = self.now  # so that none of them is the oldest
        written = self._oldest(int((~right).sum()))
        touched = np.concatenate([confirmed, written])
        self.values[written] = value[~right]
        self.times[written] = self.now
        self.keys[touched] = np.concatenate([sums, query[~right]])
        self.newest[self.values[touched]] = touched
        self.queue.extend((slot, self.now) for slot in touched.tolist())
        self.index.update(touched, self.keys[touched])

    def _oldest(self, count: int) -> Array:
        slots: list[int] = []
        while len(slots) < count:
            slot, time = self.queue.popleft()
            if self.times[slot] == time:
                slots.append(slot)
        return np.array(slots, dtype=np.int64)


def step(memory: FaissMemory, query: Tensor, target: Tensor) -> Any:
    """A step of training, with the gradient of the query."""
    unit, slots = memory.recall(query)
    loss = memory.loss(unit, slots, target)
    loss.backward()
    memory.update(unit, slots, target)
    return loss
