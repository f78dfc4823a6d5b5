from __future__ import annotations

import pytest
import torch

from experiments.synthetic import hamming
from experiments.synthetic.task import Data
from tests.experiments.synthetic.conftest import TASK


def test_the_nearest_is_the_one_that_brute_force_finds() -> None:
    asked, known = torch.randint(7, (30, 6)), torch.randint(7, (50, 6))
    distances = (asked[:, None] != known[None]).sum(2)
    expected = [row.tolist().index(row.min()) for row in distances]  # of equals the first
    assert hamming.nearest(asked, known, block=7).tolist() == expected


def test_the_answer_is_the_output_of_the_nearest_training_example() -> None:
    data = Data(TASK)
    assert torch.equal(hamming.answer(data.training, data.training), data.training.outputs)
    short = data.test[(data.test.lengths == 5).nonzero().squeeze(1)]
    answers = hamming.answer(short, data.training)
    assert answers.shape == short.outputs.shape
    known = [tuple(row) for row in data.training.outputs[:, :5].tolist()]
    assert all(tuple(row) in known for row in answers.tolist())


def test_different_lengths_are_told() -> None:
    with pytest.raises(ValueError, match="padded to 5 and to 6 places"):
        hamming.nearest(torch.zeros(2, 5, dtype=torch.int64), torch.zeros(2, 6, dtype=torch.int64))
