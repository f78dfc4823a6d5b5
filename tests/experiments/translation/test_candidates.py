from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from experiments.translation.candidates import draw
from rarecall.models.gnmt import GNMT


def test_all_pieces_of_the_target_take_part_and_as_many_others_as_are_drawn() -> None:
    torch.manual_seed(0)
    target = torch.tensor([[5, 7, 5], [2, 7, 9]])
    pieces, places, weights = draw(target, vocabulary=100, drawn=24)
    assert torch.equal(pieces[places], target)
    assert len(pieces) == len(set(pieces.tolist())) == 4 + 24
    assert weights[places].eq(0).all()
    assert weights[4:].tolist() == pytest.approx([math.log(96 / 24)] * 24)


def test_what_the_softmax_divides_by_is_right_on_average() -> None:
    torch.manual_seed(0)
    logits, target = 2 * torch.randn(100), torch.tensor([5, 7])
    sums = []
    for _ in range(4_000):
        pieces, _, weights = draw(target, vocabulary=100, drawn=20)
        sums.append((logits[pieces] + weights).exp().sum())
    assert torch.stack(sums).mean().item() == pytest.approx(logits.exp().sum().item(), rel=0.02)


def test_where_all_are_drawn_it_is_the_softmax_of_all() -> None:
    torch.manual_seed(0)
    network = GNMT(symbols=50, start=1, end=2, units=16, layers=2).eval()
    source, target = torch.randint(3, 50, (4, 6)), torch.randint(3, 50, (4, 5))
    pieces, places, weights = draw(target, vocabulary=50, drawn=50)
    among = network(source, target, among=pieces).logits + weights
    of_all = network(source, target).logits
    torch.testing.assert_close(
        F.cross_entropy(among.flatten(0, 1), places.flatten()), F.cross_entropy(of_all.flatten(0, 1), target.flatten())
    )
