import copy

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from rarecall import Memory
from rarecall.native import extension, slots_of
from rarecall.newest import newest
from rarecall.rules import find_newest
from tests.helpers import ids, teach, unit


def random_memory(used: int, values: int, sources: int) -> Memory:
    memory = Memory(2, 300)
    memory.values[:used] = torch.randint(-1, values, (used,))
    memory.sources[:used] = torch.randint(-1, sources, (used,))
    memory.clock.touched[:used] = torch.randint(0, 50, (used,)).masked_fill(memory.values[:used] < 0, -1)
    memory.clock.rebuild()
    return memory


@given(
    used=st.integers(1, 300),
    n=st.integers(1, 20),
    values=st.integers(1, 40),
    sources=st.integers(1, 5),
    excluding=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_it_is_the_last_that_was_touched(used, n, values, sources, excluding, seed) -> None:
    torch.manual_seed(seed)
    memory = random_memory(used, values, sources)
    target = torch.randint(0, values + 1, (n,))
    exclude = torch.randint(-1, sources, (n,)) if excluding else None
    expected = []
    for row in range(n):
        fits = memory.values == target[row]
        if exclude is not None and exclude[row] >= 0:
            fits &= memory.sources != exclude[row]
        slots = fits.nonzero().squeeze(1).tolist()
        expected.append(max(slots, key=lambda slot: (int(memory.clock.touched[slot]), slot), default=-1))
    assert find_newest(memory, target, exclude).tolist() == expected
    assert newest(memory, target, exclude).tolist() == expected


@pytest.mark.skipif(extension() is None, reason="the extension was not built")
class TestChains:
    def test_they_follow_every_change(self) -> None:
        memory = Memory(8, 40, k=3)
        for step in range(200):
            query, target = unit(5, 8), torch.randint(0, 12, (5,))
            target[1:] = torch.where(torch.rand(4) < 0.5, memory(query).value[1:].clamp(min=0), target[1:])
            teach(memory, query, target, source=torch.randint(0, 9, (5,)))
            if step % 20 == 7:
                memory.forget(value=int(torch.randint(0, 12, ())))
            asked, exclude = torch.arange(14), torch.randint(-1, 9, (14,))
            if step == 0:
                newest(memory, asked, None)
            assert slots_of(memory).chained  # they were not to be made anew
            for excluded in (None, exclude):
                assert torch.equal(newest(memory, asked, excluded), find_newest(memory, asked, excluded))

    @pytest.mark.parametrize("capacity", [1, 2, 3, 64, 65])
    def test_any_capacity(self, capacity) -> None:
        memory = Memory(4, capacity, k=1)
        for value in range(2 * capacity):
            teach(memory, unit(1, 4), ids(value))
            asked = ids(value, value + 1)
            assert torch.equal(newest(memory, asked, None), find_newest(memory, asked, None))

    def test_values_edited_by_hand_are_noticed(self) -> None:
        memory = Memory(4, 10)
        teach(memory, torch.eye(4), ids(1, 2, 3, 4))
        assert newest(memory, ids(1), None).tolist() == [0]
        memory.values[2] = 1
        assert newest(memory, ids(1), None).tolist() == [2]
        memory.values[3] = 1
        memory.forget(slots=2)  # while the chains are out of date
        assert newest(memory, ids(1), None).tolist() == [3]

    def test_a_loaded_memory_has_chains_of_its_own(self) -> None:
        memory, other = Memory(4, 10), Memory(4, 10)
        teach(memory, torch.eye(4), ids(1, 2, 3, 4))
        teach(other, torch.eye(4), ids(4, 3, 2, 1))
        assert newest(other, ids(1), None).tolist() == [3]
        other.load_state_dict(memory.state_dict())
        assert newest(other, ids(1), None).tolist() == [0]

    def test_a_copy_of_a_memory_does_not_share_them(self) -> None:
        memory = Memory(4, 10)
        teach(memory, torch.eye(4), ids(1, 2, 3, 4))
        newest(memory, ids(1), None)
        other = copy.deepcopy(memory)
        other.update(other(torch.eye(4)), ids(9, 9, 9, 1))
        assert newest(other, ids(1, 9), None).tolist() == [7, 6]
        assert newest(memory, ids(1, 9), None).tolist() == [0, -1]
