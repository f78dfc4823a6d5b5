"""Memory.put: slots as they are told to be, and everything that follows from them in step."""

import pytest
import torch
from torch.nn.functional import normalize

from rarecall import Memory
from tests.helpers import BACKENDS, SEARCHES, using

SIZE, CAPACITY = 8, 40


def rows(count, now, empty=()):
    """Random rows for `count` slots at times up to now; those in `empty` are empty."""
    filled = ~torch.isin(torch.arange(count), torch.tensor(list(empty), dtype=torch.int64))
    return {
        "keys": normalize(torch.randn(count, SIZE), dim=1) * filled[:, None],
        "values": torch.randint(5, (count,)).where(filled, -1),
        "sources": torch.randint(100, (count,)).where(filled, -1),
        "counts": torch.randint(1, 4, (count,)).where(filled, 0),
        "times": torch.randint(now + 1, (count,)).where(filled, -1),
        "now": now,
    }


def fresh(memory):
    """A memory of the same buffers that has followed nothing."""
    other = Memory(SIZE, CAPACITY, k=memory.k, search="exact").to(memory.keys.dtype)
    other.load_state_dict(
        {name: tensor for name, tensor in memory.state_dict().items() if "search" not in name}, strict=False
    )
    return other


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_it_goes_on_as_a_memory_that_was_made_of_these_slots(backend, search):
    torch.manual_seed(0)
    with using(backend, small=None) as make:
        memory = make(SIZE, CAPACITY, k=5, search=search)
        for now in range(1, 60):
            slots = torch.randperm(CAPACITY)[: torch.randint(1, 6, ())].sort().values
            if now % 3:  # forward in time, as a journal is mostly read
                put = rows(len(slots), now) | {"times": torch.full((len(slots),), now)}
            else:
                put = rows(len(slots), now, empty=[0])
            memory.put(slots, **put)
            for name, row in put.items():
                expected = torch.tensor(now) if name == "now" else row
                got = memory.now if name == "now" else getattr(memory, name)[slots]
                assert torch.equal(got, expected.to(got)), name
            if search != "exact":
                continue
            again, query = fresh(memory), torch.randn(4, SIZE)
            assert torch.equal(memory(query).slots, again(query).slots)
            assert len(memory) == len(again)
            target = torch.randint(5, (4,))
            assert torch.equal(memory.loss(memory(query), target), again.loss(again(query), target))
            for each in (memory, again):  # the same slots are written next
                torch.manual_seed(now)
                each.update(each(query), target)
            assert torch.equal(memory.values, again.values)
            assert torch.equal(memory.times, again.times)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_cannot_be_is_refused_and_changes_nothing(backend):
    with using(backend) as make:
        memory = make(SIZE, CAPACITY)
        good = rows(2, 3)
        memory.put(torch.tensor([4, 7]), **good)
        before = {name: tensor.clone() for name, tensor in memory.state_dict().items()}
        bad = [
            (torch.tensor([7, 4]), {}, "ascending"),
            (torch.tensor([4, 4]), {}, "ascending"),
            (torch.tensor([4, CAPACITY]), {}, "ascending"),
            (torch.tensor([-1, 4]), {}, "ascending"),
            (torch.tensor([4, 5, 6]), {}, "one row for each"),
            (torch.tensor([4, 7]), {"keys": torch.ones(2, SIZE)}, "length"),
            (torch.tensor([4, 7]), {"times": torch.tensor([1, 9])}, "time"),
            (torch.tensor([4, 7]), {"counts": torch.tensor([0, 1])}, "count"),
        ]
        for slots, changed, problem in bad:
            with pytest.raises(ValueError, match=problem):
                memory.put(slots, **(good | changed))
        assert all(torch.equal(tensor, before[name]) for name, tensor in memory.state_dict().items())
