import inspect
from collections.abc import Callable
from pathlib import Path

import pytest

import rarecall
from rarecall.cli.main import main
from rarecall.demo import demo

DEFAULTS = {name: parameter.default for name, parameter in inspect.signature(demo.run).parameters.items()}


@pytest.fixture
def calls(monkeypatch) -> list[tuple[Path, int, int]]:
    calls: list[tuple[Path, int, int]] = []
    monkeypatch.setattr(demo, "run", lambda out, seed, steps: calls.append((out, seed, steps)))
    return calls


def test_without_options_it_is_what_the_function_does_without_arguments(calls) -> None:
    main(["demo"])
    assert calls == [(Path("demo.png"), DEFAULTS["seed"], DEFAULTS["steps"])]


def test_options_reach_the_function(calls, tmp_path) -> None:
    main(["demo", "--out", str(tmp_path / "picture.png"), "--seed", "3", "--steps", "0"])
    assert calls == [(tmp_path / "picture.png", 3, 0)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["demo", "--out", "missing/demo.png"], "there is no folder missing to write demo.png to; create it first"),
        (["demo", "--steps", "-1"], "'-1' is not a number of steps; expected 0, 1, 2, ..."),
        (["demo", "--seed", "x"], "invalid int value: 'x'"),
        (["dream"], "invalid choice: 'dream'"),
        ([], "the following arguments are required: command"),
    ],
)
def test_bad_arguments_are_explained(calls, capsys, tmp_path, monkeypatch, arguments, message) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert message in capsys.readouterr().err
    assert calls == []


def test_version(capsys) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"rarecall {rarecall.__version__}\n"


def missing(name: str) -> Callable[..., None]:
    def run(out: Path, seed: int, steps: int) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    return run


@pytest.mark.parametrize("name", ["matplotlib", "matplotlib.figure"])
def test_what_is_not_installed_is_named(monkeypatch, capsys, name) -> None:
    monkeypatch.setattr(demo, "run", missing(name))
    with pytest.raises(SystemExit) as end:
        main(["demo"])
    assert end.value.code == 1
    assert capsys.readouterr().err == "rarecall demo: it needs matplotlib: pip install 'rarecall[demo]'\n"
