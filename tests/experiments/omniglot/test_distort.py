import torch

from experiments.omniglot.distort import distort

DRAWINGS = torch.zeros(40, 1, 28, 28)
DRAWINGS[:, :, 8:20, 12:16] = 1.0


def test_a_distorted_drawing_is_another_but_much_alike() -> None:
    distorted = distort(DRAWINGS, untouched=0.0)
    assert distorted.shape == DRAWINGS.shape
    assert distorted.min() >= 0
    assert distorted.max() <= 1.0001
    changes = (distorted - DRAWINGS).abs().flatten(1).sum(1)
    assert (changes > 1).all()
    ink = distorted.flatten(1).sum(1) / DRAWINGS.flatten(1).sum(1)
    assert 0.4 < ink.min() <= ink.max() < 2.5


def test_some_stay_untouched() -> None:
    torch.testing.assert_close(distort(DRAWINGS, untouched=1.0), DRAWINGS, atol=1e-4, rtol=0)
    same = (distort(DRAWINGS, untouched=0.5) - DRAWINGS).abs().flatten(1).amax(1) < 1e-3
    assert 5 < same.sum() < 35


def test_nothing_asked_nothing_done() -> None:
    still = distort(DRAWINGS, turn=0, stretch=0, lean=0, move=0, bend=0, untouched=0)
    torch.testing.assert_close(still, DRAWINGS, atol=1e-4, rtol=0)


def test_a_move_is_in_half_sides() -> None:
    moved = distort(DRAWINGS, turn=0, stretch=0, lean=0, move=0.25, bend=0, untouched=0)
    rows = torch.arange(28.0)
    centres = (moved.sum((1, 3)) * rows).sum(1) / moved.sum((1, 2, 3))
    assert (centres - 13.5).abs().max() <= 0.25 * 14 + 1e-3
    assert (centres - 13.5).abs().max() > 1
