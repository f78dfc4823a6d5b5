"""The weights that are published do what the published results say."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

import rarecall.models
from experiments import results
from experiments.omniglot import data
from experiments.omniglot.episodes import encode, few_shot
from experiments.omniglot.evaluate import learner_of
from rarecall.models.weights import FOLDER, JOINED

PUBLISHED = [path for path in sorted(results.FOLDER.glob("omniglot-*.json")) if "--weights" in path.read_text()]
WEIGHTS = sorted(FOLDER.glob("omniglot*.safetensors"))


@pytest.mark.parametrize("path", WEIGHTS, ids=lambda path: path.stem)
def test_weights_are_small_half_precision_and_load_with_one_line(path: Path) -> None:
    assert path.stat().st_size < 5_000_000
    network = rarecall.models.load(path.stem)
    assert network(torch.rand(2, 1, 28, 28)).shape == (2, 256)


def test_our_network_is_joined_of_these_and_all_are_small_together() -> None:
    assert sum((FOLDER / f"{part}.safetensors").stat().st_size for part in JOINED["omniglot"]) < 10_000_000
    assert sum(path.stat().st_size for path in FOLDER.rglob("*.safetensors")) < 60_000_000  # all that is published
    drawings = torch.rand(2, 1, 28, 28)
    parts = [rarecall.models.load(part)(drawings) for part in JOINED["omniglot"]]
    joined = rarecall.models.load("omniglot")(drawings)
    torch.testing.assert_close(joined, torch.cat([torch.nn.functional.normalize(part) for part in parts], 1))


@pytest.mark.slow
@pytest.mark.skipif("RARECALL_DATA" not in os.environ, reason="needs Omniglot itself: RARECALL_DATA")
@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_published_weights_have_the_published_accuracy(path: Path) -> None:
    result = json.loads(path.read_text())
    if result["experiment"] != "omniglot":
        pytest.skip("not of `python -m experiments.omniglot evaluate`")
    words = result["command"].split()
    weights = [FOLDER.parent / word for word in words if word.endswith(".safetensors")]
    omniglot = data.load(quiet=True)
    assert omniglot.split == result["split"]
    learner, _ = learner_of(*weights)
    encoded = encode(learner, omniglot.characters(result["characters"]["which"]))
    published = result["figures"]["upright"]["5-way 1-shot"]
    again = few_shot(learner, encoded, ways=5, shots=1, episodes=published["episodes"], seed=result["seed"])
    assert again.mean == pytest.approx(published["mean"], abs=0.1)
