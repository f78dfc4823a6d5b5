from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.omniglot import __main__ as command
from experiments.omniglot import evaluate
from experiments.omniglot import train as training
from experiments.omniglot.__main__ import main
from experiments.omniglot.models import RECIPES
from experiments.omniglot.ours import Ours
from tests.experiments.omniglot.conftest import BACKGROUND, EVALUATION, pack


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RARECALL_CACHE", str(tmp_path / "cache"))
    pack(tmp_path / "omniglot" / "images_background.zip", "background", BACKGROUND, 0)
    pack(tmp_path / "omniglot" / "images_evaluation.zip", "evaluation", EVALUATION, 20)
    return tmp_path


def test_train_evaluate_and_table(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Ours, "ways", 4)
    monkeypatch.setattr(training.validate, "__defaults__", (2,))
    monkeypatch.setattr(evaluate, "SETTINGS", ((5, 1),))
    monkeypatch.chdir(folder)
    main(["train", "--data", str(folder), "--out", "runs/a", "--steps", "3"])
    (folder / "results").mkdir()
    out = ["--out", "results/a.json"]
    weights = ["--weights", "runs/a/network.safetensors"]
    main(["evaluate", "--data", str(folder), *weights, "--episodes", "2", *out])
    result = json.loads((folder / "results" / "a.json").read_text())
    assert result["command"] == (
        "python -m experiments.omniglot evaluate --weights runs/a/network.safetensors --on test --episodes 2 --seed 0 "
        "--out results/a.json"
    )
    assert result["model"] == "ours"
    assert result["training"]["steps"] == 3
    capsys.readouterr()
    main(["table", "--results", "results"])
    assert "Residual network with memory" in capsys.readouterr().out


def test_demo(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["demo", "--data", str(folder), "--out", str(folder / "demo.png")])
    printed = capsys.readouterr().out
    rows = [line.split() for line in printed.splitlines() if "%" in line]
    assert [row[0] for row in rows] == ["0", "1", "2", "3", "5", "10"]
    assert rows[0][3] == "100.0%"  # it does not know
    assert float(rows[1][1][:-1]) > 50  # crossing bars at places of their own
    assert (folder / "demo.png").stat().st_size > 10_000
    with pytest.raises(SystemExit, match="Create it first"):
        main(["demo", "--data", str(folder), "--out", str(folder / "missing" / "demo.png")])


def test_the_models_of_the_command_are_those_that_there_are() -> None:
    assert tuple(sorted(RECIPES)) == command.MODELS


@pytest.mark.parametrize("words", [["train"], ["train", "--out", "a", "--steps", "0"], ["evaluate"], ["lifelong"]])
def test_wrong_arguments_are_told(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(words)
    assert "usage: python -m experiments.omniglot" in capsys.readouterr().err
