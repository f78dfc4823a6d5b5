"""Errors are told in a sentence; --debug shows where they come from."""

import pytest

from rarecall.cli.main import main
from rarecall.demo import demo
from rarecall.store.folder import FolderError

REPORT = "With --debug it shows where. Please report it.\n"


def failing(error):
    def run(**given):
        raise error

    return lambda out, seed, steps: run()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("out is not a folder."), "rarecall demo: out is not a folder.\n"),
        (KeyError("no such example"), "rarecall demo: no such example\n"),
        (
            FolderError("tickets is being taught by process 7."),
            "rarecall demo: tickets is being taught by process 7.\n",
        ),
        (FileNotFoundError(2, "No such file", "a.png"), "rarecall demo: [Errno 2] No such file: 'a.png'\n"),
        (
            ZeroDivisionError("division by zero"),
            "rarecall demo: unexpected ZeroDivisionError: division by zero\n" + REPORT,
        ),
        (
            ModuleNotFoundError("No module named 'rarecall.lost'", name="rarecall.lost"),
            "rarecall demo: unexpected ModuleNotFoundError: No module named 'rarecall.lost'\n" + REPORT,
        ),
    ],
)
def test_an_error_is_a_sentence_and_no_traceback(monkeypatch, capsys, error, told) -> None:
    monkeypatch.setattr(demo, "run", failing(error))
    with pytest.raises(SystemExit) as end:
        main(["demo"])
    assert end.value.code == 1
    assert capsys.readouterr().err == told
    for arguments in (["demo", "--debug"], ["--debug", "demo"]):
        with pytest.raises(type(error)):
            main(arguments)


def test_an_interrupt_is_silent(monkeypatch, capsys) -> None:
    monkeypatch.setattr(demo, "run", failing(KeyboardInterrupt()))
    with pytest.raises(SystemExit) as end:
        main(["demo"])
    assert end.value.code == 130
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["serve"], "serve needs a folder, or --demo, and not both"),
        (["serve", "folder", "--demo"], "serve needs a folder, or --demo, and not both"),
        (["serve", "folder", "--embedder", "nothing"], "No embedder is called 'nothing'"),
        (["serve", "folder", "--embedder", "no:thing"], "The embedder no:thing cannot be imported: No module"),
        (["teach", "new", "label", "example"], "new is new: name its embedder, for example --embedder minilm."),
    ],
)
def test_commands_say_what_they_need(capsys, tmp_path, monkeypatch, arguments, told) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 1
    assert told in capsys.readouterr().err
