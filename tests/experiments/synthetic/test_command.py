from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.synthetic import __main__ as command
from experiments.synthetic import evaluate, presets
from experiments.synthetic.__main__ import main
from experiments.synthetic.networks import MODELS
from tests.experiments.synthetic.conftest import TASK


def run(command: str) -> None:
    main(shlex.split(command))


def test_train_evaluate_and_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = presets.Preset(TASK, {"neural-gpu": 6, "seq2seq": 8}, capacity=1000, steps=4, short=5)
    monkeypatch.setitem(presets.PRESETS, "small", small)
    monkeypatch.setattr(evaluate, "LONGER", 9)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    run("train --model neural-gpu --memory --preset small --out runs/a --steps 3")
    command = "evaluate --weights runs/a/network.safetensors --out results/a.json --capacities 50"
    run(command)
    result = json.loads((tmp_path / "results" / "a.json").read_text())
    assert result["command"] == f"python -m experiments.synthetic {command}"
    assert (result["model"], result["preset"]) == ("neural-gpu with memory", "small")
    assert result["training"]["steps"] == 3
    run("evaluate --hamming small --out results/h.json")
    capsys.readouterr()
    run("table --results results")
    assert "Hamming nearest neighbour" in capsys.readouterr().out


def test_the_names_of_the_command_are_those_that_there_are() -> None:
    assert command.MODELS == MODELS
    assert tuple(presets.PRESETS) == command.PRESETS
    assert presets.FORCED.keys() == presets.RATE.keys() == set(MODELS)
    assert all(preset.units.keys() == set(MODELS) for preset in presets.PRESETS.values())


def test_presets_make_runs() -> None:
    run = presets.make_run("paper", "neural-gpu", memory=True, seed=2, steps=7, anew=False)
    assert (run.task.symbols, run.task.training, run.capacity, run.steps, run.seed) == (16_000, 40_000, 500_000, 7, 2)
    assert not run.anew
    assert (run.forced, presets.make_run("paper", "seq2seq", memory=True).forced) == (0.0, 1.0)
    assert presets.make_run("small", "seq2seq", memory=False).capacity == 0
    assert presets.make_run("small", "seq2seq", memory=True, forced=0.0, batch=None).forced == 0.0
    assert presets.make_run("small", "seq2seq", memory=True, capacity=9).capacity == 9
    assert presets.preset_of({**vars(replace(presets.PRESETS["small"].task, seed=4))}) == "small"
    assert presets.preset_of(vars(TASK)) == "own"


TWICE = ["train", "--model", "seq2seq", "--out", "a", "--forced", "2"]


@pytest.mark.parametrize("words", [["train"], ["train", "--model", "x", "--out", "a"], ["evaluate"], [], TWICE])
def test_wrong_arguments_are_told(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(words)
    assert "usage: python -m experiments.synthetic" in capsys.readouterr().err
