"""The commands for a classifier in a folder."""

import io
import json
import sys

import pytest

from rarecall.cli.main import main
from tests.store.life import encode  # noqa: F401 - named on the command line

EMBEDDER = ("--embedder", "tests.cli.test_kept:encode")


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    def run(command, *arguments, stdin="", embedder=True):
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        named = EMBEDDER if embedder and command in ("teach", "ask", "explain", "import") else ()
        main([command, str(tmp_path / "kept"), *map(str, arguments), *named])
        return capsys.readouterr().out

    return run


def test_teach_ask_explain_forget_undo(run):
    assert run("teach", "lost", "where is my card", "I lost my card", "--who", "anna") == "taught 2 examples\n"
    run("teach", stdin="stolen\tmy card was stolen\n7\tseven\ntrue\tyes\n")
    assert json.loads(run("ask", "yes", "--json"))["label"] == "true"  # text, but for numbers
    assert run("ask", "where is my card").split("\t")[0] == "lost"
    assert run("ask", stdin="seven\n").startswith("7\t")
    told = run("explain", "where is my card").splitlines()
    assert told[0] == "Question  where is my card"
    assert told[1].startswith("Answer    lost (probability ")
    assert told[2].split() == ["similarity", "taught", "on", "label", "example"]
    assert told[3].split()[2:] == ["lost", "where", "is", "my", "card"]
    answer = json.loads(run("explain", "where is my card", "--json", "--count", 2))
    assert (answer["label"], answer["because"][0]["example"], len(answer["because"])) == ("lost", "where is my card", 2)
    assert run("forget", "--label", "stolen", "--reason", "asked to") == "forgot 1 examples\n"
    assert json.loads(run("forget", "--taught-by", "anna", "--json")) == {"forgotten": 2}
    assert "asked to" in run("report", "--history")
    assert run("teach", "lost", "gone") == "taught 1 examples\n"
    assert run("undo").startswith("1 examples")


def test_import_export_report_check(run, tmp_path):
    (tmp_path / "in.csv").write_text("example,label\nhow are you,greeting\nhello,greeting\nbye,farewell\n")
    assert run("import", tmp_path / "in.csv") == "taught 3 examples\n"
    assert run("export", tmp_path / "out.jsonl") == f"wrote 3 examples to {tmp_path / 'out.jsonl'}\n"
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 3
    assert "greeting" in run("report")
    assert json.loads(run("report", "--json"))["classes"][0]["label"] == "greeting"
    assert run("check").startswith("whole: ")
    assert "made anew" in run("check", "--rebuild")
    data = bytearray((tmp_path / "kept" / "journal.sqlite").read_bytes())
    place = data.find(b"how are you")
    data[place] ^= 1
    (tmp_path / "kept" / "journal.sqlite").write_bytes(data)
    with pytest.raises(SystemExit, match="1"):
        run("check")


def test_what_cannot_be_done_is_told(run, tmp_path):
    with pytest.raises((SystemExit, FileNotFoundError)):
        run("ask", "hello")
    run("teach", "a", "one")
    with pytest.raises((SystemExit, ValueError)):
        run("ask", "one", embedder=False)  # it is none of the built-in ones
