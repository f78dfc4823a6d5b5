"""The loss's positive where no neighbour is right: the newest slot of that value, as the loss itself tells."""

import copy

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from rarecall import Memory, backend
from tests.helpers import ids, pair, teach, unit

SIZE, MARGIN, ANCHOR = 12, 4.0, 10**6


def with_anchor(memory: Memory) -> Memory:
    """Write the key that every query of `positive` finds first, of a value that is never asked for, to slot 0."""
    memory.write(torch.eye(SIZE)[:1], ids(ANCHOR))
    return memory


def away(n: int) -> torch.Tensor:
    """Keys at right angles to the anchor."""
    return torch.cat([torch.zeros(n, 1), unit(n, SIZE - 1)], 1)


def positive(memory: Memory, target: int, exclude: int = -1) -> int:
    """Return the slot whose similarity is in the loss of a query with this target, or -1 where there is none."""
    slots, keys, *_ = memory.slots()
    apart = torch.zeros(1)
    while apart.numel() and apart.min() < 2e-5:  # a query whose similarities tell the slots apart
        query = torch.cat([torch.ones(1), 0.5 * unit(SIZE - 1)]).to(keys)
        apart = (keys @ query).sort().values.diff()
    recall = memory(query, exclude=torch.tensor(exclude))
    assert recall.value == ANCHOR
    loss = memory.loss(recall, torch.tensor(target))
    if loss == 0:  # else it is more than the margin less 2
        return -1
    error = (keys @ recall.query - (recall.similarities[0] + memory.margin - loss)).abs()
    assert error.min() < 3e-6
    return int(slots[error.argmin()])


def newest(memory: Memory, target: int, exclude: int = -1) -> int:
    """The same by a look at every slot."""
    fits = memory.values == target
    if exclude >= 0:
        fits &= memory.sources != exclude
    times = memory.times.tolist()
    return max(fits.nonzero().squeeze(1).tolist(), key=lambda slot: (times[slot], slot), default=-1)


def settings(capacity: int) -> dict[str, object]:
    return {"key_size": SIZE, "capacity": capacity, "k": 1, "margin": MARGIN}


@pytest.mark.skipif(backend.extension() is None, reason="the extension was not built")
@given(
    filled=st.integers(1, 60),
    values=st.integers(1, 40),
    sources=st.integers(1, 5),
    batches=st.integers(1, 10),
    seed=st.integers(0, 2**16),
)
def test_it_is_the_last_that_was_touched(filled, values, sources, batches, seed) -> None:
    with pair(**settings(80)) as (native, plain):
        torch.manual_seed(seed)
        keys, its_values = away(filled), torch.randint(values, (filled,))
        its_sources, forgotten = (
            torch.randint(-1, sources, (filled,)),
            1 + (torch.rand(filled) < 0.2).nonzero().squeeze(1),
        )
        confirmed = torch.randperm(filled)[: filled // 3]
        for memory in (native, plain):
            with_anchor(memory)
            for rows in torch.arange(filled).tensor_split(batches):
                memory.write(keys[rows], its_values[rows], its_sources[rows])
            memory.update(memory(keys[confirmed]), its_values[confirmed])
            memory.forget(slots=forgotten)
        for target in range(min(values, 6) + 1):
            for exclude in {-1, int(torch.randint(sources, ()))}:
                expected = newest(native, target, exclude)
                assert positive(native, target, exclude) == expected
                assert positive(plain, target, exclude) == expected


def test_it_follows_every_change(new_memory) -> None:
    """The slots are full, so that values move; the anchor is confirmed all the time and never written over."""
    memory = with_anchor(new_memory(**settings(40)))
    for step in range(120):
        anchor = torch.eye(SIZE)[:1].to(memory.keys)
        query, target = torch.cat([anchor, away(5).to(anchor)]), torch.cat([ids(ANCHOR), torch.randint(12, (5,))])
        known = memory(query).value
        target[2:] = torch.where((torch.rand(4) < 0.5) & (known[2:] < ANCHOR), known[2:], target[2:]).clamp(min=0)
        teach(memory, query, target, source=torch.randint(9, (6,)))
        if step % 20 == 7:
            memory.forget(value=int(torch.randint(12, ())))
        for value in torch.randint(14, (2,)).tolist():
            for exclude in (-1, int(torch.randint(9, ()))):
                assert positive(memory, value, exclude) == newest(memory, value, exclude)


@pytest.mark.parametrize("capacity", [2, 3, 64, 65])
def test_any_capacity(new_memory, capacity) -> None:
    memory = with_anchor(new_memory(**settings(capacity)))
    for value in range(2 * capacity):
        query = torch.cat([torch.eye(SIZE)[:1], away(1)]).to(memory.keys)
        teach(memory, query, ids(ANCHOR, value))
        assert positive(memory, value) == newest(memory, value) >= 0
        assert positive(memory, value + 1) == newest(memory, value + 1) == -1


def taught(new_memory, *values: int) -> Memory:
    memory = with_anchor(new_memory(**settings(10)))
    memory.write(away(len(values)), ids(*values))
    return memory


def test_values_edited_by_hand_are_noticed(new_memory) -> None:
    memory = taught(new_memory, 1, 2, 3, 4)
    assert positive(memory, 1) == 1
    memory.values[3] = 1
    assert positive(memory, 1) == 3
    memory.values[4] = 1
    memory.forget(slots=3)  # before anything was asked again
    assert positive(memory, 1) == 4
    memory.times[1] = memory.now
    memory.times[4] = 1
    assert positive(memory, 1) == 1


def test_a_loaded_memory_has_its_own(new_memory) -> None:
    memory, other = taught(new_memory, 1, 2, 3, 4), taught(new_memory, 4, 3, 2, 1)
    assert positive(other, 1) == 4
    other.load_state_dict(memory.state_dict())
    assert positive(other, 1) == 1


def test_a_copy_does_not_share_it(new_memory) -> None:
    memory = taught(new_memory, 1, 2, 3, 4)
    assert positive(memory, 1) == 1
    other = copy.deepcopy(memory)
    other.write(away(4), ids(9, 9, 9, 1))
    assert [positive(other, value) for value in (1, 9)] == [8, 7]
    assert [positive(memory, value) for value in (1, 9)] == [1, -1]
