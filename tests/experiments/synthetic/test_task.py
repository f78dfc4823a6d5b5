from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from experiments.synthetic.task import PADDING, A, B, Data, Task, batches, digits_of
from tests.experiments.synthetic.conftest import TASK


def test_the_example_of_the_paper() -> None:
    assert digits_of(torch.tensor([1982, 3726]), 7).tolist() == [[0, 1, 3, 2, 3, 3, 2], [0, 3, 2, 2, 0, 3, 2]]
    data = Data(Task(training=10, test=10))
    data.function[1982] = 3726
    example = data.surround(torch.tensor([1982]), torch.tensor([13]))
    start = int(example.starts)
    assert example.inputs[0, start : start + 7].tolist() == [0, 1, 3, 2, 3, 3, 2]
    assert example.outputs[0, start : start + 7].tolist() == [0, 3, 2, 2, 0, 3, 2]


def test_every_example_copies_the_letters_and_maps_the_one_number() -> None:
    data = Data(TASK)
    assert (len(data.training), len(data.test)) == (100, 40)
    for examples in (data.training, data.test, data.validation):
        for number in range(len(examples)):
            x, length, start = (int(part[number]) for part in (examples.x, examples.lengths, examples.starts))
            input, output = examples.inputs[number].tolist(), examples.outputs[number].tolist()
            assert 2 <= x <= TASK.symbols
            assert TASK.shortest <= length <= TASK.longest
            places = range(start, start + TASK.digits)
            read, written = (int("".join(str(symbols[place]) for place in places), 4) for symbols in (input, output))
            assert (read, written) == (x, int(data.function[x]))
            for place in set(range(length)) - set(places):
                assert input[place] == output[place]
                assert input[place] in (A, B)
            assert all(symbol == PADDING for symbol in input[length:] + output[length:])


def test_the_function_maps_the_symbols_to_themselves_and_follows_from_the_seed() -> None:
    function = Data(TASK).function[2:]
    assert len(function) == TASK.symbols - 1
    assert function.min() >= 2
    assert function.max() <= TASK.symbols
    assert torch.equal(function, Data(TASK).function[2:])
    assert not torch.equal(function, Data(replace(TASK, seed=1)).function[2:])
    # The same function, whatever the examples are.
    assert torch.equal(function, Data(replace(TASK, training=7, longest=30)).function[2:])


def test_all_lengths_and_places_occur_and_examples_follow_from_the_seed() -> None:
    data = Data(replace(TASK, training=500))
    assert set(data.training.lengths.tolist()) == {4, 5, 6, 7}
    of_seven = data.training.starts[data.training.lengths == 7]
    assert set(of_seven.tolist()) == {0, 1, 2, 3, 4}
    assert torch.equal(data.training.inputs, Data(replace(TASK, training=500)).training.inputs)
    assert not torch.equal(data.training.x[:40], data.test.x)
    again = data.surround(data.training.x, data.training.lengths)
    assert not torch.equal(again.inputs, data.training.inputs)


def test_digits_are_found_again() -> None:
    data = Data(TASK)
    assert torch.equal(data.test.of_digits(data.test.inputs), digits_of(data.test.x, 3))


def test_times_seen_counts_training_examples() -> None:
    data = Data(TASK)
    seen = data.times_seen(torch.arange(61))
    assert seen.sum() == 100
    assert seen[int(data.training.x[0])] == (data.training.x == data.training.x[0]).sum()


@pytest.mark.parametrize("shuffled", [False, True])
def test_a_batch_has_one_length_and_every_example_comes_once(shuffled: bool) -> None:
    data = Data(TASK)
    found = list(batches(data.training, 8, torch.Generator().manual_seed(0) if shuffled else None))
    assert all(len(data.training.lengths[which].unique()) == 1 and len(which) <= 8 for which in found)
    assert torch.cat(found).sort().values.tolist() == list(range(100))
    assert all(data.training[which].inputs.shape[1] == data.training.lengths[which[0]] for which in found)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"symbols": 64}, "symbols=64 with digits=3; expected 2 to 63"),
        ({"shortest": 2}, "lengths 2 to 7"),
        ({"longest": 3}, "lengths 4 to 3"),
        ({"test": 0}, "0 test examples"),
    ],
)
def test_a_task_that_cannot_be_is_told(wrong: dict[str, int], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        replace(TASK, **wrong)
