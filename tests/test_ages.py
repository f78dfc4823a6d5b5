"""Ages, and which slot is written: an empty one, else that of the largest age + r."""

import copy

import pytest
import torch

from rarecall import Memory
from tests.helpers import assert_same, ids, snapshot, unit

SIZE = 8


def update(memory: Memory, confirmed: list[int], new: int, generator: torch.Generator | None = None) -> list[int]:
    """Make one update that confirms these slots and writes `new` others; return those, as the examples come."""
    right = ids(*confirmed)
    fresh = int(memory.values.max()) + 1 + torch.arange(new)
    recall = memory(torch.cat([memory.keys[right], unit(new, SIZE).to(memory.keys)]))
    assert recall.slots[: len(confirmed), 0].tolist() == confirmed
    memory.update(recall, torch.cat([memory.values[right], fresh]), generator=generator)
    return [(memory.values == value).nonzero().item() for value in fresh]


def some_filled(memory: Memory, most: int) -> list[int]:
    filled = (memory.values >= 0).nonzero().squeeze(1)
    return filled[torch.randperm(len(filled))[: int(torch.randint(most + 1, ()))]].sort().values.tolist()


def uniform(seed: int, slot: int) -> float:
    """The r of a slot, in units of `age_noise`: SplitMix64 of a seed and the slot."""
    most = 2**64 - 1
    x = (seed + (slot + 1) * 0x9E3779B97F4A7C15) & most
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & most
    x = (x ^ x >> 27) * 0x94D049BB133111EB & most
    return ((x ^ x >> 31) >> 11) / 2**53


def choice(memory: Memory, confirmed: list[int], new: int, generator: torch.Generator) -> list[int]:
    """The slots that an update is to write, by a look at every slot."""
    times, noise = memory.times.tolist(), memory.age_noise
    empty = [slot for slot, time in enumerate(times) if time < 0][:new]
    if len(empty) == new:
        return empty
    seed = int(torch.empty((), dtype=torch.int64).random_(generator=generator))
    others = [slot for slot, time in enumerate(times) if time >= 0 and slot not in confirmed]
    others.sort(key=lambda slot: (times[slot] - noise * uniform(seed, slot), slot))
    return (empty + others + confirmed)[:new]


def test_empty_slots_are_taken_in_their_order(new_memory) -> None:
    memory = new_memory(SIZE, 5, k=1)
    assert update(memory, [], 2) == [0, 1]
    assert update(memory, [], 2) == [2, 3]
    memory.forget(slots=[2, 0])
    assert update(memory, [], 3) == [0, 2, 4]
    assert len(memory) == 5


def test_then_the_oldest(new_memory) -> None:
    memory = new_memory(SIZE, 4, k=1, age_noise=0.0)
    for _ in range(4):
        update(memory, [], 1)
    update(memory, [0], 0)
    assert memory.ages.tolist() == [0, 3, 2, 1]
    assert memory.slots().ages.tolist() == [0, 3, 2, 1]
    assert update(memory, [], 2) == [1, 2]
    assert memory.ages.tolist() == [1, 0, 0, 2]


@pytest.mark.parametrize("age_noise", [0.0, 8.0])
@pytest.mark.parametrize("capacity", [8, 60])
def test_every_update_writes_the_slots_that_the_formula_says(new_memory, age_noise, capacity) -> None:
    """Over so many updates that the native log is written anew; of 8 slots, confirmed ones are written over too."""
    memory = new_memory(SIZE, capacity, k=1, age_noise=age_noise)
    for step in range(350):
        confirmed, new = some_filled(memory, 5), int(torch.randint(9, ()))
        ages, now = memory.ages.clone(), int(memory.now)
        expected = choice(memory, confirmed, new, torch.Generator().manual_seed(step))
        assert update(memory, confirmed, new, torch.Generator().manual_seed(step)) == expected
        touched = ids(*confirmed, *expected)
        assert memory.now == now + 1
        assert torch.equal(memory.ages, torch.where(ages < 0, -1, ages + 1).index_fill(0, touched, 0))
        assert torch.equal(memory.times, torch.where(memory.ages < 0, -1, memory.now - memory.ages))
        assert len(memory) == (memory.values >= 0).sum()
        if step % 50 == 0:
            memory.forget(slots=(memory.values >= 0).nonzero().squeeze(1)[::7])


def shares(ages: list[int], noise: float) -> torch.Tensor:
    """The probability of each slot to have the largest age + r, r uniform in [0, noise): by numerical integration."""
    r = (torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000 * noise
    return torch.stack(
        [
            torch.stack([((own + r - age) / noise).clamp(0, 1) for i, age in enumerate(ages) if i != slot])
            .prod(0)
            .mean()
            for slot, own in enumerate(ages)
        ]
    )


def test_age_noise_chooses_as_often_as_the_formula_says(new_memory) -> None:
    memory = new_memory(SIZE, 4, k=1, age_noise=2.5)
    for _ in range(4):
        update(memory, [], 1)
    assert memory.ages.tolist() == [3, 2, 1, 0]
    state, counts, trials = copy.deepcopy(memory.state_dict()), torch.zeros(4), 1000
    for _ in range(trials):
        memory.load_state_dict(state)
        counts[update(memory, [], 1)] += 1
    expected = shares([4, 3, 2, 1], 2.5)  # by the time of the update all are older by 1
    assert expected.sum() == pytest.approx(1, abs=1e-6)
    assert expected[3] == counts[3] == 0
    deviation = (expected * (1 - expected) / trials).sqrt()
    assert ((counts / trials - expected).abs() <= 4 * deviation).all()


def test_r_is_drawn_for_each_update_and_only_where_a_filled_slot_is_written(new_memory) -> None:
    memory = new_memory(SIZE, 4, k=1)
    generator = torch.Generator().manual_seed(3)
    before = generator.get_state()
    update(memory, [], 4, generator)
    update(memory, [1], 0, generator)
    assert torch.equal(generator.get_state(), before)
    update(memory, [], 1, generator)
    assert not torch.equal(generator.get_state(), before)


@pytest.mark.parametrize("way", ["state_dict", "deepcopy", "file"])
def test_a_resumed_memory_goes_on_as_the_one_that_was_saved(new_memory, way, tmp_path) -> None:
    memory = new_memory(SIZE, 50, k=1)

    def step(each: Memory, number: int) -> list[int]:
        torch.manual_seed(number)
        return update(each, (each.values >= 0).nonzero().squeeze(1)[::9].tolist(), 5)

    for number in range(40):
        step(memory, number)
    memory.forget(slots=[3, 30])
    if way == "state_dict":
        resumed = new_memory(SIZE, 50, k=1)
        resumed.load_state_dict(memory.state_dict())
    elif way == "deepcopy":
        resumed = copy.deepcopy(memory)
    else:
        memory.save(tmp_path / "memory")
        resumed = Memory.load(tmp_path / "memory").to(memory.keys.dtype)
    for number in range(40, 80):
        assert step(memory, number) == step(resumed, number)
    if way != "file":  # which holds float32
        assert_same(snapshot(memory), snapshot(resumed))
