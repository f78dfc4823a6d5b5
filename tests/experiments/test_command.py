from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from experiments import command

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("experiment", ["omniglot", "synthetic", "translation"])
def test_each_experiment_is_a_module_to_run(experiment: str) -> None:
    words = [sys.executable, "-m", f"experiments.{experiment}", "--help"]
    printed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert printed.startswith(f"usage: python -m experiments.{experiment} ")


def missing(name: str) -> ModuleNotFoundError:
    return ModuleNotFoundError(f"No module named {name!r}", name=name)


def parser_of(error: Exception) -> argparse.ArgumentParser:
    def fail(args: argparse.Namespace) -> None:
        raise error

    parser = argparse.ArgumentParser(prog="python -m experiments.a")
    parser.set_defaults(run=fail)
    return parser


def test_a_missing_package_is_named_with_the_extra_that_has_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        command.run(parser_of(missing("sacrebleu.metrics")), [])
    assert end.value.code == 1
    told = "python -m experiments.a needs sacrebleu: pip install --editable '.[translate]'\n"
    assert capsys.readouterr().err == told


def test_any_other_missing_module_is_raised() -> None:
    with pytest.raises(ModuleNotFoundError, match="lost"):
        command.run(parser_of(missing("rarecall.lost")), [])


def test_errors_that_a_user_can_mend_are_a_sentence_and_debug_shows_where(capsys: pytest.CaptureFixture[str]) -> None:
    error = FileNotFoundError("There is no a.zip; expected it in $RARECALL_DATA.")
    with pytest.raises(SystemExit) as end:
        command.run(parser_of(error), [])
    assert end.value.code == 1
    assert capsys.readouterr().err == "python -m experiments.a: There is no a.zip; expected it in $RARECALL_DATA.\n"
    with pytest.raises(FileNotFoundError):
        command.run(parser_of(error), ["--debug"])
    with pytest.raises(ZeroDivisionError):
        command.run(parser_of(ZeroDivisionError()), [])
