from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from rarecall.experiments.omniglot.baselines.pixels import Pixels
from rarecall.experiments.omniglot.data import Omniglot
from rarecall.experiments.omniglot.episodes import MemoryLearner, as_input, encode, few_shot, mean_of
from tests.helpers import unit

LEARNER = MemoryLearner(nn.Flatten(), key_size=32)


def clusters(classes: int, spread: float) -> Tensor:
    return unit(classes, 1, 32) + spread * torch.randn(classes, 20, 32)


def test_clear_classes_are_all_told_apart_and_noise_is_guessed() -> None:
    assert few_shot(LEARNER, clusters(30, 0.01), ways=20, shots=1, episodes=10).mean == 100.0
    noise = few_shot(LEARNER, torch.randn(30, 20, 32), ways=5, shots=1, episodes=200)
    assert abs(noise.mean - 20.0) < 3 * noise.interval


def test_more_shots_help() -> None:
    encoded = clusters(40, 0.25)
    accuracies = [few_shot(LEARNER, encoded, ways=20, shots=shots, episodes=40).mean for shots in (1, 5)]
    assert accuracies[0] < accuracies[1]


def test_episodes_are_the_same_for_the_same_seed_only() -> None:
    encoded = clusters(30, 0.3)
    means = [few_shot(LEARNER, encoded, ways=5, shots=1, episodes=30, seed=seed).mean for seed in (0, 0, 1)]
    assert means[0] == means[1] != means[2]


def test_one_episode_does_not_remember_another() -> None:
    a, b = unit(5, 2, 32), unit(5, 2, 32)
    first = LEARNER.answer(a[:, :1], a[:, 1])
    LEARNER.answer(b[:, :1], b[:, 1])
    assert torch.equal(LEARNER.answer(a[:, :1], a[:, 1]), first)


def test_bad_episodes_are_told() -> None:
    encoded = torch.randn(10, 20, 32)
    with pytest.raises(ValueError, match="20-way needs 20 classes; there are 10"):
        few_shot(LEARNER, encoded, ways=20, shots=1, episodes=1)
    with pytest.raises(ValueError, match="needs 21 drawings of a class; there are 20"):
        few_shot(LEARNER, encoded, ways=5, shots=16, episodes=1)
    with pytest.raises(ValueError, match="expected at least 1"):
        few_shot(LEARNER, encoded, ways=5, shots=1, episodes=0)


def test_the_interval_is_that_of_a_normal_distribution() -> None:
    accuracy = mean_of(torch.tensor([0.0, 1.0] * 50, dtype=torch.float64))
    assert accuracy.mean == 50.0
    assert accuracy.interval == pytest.approx(100 * 1.96 * 0.50252 / 10, rel=1e-4)
    assert str(mean_of(torch.ones(1))) == "100.00 ± 0.00"


def test_every_drawing_is_encoded_once(small: Omniglot) -> None:
    characters = small.characters("test")
    encoded = encode(Pixels(), characters, batch=7)
    assert encoded.shape == (10, 20, 784)
    assert torch.equal(encoded[3, 4], Pixels().encode(as_input(characters.drawings[3, 4:5]))[0])
    assert as_input(characters.drawings[3]).max() == 1.0
