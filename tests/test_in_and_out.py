"""Import, export, merge, report and expiry of a kept classifier."""

import json
import time

import numpy as np
import pytest

import rarecall
from tests.store.life import SIZE, encode

TEXTS = [f"word{i} word{i + 1} nr{i}x" for i in range(40)]
LABELS = [["lost", "stolen", 7, 2.5][i % 4] for i in range(40)]


@pytest.fixture
def kept(tmp_path):
    with rarecall.open(tmp_path / "kept", embed=encode) as opened:
        yield opened


def contents(kept):
    return sorted((row["example"], json.dumps(row["label"]), row["key"].tobytes()) for row in kept.records())


@pytest.mark.parametrize("suffix", [".jsonl", ".npz", ".parquet"])
def test_what_is_exported_can_be_imported(kept, tmp_path, suffix):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    kept.teach(TEXTS, LABELS, who="anna")
    file = tmp_path / f"out{suffix}"
    assert kept.export(file) == len(TEXTS)
    with rarecall.open(tmp_path / "other", embed=lambda texts: pytest.fail("the keys are there")) as other:
        assert other.import_(file, progress=False) == len(TEXTS)
        assert contents(other) == contents(kept)
        assert other.history()[-1].kind == "import"


@pytest.mark.parametrize("example", [b"\x00bytes", np.arange(3.0), {"id": 7}, 812])
def test_all_kinds_of_examples_survive_a_file(tmp_path, example):
    with rarecall.open(tmp_path / "kept") as kept, rarecall.open(tmp_path / "other") as other:
        kept.teach(example, "a", keys=np.ones(4))
        kept.export(tmp_path / "out.jsonl")
        other.import_(tmp_path / "out.jsonl")
        [back] = other.examples()
        assert np.array_equal(back.example, example) if isinstance(example, np.ndarray) else back.example == example


def test_import_of_arrays_rows_tables_and_csv(kept, tmp_path):
    assert kept.import_(encode(TEXTS), labels=LABELS, examples=TEXTS) == 40
    assert kept.import_({"example": text, "label": "row"} for text in TEXTS[:5]) == 5
    (tmp_path / "table.csv").write_text("sentence,intent\nhow are you,greeting\nbye,farewell\n")
    assert kept.import_(tmp_path / "table.csv", example="sentence", label="intent") == 2
    pandas = pytest.importorskip("pandas")
    assert kept.import_(pandas.DataFrame({"example": ["one", "two"], "label": ["a", "b"]})) == 2
    assert kept.import_(None, examples=["three"], labels=["c"]) == 1
    assert len(kept) == 50
    assert kept.ask("bye").label == "farewell"
    assert kept.undo() == 1


def test_a_bad_import_says_what_is_wrong(kept, tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"example": "a", "label": "b"}\nnot json\n')
    with pytest.raises(ValueError, match="Line 2"):
        kept.import_(tmp_path / "bad.jsonl")
    with pytest.raises(ValueError, match="The columns are text, class"):
        kept.import_([{"text": "a", "class": "b"}])
    (tmp_path / "bad.xls").touch()
    with pytest.raises(ValueError, match=r"\.jsonl, \.parquet"):
        kept.import_(tmp_path / "bad.xls")
    with pytest.raises(ValueError, match="labels for"):
        kept.import_(np.ones((3, SIZE)), labels=["a"])
    assert len(kept) == 0


def test_two_folders_become_one(kept, tmp_path):
    kept.teach(TEXTS[:10], LABELS[:10], who="anna")
    with rarecall.open(tmp_path / "other", embed=encode) as other:
        other.teach(TEXTS[10:], LABELS[10:], who="ben")
        other.teach("hello", "greeting")
        taught_there = [(each.example, each.when, each.who) for each in reversed(other.examples())]
    assert kept.merge(tmp_path / "other") == 31
    assert len(kept) == 41
    assert kept.ask("hello").label == "greeting"
    there = [(each.example, each.when, each.who) for each in reversed(kept.examples())]
    assert there[10:] == taught_there
    assert kept.ask("hello").because[0].when == taught_there[-1][1]
    assert kept.forget(before=taught_there[0][1]) == 10  # those that were taught here
    assert kept.forget(who="ben") == 30
    assert kept.history()[-3].kind == "merge"
    with rarecall.open(tmp_path / "third") as third:
        third.teach(np.ones(5), "a")
    with pytest.raises(ValueError, match="another key_size"):
        kept.merge(tmp_path / "third")


def test_a_report_counts_examples_and_what_is_confused(kept, tmp_path):
    kept.import_(None, examples=["p q r s a", "p q r s b", "p q r s c"], labels=["lost"] * 3)
    kept.import_(None, examples=["p q d e f", "where is it"], labels=["stolen"] * 2)
    report = kept.report()
    assert [(each.label, each.examples, each.asked, each.right) for each in report.classes] == [
        ("lost", 3, 3, 3),
        ("stolen", 2, 2, 0),
    ]
    assert report.accuracy == 0.6
    assert ("stolen", "lost", 2) in report.confused or ("stolen", "lost", 1) in report.confused
    assert "3 of 3" in str(report)
    json.dumps(report.to_json())
    report.plot(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_an_empty_report(kept):
    assert kept.report().classes == []


def test_what_is_not_used_expires_and_use_renews_it(tmp_path, monkeypatch):
    begun, now = time.time(), [0.0]
    monkeypatch.setattr(time, "time", lambda: begun + now[0])
    day = 86400
    with rarecall.open(tmp_path, embed=encode, expire=30) as kept:
        kept.teach(["one two", "three four", "five six"], ["a", "b", "c"])
        now[0] = 20 * day
        assert kept.ask("one two").label == "a"  # used
        kept.teach("three four", "b")  # confirmed
    now[0] = 40 * day
    with rarecall.open(tmp_path, embed=encode) as kept:
        assert set(kept.classes()) == {"a", "b"}
        assert kept.history()[-1].reason == "not used for 30 days"
        now[0] = 71 * day
        kept.teach("seven", "d")
        assert set(kept.classes()) == {"d"}
