from __future__ import annotations

from itertools import pairwise

import torch

from experiments.synthetic.curriculum import Curriculum
from experiments.synthetic.task import Data
from tests.experiments.synthetic.conftest import TASK

RIGHT, WRONG = torch.ones(40, dtype=torch.bool), torch.zeros(40, dtype=torch.bool)


def curriculum(first: int = 8, short: int = 5) -> Curriculum:
    return Curriculum(Data(TASK), first=first, short=short, fewest=80)


def test_numbers_double_up_to_all_then_the_lengths_grow() -> None:
    steps = curriculum()
    present = len(steps.data.training.x.unique())
    levels, examples = [], []
    while True:
        levels.append((steps.numbers, steps.longest))
        examples.append(set(steps.examples().tolist()))
        steps.note(RIGHT, 0.0)
        if not steps.note(RIGHT, 0.0):
            break
    assert levels == [(8, 5), (16, 5), (32, 5), (present, 5), (present, 7)]
    # Who takes part goes on taking part.
    assert all(before < after for before, after in pairwise(examples[:4]))
    assert examples[-1] == set(range(100))
    xs = steps.data.training.x
    assert all(len(xs[sorted(some)].unique()) == size for some, (size, _) in zip(examples, levels, strict=True))


def test_a_level_is_passed_by_enough_first_digits_over_one_pass() -> None:
    steps = curriculum()
    assert not steps.note(RIGHT, 0.0)  # too few to judge by
    assert not steps.note(WRONG, 0.0)  # half were right
    assert not steps.note(RIGHT, 0.0)  # a new pass began
    assert steps.note(RIGHT, 0.0)


def test_at_the_latest_a_level_is_passed_when_its_share_of_half_the_run_is_over() -> None:
    steps = curriculum()
    shares = [share / 100 for share in range(101)]
    passed = [share for share in shares if steps.note(WRONG, share)]
    assert passed == [0.13, 0.25, 0.38, 0.5]
    assert steps.longest == 7


def test_without_a_curriculum_all_take_part_at_once() -> None:
    steps = curriculum(first=0, short=7)
    assert len(steps.examples()) == 100
    assert steps.longest == 7
    assert not steps.note(RIGHT, 1.0)
