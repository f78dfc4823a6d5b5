import copy

import pytest
import torch

from rarecall.clock import Clock
from tests.helpers import ids


def tick(clock: Clock, confirmed: list[int], new: int, age_noise: float = 0.0) -> list[int]:
    return clock.tick(torch.tensor(confirmed, dtype=torch.int64), new, age_noise, None)[0].tolist()


def test_empty_slots_are_taken_in_their_order() -> None:
    clock = Clock(5)
    assert tick(clock, [], 2) == [0, 1]
    assert tick(clock, [], 2) == [2, 3]
    clock.forget(ids(2, 0))
    assert tick(clock, [], 3) == [0, 2, 4]
    assert clock.filled == 5


def test_then_the_oldest() -> None:
    clock = Clock(4)
    for _ in range(4):
        tick(clock, [], 1)
    tick(clock, [0], 0)
    assert clock.ages.tolist() == [0, 3, 2, 1]
    assert tick(clock, [], 2) == [1, 2]


@pytest.mark.parametrize("age_noise", [0.0, 8.0])
@pytest.mark.parametrize("capacity", [8, 60])
def test_the_log_finds_what_a_look_at_every_slot_finds(age_noise, capacity) -> None:
    """Over so many updates that the log is written anew, and, of 8 slots, with confirmed ones written over too."""
    clock = Clock(capacity)
    for step in range(800):
        touched, now = clock.touched.clone(), int(clock.now)
        filled = (touched >= 0).nonzero().squeeze(1)
        confirmed = filled[torch.randperm(len(filled))[: int(torch.randint(6, ()))]]
        new = int(torch.randint(9, ()))
        written, touched_now = clock.tick(confirmed.sort().values, new, age_noise, None)
        assert torch.equal(touched_now, torch.cat([confirmed, written]).unique())
        assert len(written.unique()) == new
        assert torch.equal(clock.touched[written], torch.full((new,), now + 1))
        ages = (now - touched).masked_fill(touched < 0, 10**9)
        ages[confirmed] = -1
        spared = torch.ones(capacity, dtype=torch.bool).index_fill_(0, written, False)
        if new and spared.any():
            # No slot that was spared could have beaten one that was taken.
            assert ages[spared].max() <= ages[written].min() + age_noise
        if step % 50 == 0:
            clock.forget((clock.touched >= 0).nonzero().squeeze(1)[::7])
    assert len(clock._log_slots) < 2000


def test_age_noise_chooses_as_the_formula_does() -> None:
    """argmax(age + r) by the log is distributed as argmax over all slots."""
    ages, noise, trials = torch.tensor([3, 2, 1, 0]), 2.5, 1500
    counts = torch.zeros(4)
    clock = Clock(4)
    for _ in range(4):
        tick(clock, [], 1)
    for _ in range(trials):
        counts[tick(copy.deepcopy(clock), [], 1, noise)] += 1
    direct = (ages + noise * torch.rand(200_000, 4)).argmax(1).bincount(minlength=4) / 200_000
    deviation = (direct * (1 - direct) / trials).sqrt()
    assert ((counts / trials - direct).abs() <= 4 * deviation + 1e-9).all()


def test_a_loaded_clock_goes_on_as_the_saved_one() -> None:
    clock = Clock(50)
    for _ in range(40):
        filled = (clock.touched >= 0).nonzero().squeeze(1)
        clock.tick(filled[::9], 5, 8.0, None)
    clock.forget(ids(3, 30))
    resumed = Clock(50)
    resumed.load_state_dict(clock.state_dict())
    for _ in range(40):
        filled = (clock.touched >= 0).nonzero().squeeze(1)
        written = [c.tick(filled[::9], 5, 8.0, torch.Generator().manual_seed(0))[0] for c in (clock, resumed)]
        assert torch.equal(*written)
