"""The paper's rules as loops over one query at a time, in numpy: slow, and plainly right."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np


@dataclass
class Slot:
    key: np.ndarray
    value: int
    source: int
    time: int
    count: int = 1


@dataclass
class ReferenceMemory:
    capacity: int
    k: int
    margin: float = 0.1
    inverse_temperature: float = 40.0
    tolerance: float = 1e-5  # of similarities
    averaging: str = "half"
    slots: dict[int, Slot] = field(default_factory=dict)
    now: int = 0

    def age(self, slot: int) -> int:
        return self.now - self.slots[slot].time

    def newness(self, slot: int) -> tuple[int, int]:
        """Of equally similar slots, that of the greatest newness comes first."""
        return self.slots[slot].time, slot

    def similarities(self, query: np.ndarray, exclude: int = -1) -> dict[int, float]:
        """The similarity of every slot that may be a neighbour of the query."""
        return {i: float(query @ slot.key) for i, slot in self.slots.items() if exclude < 0 or slot.source != exclude}

    def check_neighbours(self, query, exclude, slots, similarities, values, weights, keys) -> None:
        """Whether these are the k nearest slots, nearest first, and of equally near ones the newest first.

        `keys` are those of the memory itself, in which a rounding error may tell two keys apart that are equal here.
        """
        truth = self.similarities(query, exclude)
        count = min(self.k, len(truth))
        found = [int(i) for i in slots[:count]]
        assert all(i == -1 for i in slots[count:])
        assert len(set(found)) == count
        assert set(found) <= set(truth)
        for i, similarity in zip(found, similarities[:count], strict=True):
            assert abs(truth[i] - similarity) < self.tolerance
        assert all(a >= b for a, b in pairwise(similarities[:count]))
        others = [similarity for i, similarity in truth.items() if i not in found]
        assert not others or max(others) <= similarities[count - 1] + self.tolerance
        self.check_newest_first(found, similarities, set(truth) - set(found), keys)
        assert [int(v) for v in values] == [self.slots[i].value for i in found] + [-1] * (self.k - count)
        exponentials = [np.exp(self.inverse_temperature * (truth[i] - max(truth.values()))) for i in found]
        expected = [e / sum(exponentials) for e in exponentials] + [0.0] * (self.k - count)
        np.testing.assert_allclose(weights, expected, atol=1e-3)
        assert all(s == -np.inf for s in similarities[count:])

    def check_newest_first(self, found, similarities, not_found, keys) -> None:
        for (i, a), (j, b) in pairwise(zip(found, similarities, strict=False)):
            assert a > b or self.newness(i) > self.newness(j), "of equally similar slots, an older one came first"
        for i in found:
            for j in (*found, *not_found):
                if i != j and np.array_equal(keys[i], keys[j]):
                    if j in not_found:
                        assert self.newness(i) > self.newness(j), "a newer slot with the same key was not found"
                    else:
                        assert similarities[found.index(i)] == similarities[found.index(j)]

    def pair(self, query: np.ndarray, target: int, exclude: int, neighbours: list[int]) -> tuple[int, int] | None:
        """The positive and the negative slot of the loss, or None where the query adds nothing."""
        neighbours = [i for i in neighbours if i >= 0]
        wrong = [i for i in neighbours if self.slots[i].value != target]
        right = [i for i in neighbours if self.slots[i].value == target]
        same = [i for i in self.similarities(query, exclude) if self.slots[i].value == target]
        if not wrong or not same:
            return None
        return right[0] if right else max(same, key=self.newness), wrong[0]

    def loss(self, queries, targets, excludes, neighbours) -> tuple[float, np.ndarray | None]:
        """The mean loss, and its gradient at queries of length 1: None where that jumps."""
        gradient, losses, jumps = np.zeros_like(queries), [], False
        for row, (query, target, exclude) in enumerate(zip(queries, targets, excludes, strict=True)):
            pair = self.pair(query, target, exclude, neighbours[row])
            if pair is None:
                continue
            difference = self.slots[pair[1]].key - self.slots[pair[0]].key
            loss = float(query @ difference) + self.margin
            losses.append(max(0.0, loss))
            jumps |= abs(loss) < self.tolerance
            if loss > 0:
                gradient[row] = difference - query * float(query @ difference)
        if not losses:
            return 0.0, gradient
        return float(np.mean(losses)), None if jumps else gradient / len(losses)

    def update(self, queries, targets, sources, nearest, age_noise: float, written: list[int]) -> None:
        """One update by the rules. `written`: the slots that were chosen for the misses; whether rightly is checked."""
        confirmed: dict[int, list[np.ndarray]] = {}
        misses = []
        for query, target, source, slot in zip(queries, targets, sources, nearest, strict=True):
            if slot >= 0 and self.slots[slot].value == target:
                confirmed.setdefault(slot, []).append(query)
            else:
                misses.append((query, target, source))
        assert len(written) == len(misses)
        self.check_written(written, set(confirmed), age_noise)
        self.now += 1
        for i, confirming in confirmed.items():
            weight = self.slots[i].count if self.averaging == "count" else 1
            total = weight * self.slots[i].key + np.sum(confirming, axis=0)
            if np.linalg.norm(total) > 1e-6:
                self.slots[i].key = total / np.linalg.norm(total)
            self.slots[i].time = self.now
            self.slots[i].count += len(confirming)
        for i, (query, target, source) in zip(written, misses, strict=True):
            self.slots[i] = Slot(query, target, source, self.now)

    def check_written(self, written: list[int], confirmed: set[int], age_noise: float) -> None:
        """Empty slots before any filled one; of the filled, argmax(age + r); confirmed ones last."""
        assert len(set(written)) == len(written)
        empty = set(range(self.capacity)) - set(self.slots)
        from_empty, from_filled = set(written) & empty, set(written) - empty
        assert not from_filled or from_empty == empty
        others = set(self.slots) - confirmed
        assert not from_filled & confirmed or others <= from_filled
        spared = others - from_filled
        for taken in from_filled - confirmed:
            for slot in spared:
                reach = self.age(taken) + age_noise
                assert self.age(slot) < reach or self.age(slot) == self.age(taken)
