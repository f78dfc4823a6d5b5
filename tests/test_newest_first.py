"""Among equally similar slots the newest comes first: what was taught last is the answer."""

import copy

import pytest
import torch

from rarecall import Memory
from tests.helpers import SEARCHES, ids, teach, unit


@pytest.fixture(params=SEARCHES)
def search(request) -> str:
    return request.param


@pytest.mark.parametrize("batch", [1, 50])
@pytest.mark.parametrize("k", [1, 8])
def test_an_example_taught_wrong_and_then_right_is_answered_rightly(new_memory, search, batch, k) -> None:
    memory = new_memory(24, 400, k=k, search=search)
    examples, label = unit(50, 24), torch.arange(50)
    teach(memory, unit(100, 24), torch.arange(100, 200))
    for rows in torch.arange(50).split(batch):
        teach(memory, examples[rows], label[rows] + 1000)
        teach(memory, examples[rows], label[rows])
        teach(memory, unit(2, 24), ids(300, 301))
    assert (memory(examples).value == label).sum() == 50
    assert [int(memory(example).value) for example in examples] == label.tolist()


def test_what_is_taught_again_after_others_is_newer_still(new_memory, search) -> None:
    memory, examples = new_memory(24, 400, k=4, search=search), unit(50, 24)
    for turn in range(5):
        teach(memory, examples, torch.arange(50) + 100 * turn)
    assert torch.equal(memory(examples).values, torch.arange(50)[:, None] + 100 * ids(4, 3, 2, 1))


@pytest.mark.parametrize("size", [1, 37])
@pytest.mark.parametrize("k", [1, 7, 40])
def test_of_many_equal_keys_the_newest_are_found_newest_first(new_memory, search, size, k) -> None:
    memory = new_memory(size, 60, k=k, search=search)
    key = unit(size)
    for batch in torch.arange(30).split(3):
        memory.update(memory(key.expand(3, size)), batch)  # of one update, those in higher slots come first
    recall = memory(torch.stack([key, key, -key]))
    found = min(k, 30)
    for row in range(3):
        assert recall.values[row, :found].tolist() == list(range(29, 29 - found, -1))
    assert len(recall.similarities[0, :found].unique()) == 1


def test_the_newest_may_be_in_a_lower_slot(new_memory, search) -> None:
    memory = new_memory(4, 4, k=3, age_noise=0.0, search=search)
    key = torch.eye(4)[0]
    for value in range(6):
        teach(memory, key[None], ids(value))
    assert memory.values.tolist() == [4, 5, 2, 3]
    assert memory(key).values.tolist() == [5, 4, 3]


def test_a_confirmed_slot_is_newer_than_one_written_before(new_memory, search) -> None:
    memory = new_memory(4, 8, k=2, search=search)
    key = torch.eye(4)[0]
    teach(memory, torch.stack([key, key]), ids(1, 2), source=ids(1, 2))
    assert memory(key).value == 2
    memory.update(memory(key, exclude=torch.tensor(2)), torch.tensor(1))
    assert memory(key).values.tolist() == [1, 2]


def test_of_those_that_are_not_excluded(new_memory, search) -> None:
    memory = new_memory(8, 40, k=3, search=search)
    key = unit(8)
    for value in range(12):
        teach(memory, key[None], ids(value), source=ids(value % 2))
    assert memory(key.expand(2, 8), exclude=ids(1, 0)).values.tolist() == [[10, 8, 6], [11, 9, 7]]


def test_after_the_newest_are_forgotten_the_next_is_the_answer(new_memory, search) -> None:
    memory = new_memory(8, 40, k=2, search=search)
    key = unit(8)
    for value in range(12):
        teach(memory, key[None], ids(value))
    memory.forget(value=[11, 10, 8])
    assert memory(key).values.tolist() == [9, 7]


def test_copies_and_files_keep_the_order(new_memory, search, tmp_path) -> None:
    memory = new_memory(8, 6, k=6, age_noise=0.0, search=search)
    key = unit(8)
    for value in range(10):
        teach(memory, key[None], ids(value))
    memory.save(tmp_path / "memory")
    other = new_memory(8, 6, k=6, age_noise=0.0, search=search)
    other.load_state_dict(memory.state_dict())
    for each in (memory, copy.deepcopy(memory), other, Memory.load(tmp_path / "memory")):
        assert each(key).values.tolist() == [9, 8, 7, 6, 5, 4]


def test_equal_keys_written_at_once(new_memory, search) -> None:
    memory = new_memory(8, 40, k=5, search=search)
    memory.write(unit(8).expand(20, 8), torch.arange(20))
    assert memory(memory.keys[0]).slots.tolist() == [19, 18, 17, 16, 15]
