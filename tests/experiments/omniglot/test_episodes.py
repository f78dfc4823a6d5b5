from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from experiments.omniglot.baselines.pixels import Pixels
from experiments.omniglot.data import Omniglot
from experiments.omniglot.episodes import MemoryLearner, as_input, encode, few_shot, mean_of
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


def test_drawings_shown_together_are_one_key_and_views_have_slots_of_their_own() -> None:
    learner = MemoryLearner(nn.Flatten(), key_size=784, together=True, views=3)
    drawings = torch.rand(10, 1, 28, 28)
    torch.manual_seed(0)
    encoded = learner.encode(drawings)
    assert encoded.shape == (10, 4 * 784)
    torch.testing.assert_close(encoded[:, :784], nn.functional.normalize(drawings.flatten(1)))
    shown, asked = encoded[:6].view(3, 2, -1), encoded[6:]
    assert learner.answer(shown, asked).shape == (4,)
    memory = learner._memory
    assert memory.values.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    means = nn.functional.normalize(shown.view(3, 2, 4, 784).mean(1), dim=-1)
    torch.testing.assert_close(memory.keys, means.flatten(0, 1))
    torch.testing.assert_close(learner.query(asked), asked.view(4, 4, 784).mean(1))


def test_views_are_the_same_each_time(small: Omniglot) -> None:
    learner = MemoryLearner(nn.Flatten(), key_size=784, views=2)
    few = small.characters("test").of("Beta")
    assert torch.equal(encode(learner, few), encode(learner, few))


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
