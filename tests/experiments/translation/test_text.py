from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from experiments.translation.text import Files, read, read_lines, training_files


def write(folder: Path, **files: bytes) -> list[Path]:
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in files]


def test_lines_end_at_a_newline_and_nowhere_else(tmp_path: Path) -> None:
    [path] = write(tmp_path, a="\ufeffone\u0085two\u2028three\r\n\nfour".encode())
    assert read_lines(path) == ["one\u0085two\u2028three", "", "four"]


def test_gzip_is_known_by_its_content(tmp_path: Path) -> None:
    a, b = write(tmp_path, a=gzip.compress(b"one\ntwo\n"), b=b"eins\nzwei\n")
    text = read([a, b], [b, a])
    assert (text.sources, text.targets) == (["one", "two", "eins", "zwei"], ["eins", "zwei", "one", "two"])
    assert text.parts == (2, 2)


@pytest.mark.parametrize(
    ("source", "target", "told"),
    [
        (b"one\ntwo\n", b"eins\n", r"a has 2 lines and .*b has 1; expected the same number"),
        (b"one\ntwo\n", "eins\nfünf".encode("latin-1"), r"b is not UTF-8: line 2 holds the byte 0xfc.*iconv"),
        ("one".encode("utf-16-le"), b"eins\n", "zero bytes"),
        (b"", b"", "are empty"),
        (gzip.compress(b"one\n" * 1000)[:20], b"eins\n", "damaged gzip"),
    ],
    ids=["lengths", "latin-1", "utf-16", "empty", "damaged"],
)
def test_bad_files_are_told(source: bytes, target: bytes, told: str, tmp_path: Path) -> None:
    a, b = write(tmp_path, a=source, b=target)
    with pytest.raises(ValueError, match=told):
        read([a], [b])


def test_missing_files_are_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="RARECALL_DATA"):
        read_lines(training_files(tmp_path).sources[0])
    with pytest.raises(ValueError, match="2 source files, 1 target files"):
        Files((tmp_path, tmp_path), (tmp_path,), (1, 1), "")


def test_the_training_text_is_named_and_its_news_are_repeated(tmp_path: Path) -> None:
    files = training_files(tmp_path)
    assert len(files.sources) == len(files.targets) == 7
    assert files.repeats == (1, 1, 8, 8, 8, 8, 8)
    assert "WMT" not in files.name


def test_a_digest_tells_texts_apart(tmp_path: Path) -> None:
    a, b, c = write(tmp_path, a=b"one\ntwo\n", b=b"eins\nzwei\n", c=b"one\nzwei\n")
    assert read([a], [b]).digest == read([a], [b]).digest
    assert len({read([a], [b]).digest, read([a], [c]).digest, read([b], [a]).digest}) == 3
