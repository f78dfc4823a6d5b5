from __future__ import annotations

import pytest
import torch
from torch import Tensor

from experiments.omniglot import lifelong
from experiments.omniglot.baselines.pixels import Pixels
from experiments.omniglot.data import Omniglot
from experiments.omniglot.episodes import MemoryLearner
from experiments.omniglot.lifelong import auroc, long_tail, retention, stream
from tests.helpers import unit


def clusters(classes: int, spread: float) -> Tensor:
    return unit(classes, 1, 64) + spread * torch.randn(classes, 20, 64)


def test_clear_classes_are_all_kept() -> None:
    encoded = clusters(40, 0.01)
    learned = stream(encoded, classes=30, repeats=1, seed=0)
    assert learned["30 classes"]["mean"] == 100.0
    assert list(learned["by classes learned"]) == ["10", "25", "30"]


def test_a_large_memory_keeps_and_a_small_one_forgets() -> None:
    kept = retention(clusters(80, 0.01), lags=(10, 300), seed=0, small=20)
    assert kept["large enough"]["by updates since shown"] == {"10": 100.0, "300": 100.0}
    assert kept["too small"]["by updates since shown"]["300"] == 0.0
    assert kept["too small"]["filled"] == 20
    assert kept["targets"] == 10
    assert kept["distractor classes"] == 40


def test_in_the_long_tail_what_was_seen_is_known_and_what_was_not_is_noticed() -> None:
    tail = long_tail(clusters(100, 0.02), events=400, seed=0)
    seen = tail["by times seen"]
    assert sum(cell["asked"] for cell in seen.values()) == 400
    assert seen["0"]["accuracy"] is None
    assert seen["0"]["asked"] <= 100
    assert seen["1"]["accuracy"] == 100.0
    assert tail["seen or never seen"]["AUROC of similarity"] == 1.0
    assert tail["seen or never seen"]["AUROC of confidence"] > 0.9


def test_no_drawing_comes_twice_in_the_long_tail() -> None:
    tail = long_tail(clusters(5, 0.02), events=1000, seed=0)
    assert tail["events"] == 100
    assert tail["by times seen"]["0"]["asked"] == 5
    assert tail["by times seen"]["more"]["asked"] == 5 * 9


def test_auroc_counts_ties_half() -> None:
    seen = torch.tensor([True, True, False, False])
    assert auroc(torch.tensor([3.0, 4.0, 1.0, 2.0]), seen) == 1.0
    assert auroc(torch.tensor([1.0, 2.0, 3.0, 4.0]), seen) == 0.0
    assert auroc(torch.tensor([1.0, 1.0, 1.0, 1.0]), seen) == 0.5
    assert auroc(torch.tensor([2.0, 1.0, 1.0, 0.0]), seen) == pytest.approx(0.875)


def test_too_few_classes_or_drawings_are_told() -> None:
    with pytest.raises(ValueError, match="stream of 600 classes needs 600; there are 10"):
        stream(torch.randn(10, 20, 4), classes=600, repeats=1, seed=0)
    with pytest.raises(ValueError, match="needs 20 drawings of a class; there are 10"):
        stream(torch.randn(10, 10, 4), classes=5, repeats=1, seed=0)


def test_all_four_on_characters(small: Omniglot) -> None:
    learner = MemoryLearner(torch.nn.Flatten(), key_size=784)
    result = lifelong.lifelong(learner, small, repeats=2, classes=20, lags=(10, 50), events=60, quiet=True)
    assert result["split"] == small.split
    assert result["characters"] == {"which": "test", "upright": 10, "turned": 40}
    assert set(result["figures"]) == {"all at once", "stream", "retention", "long tail"}
    assert list(result["figures"]["all at once"]) == ["10-way 1-shot", "10-way 5-shot"]
    assert Pixels().most_ways is None
