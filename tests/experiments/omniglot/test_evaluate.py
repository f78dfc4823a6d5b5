from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from experiments.omniglot.data import Omniglot
from experiments.omniglot.evaluate import evaluate, learner_of
from experiments.omniglot.models import PIXELS, RECIPES
from experiments.omniglot.paper import convnet
from rarecall import storage
from rarecall.models import weights


def test_pixels_on_small_characters(small: Omniglot) -> None:
    result = evaluate(PIXELS, small, characters="all", episodes=3)
    assert result["split"] == "rarecall, seed 0"
    assert result["characters"] == {"which": "all", "upright": 40, "turned": 160}
    for turns in ("upright", "turned"):
        figures = result["figures"][turns]
        assert list(figures) == ["5-way 1-shot", "5-way 5-shot", "20-way 1-shot", "20-way 5-shot"]
        assert all(0 < figure["mean"] <= 100 and figure["episodes"] == 3 for figure in figures.values())
    within = result["figures"]["within an alphabet"]
    assert within["alphabets"] == ["Beta"]
    json.dumps(result)


@pytest.mark.parametrize("model", sorted(RECIPES))
def test_every_model_is_found_again_in_its_file(model: str, tmp_path: Path) -> None:
    recipe = RECIPES[model](3)
    run = {"model": model, "on": "train", "steps": 1, "seed": 0}
    weights.save(recipe.network, tmp_path / "w.safetensors", header={"run": json.dumps(run), "commit": "abc"})
    learner, training = learner_of(tmp_path / "w.safetensors")
    assert training == run | {"commit": "abc"}
    drawings = torch.rand(10, 1, 28, 28)
    encoded = learner.encode(drawings)
    # Half precision is what a file keeps.
    expected = recipe.learner(recipe.network).encode(drawings)
    torch.testing.assert_close(encoded, expected, rtol=0.05, atol=0.05)
    assert learner.answer(encoded[:5, None], encoded[5:]).shape == (5,)


def test_a_network_that_was_trained_without_centring_is_evaluated_without(tmp_path: Path) -> None:
    network, path = convnet(), tmp_path / "w.safetensors"
    weights.save(network, path, header={"run": json.dumps({"model": "paper"})})
    drawings = torch.rand(3, 1, 28, 28).cumsum(3) / 28  # not in the middle
    encoded = learner_of(path)[0].encode(drawings)
    torch.testing.assert_close(encoded, network(drawings), rtol=0.05, atol=0.05)


def test_several_networks_are_joined(tmp_path: Path) -> None:
    for model in ("ours", "paper", "siamese"):
        header = {"run": json.dumps({"model": model}), "commit": "abc"}
        weights.save(RECIPES[model](3).network, tmp_path / f"{model}.safetensors", header=header)
    learner, training = learner_of(tmp_path / "ours.safetensors", tmp_path / "paper.safetensors")
    assert training == {"model": "joined", "of": [{"model": m, "commit": "abc"} for m in ("ours", "paper")]}
    encoded = learner.encode(torch.rand(10, 1, 28, 28))
    assert learner.answer(encoded[:5, None], encoded[5:]).shape == (5,)
    with pytest.raises(ValueError, match="'siamese'; only networks with a memory can be joined"):
        learner_of(tmp_path / "ours.safetensors", tmp_path / "siamese.safetensors")


def test_weights_of_another_network_are_told(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    weights.save(torch.nn.Linear(2, 2), path, header={"run": json.dumps({"model": "ours"})})
    with pytest.raises(ValueError, match="weights of another network than ResidualNet"):
        learner_of(path)
    weights.save(torch.nn.Linear(2, 2), path, header={"run": json.dumps({"model": "theirs"})})
    with pytest.raises(ValueError, match="the model 'theirs'; expected one of mann"):
        learner_of(path)
    storage.write(path, {}, kind="memory", header={})
    with pytest.raises(ValueError, match=r"expected 'rarecall\.network'"):
        learner_of(path)
