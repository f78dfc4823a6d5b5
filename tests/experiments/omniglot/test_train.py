from __future__ import annotations

import json
import os
import signal
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from experiments.omniglot import paper
from experiments.omniglot import train as training
from experiments.omniglot.data import Omniglot
from experiments.omniglot.ours import Ours
from experiments.omniglot.paper import Paper, PaperDistorted
from experiments.omniglot.train import Run, State, train
from experiments.training import Pace, steps_of
from rarecall import storage
from tests.helpers import assert_same

RUN = Run("ours", "train", steps=6, seed=3)  # the memory takes part from the third step on


@pytest.fixture(autouse=True)
def _few_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ours, "ways", 8)
    monkeypatch.setattr(training.validate, "__defaults__", (5,))


def tensors(out: Path, name: str = "checkpoint", kind: str = "checkpoint") -> dict[str, Tensor]:
    return storage.read(out / f"{name}.safetensors", kind=kind)[0]


def test_a_run_that_was_stopped_goes_on_to_the_very_same_weights_memory_and_random_numbers(
    small: Omniglot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert train(RUN, small, tmp_path / "whole", Pace(measure=2, quiet=True))
    forward_one = State.forward_one

    def interrupted(state: State, classes: object) -> dict[str, float]:
        if state.step == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return forward_one(state, classes)

    monkeypatch.setattr(State, "forward_one", interrupted)
    assert not train(RUN, small, tmp_path / "parts", Pace(measure=2, quiet=True))
    assert not (tmp_path / "parts" / "network.safetensors").exists()
    torch.rand(7)  # what happens in between does not matter
    monkeypatch.setattr(State, "forward_one", forward_one)
    assert train(RUN, small, tmp_path / "parts", Pace(measure=2, quiet=True))
    whole = tensors(tmp_path / "whole")
    assert_same(whole, tensors(tmp_path / "parts"))
    assert (whole["recipe/memory.values"] >= 0).any()
    assert_same(tensors(tmp_path / "whole", "network", "network"), tensors(tmp_path / "parts", "network", "network"))


def test_a_checkpoint_of_another_run_is_refused(small: Omniglot, tmp_path: Path) -> None:
    assert train(RUN, small, tmp_path, Pace(quiet=True))
    with pytest.raises(ValueError, match="belongs to another run"):
        train(replace(RUN, seed=4), small, tmp_path, Pace(quiet=True))


def test_a_run_may_go_on_with_more_or_fewer_steps_and_says_so(small: Omniglot, tmp_path: Path) -> None:
    assert train(RUN, small, tmp_path, Pace(quiet=True))
    assert train(replace(RUN, steps=8), small, tmp_path, Pace(quiet=True))
    header = storage.read(tmp_path / "network.safetensors", kind="network")[1]
    assert json.loads(header["run"]) == asdict(replace(RUN, steps=8)) | {"plans": [[6, 6]]}


def test_a_run_begins_with_trained_weights_past_the_curriculum(
    small: Omniglot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Paper, "ways", 8)
    monkeypatch.setattr(Paper, "late_window", 10)
    run = Run("paper", "train", steps=1, seed=3)
    assert train(run, small, tmp_path / "a", Pace(quiet=True))
    begin = tmp_path / "a" / "network.safetensors"
    classes = small.characters("train").turned()
    state = State(PaperDistorted(len(classes)), run)
    state.begin_with(begin)
    found = {name: tensor.half() for name, tensor in state.recipe.network.state_dict().items()}
    assert_same(found, tensors(tmp_path / "a", "network", "network"))
    assert_same(state.mean.state_dict(), state.recipe.network.state_dict())
    monkeypatch.setattr(paper, "even_start", pytest.fail)  # trained weights are not scaled anew
    state.forward_one(classes)
    assert state.recipe.window == 10


def test_metrics_are_json_lines_and_those_after_the_checkpoint_are_dropped(small: Omniglot, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 5, "loss": 1.0}\n{"step": 6, "lo')
    train(RUN, small, tmp_path, Pace(report=2, measure=2, quiet=True))
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [2, 4, 6]
    assert all({"loss", "by_class", "by_memory", "validation"} <= line.keys() for line in lines[1:])


def test_too_few_classes_are_an_error(small: Omniglot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ours, "ways", 1000)
    with pytest.raises(ValueError, match="1000 classes a step"):
        train(RUN, small, tmp_path, Pace(quiet=True))


def test_minutes_become_steps(small: Omniglot, tmp_path: Path) -> None:
    assert training.steps_in(0.5, "ours", small, "train") > 30
    assert steps_of(tmp_path) is None
    train(RUN, small, tmp_path, Pace(quiet=True))
    assert steps_of(tmp_path) == 6
