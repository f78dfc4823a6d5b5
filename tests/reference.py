"""The paper's rules as loops over one query at a time, in numpy: slow, and plainly right."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

TOLERANCE = 1e-5


@dataclass
class Slot:
    key: np.ndarray
    value: int
    source: int
    age: int = 0


@dataclass
class ReferenceMemory:
    capacity: int
    k: int
    margin: float = 0.1
    inverse_temperature: float = 40.0
    slots: dict[int, Slot] = field(default_factory=dict)

    def similarities(self, query: np.ndarray, exclude: int = -1) -> dict[int, float]:
        """The similarity of every slot that may be a neighbour of the query."""
        return {i: float(query @ slot.key) for i, slot in self.slots.items() if exclude < 0 or slot.source != exclude}

    def check_neighbours(self, query, exclude, slots, similarities, values, weights) -> None:
        """Whether these are the k nearest slots, nearest first; equally near ones may stand in any order."""
        truth = self.similarities(query, exclude)
        count = min(self.k, len(truth))
        found = [int(i) for i in slots[:count]]
        assert all(i == -1 for i in slots[count:])
        assert len(set(found)) == count
        assert set(found) <= set(truth)
        for i, similarity in zip(found, similarities[:count], strict=True):
            assert abs(truth[i] - similarity) < TOLERANCE
        assert all(a >= b for a, b in pairwise(similarities[:count]))
        others = [similarity for i, similarity in truth.items() if i not in found]
        assert not others or max(others) <= similarities[count - 1] + TOLERANCE
        assert [int(v) for v in values] == [self.slots[i].value for i in found] + [-1] * (self.k - count)
        exponentials = [np.exp(self.inverse_temperature * (truth[i] - max(truth.values()))) for i in found]
        expected = [e / sum(exponentials) for e in exponentials] + [0.0] * (self.k - count)
        np.testing.assert_allclose(weights, expected, atol=1e-3)
        assert all(s == -np.inf for s in similarities[count:])

    def loss(self, query: np.ndarray, target: int, exclude: int, neighbours: list[int]) -> list[float]:
        """The losses a query may have (several where slots are equally new), none where it adds nothing."""
        neighbours = [i for i in neighbours if i >= 0]
        wrong = [i for i in neighbours if self.slots[i].value != target]
        right = [i for i in neighbours if self.slots[i].value == target]
        if not wrong:
            return []
        if right:
            positives = [right[0]]
        else:
            same = [i for i in self.similarities(query, exclude) if self.slots[i].value == target]
            positives = [i for i in same if self.slots[i].age == min(self.slots[j].age for j in same)]
        negative = query @ self.slots[wrong[0]].key
        return [max(0.0, float(negative - query @ self.slots[p].key) + self.margin) for p in positives]

    def update(self, queries, targets, sources, nearest, age_noise: float, written: list[int]) -> None:
        """One update by the rules. `written`: the slots that were chosen for the misses; whether rightly is checked."""
        confirmed: dict[int, np.ndarray] = {}
        misses = []
        for query, target, source, slot in zip(queries, targets, sources, nearest, strict=True):
            if slot >= 0 and self.slots[slot].value == target:
                confirmed[slot] = confirmed.get(slot, self.slots[slot].key) + query
            else:
                misses.append((query, target, source))
        assert len(written) == len(misses)
        self.check_written(written, set(confirmed), age_noise)
        for slot in self.slots.values():
            slot.age += 1
        for i, total in confirmed.items():
            if np.linalg.norm(total) > 1e-6:
                self.slots[i].key = total / np.linalg.norm(total)
            self.slots[i].age = 0
        for i, (query, target, source) in zip(written, misses, strict=True):
            self.slots[i] = Slot(query, target, source)

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
                reach = self.slots[taken].age + age_noise
                assert self.slots[slot].age < reach or self.slots[slot].age == self.slots[taken].age
