"""Parallel text: files whose n-th lines are translations of each other.

Only "\\n" ends a line; a "\\r" before it and a byte order mark at the beginning of a file are removed. Files are
UTF-8, plain or gzip.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from experiments import folders

NEWS = ("news-test2008", "newstest2009", "newstest2010", "newstest2011", "newstest2012")
TRAINED_ON = "Europarl, Tatoeba, news tests 2008-2012"
DEVELOPMENT, TEST = "newstest2013", "newstest2014"


@dataclass(frozen=True, eq=False)
class Text:
    """Pairs of sentences.

    Attributes:
        sources, targets: equally many lines of the two languages.
        parts: number of pairs from each pair of files.
    """

    sources: list[str]
    targets: list[str]
    parts: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.sources)

    def of(self, which: Sequence[int]) -> Text:
        """Return some of the pairs."""
        return Text([self.sources[n] for n in which], [self.targets[n] for n in which], (len(which),))

    @cached_property
    def digest(self) -> str:
        """Hash that identifies this text."""
        digest = hashlib.sha256(repr(self.parts).encode())
        for lines in (self.sources, self.targets):
            digest.update("\n".join(lines).encode())
        return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Files:
    """Files of a text, in order.

    Attributes:
        sources, targets: equally many files.
        repeats: how often each file is repeated in an epoch.
        name: name of the text in tables.
    """

    sources: tuple[Path, ...]
    targets: tuple[Path, ...]
    repeats: tuple[int, ...]
    name: str

    def __post_init__(self) -> None:
        if not len(self.sources) == len(self.targets) == len(self.repeats):
            raise ValueError(
                f"Got {len(self.sources)} source files, {len(self.targets)} target files and {len(self.repeats)} "
                "repeats; expected the same number of each: the first source goes with the first target."
            )


def training_files(folder: str | os.PathLike[str] | None = None, news: int = 8) -> Files:
    """Return the training files of the published networks; the small news files are repeated `news` times."""
    home = folders.data(folder) / "ende"
    names = [home / "europarl", home / "tatoeba", *(home / "newstest" / year for year in NEWS)]
    return Files(
        tuple(_found(name, "en") for name in names),
        tuple(_found(name, "de") for name in names),
        (1, 1, *[news] * len(NEWS)),
        TRAINED_ON,
    )


def news_test(name: str, folder: str | os.PathLike[str] | None = None) -> Text:
    """Read a news test, e.g. "newstest2014"."""
    stem = folders.data(folder) / "ende" / "newstest" / name
    return read([_found(stem, "en")], [_found(stem, "de")])


def read(sources: Sequence[Path], targets: Sequence[Path]) -> Text:
    """Read pairs of files and concatenate them."""
    read_sources: list[str] = []
    read_targets: list[str] = []
    parts = []
    for source, target in zip(sources, targets, strict=True):
        lines, meanings = read_lines(source), read_lines(target)
        if len(lines) != len(meanings):
            raise ValueError(
                f"{source} has {len(lines)} lines and {target} has {len(meanings)}; expected the same number, the n-th "
                'line of one the translation of the n-th of the other (only "\\n" ends a line).'
            )
        if not lines:
            raise ValueError(f"{source} and {target} are empty; expected a sentence on each line.")
        read_sources += lines
        read_targets += meanings
        parts.append(len(lines))
    return Text(read_sources, read_targets, tuple(parts))


def read_lines(path: Path) -> list[str]:
    """Read the lines of a file, plain or gzip."""
    if not path.is_file():
        raise FileNotFoundError(
            f"There is no file {path}. Set the folder that contains ende/ with --data or RARECALL_DATA."
        )
    content = path.read_bytes()
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{path} is a damaged gzip file ({error}); use an intact copy.") from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{path} is not UTF-8: line {line} holds the byte {content[error.start]:#04x}. Convert it, e.g. with "
            f"iconv -f ISO-8859-1 -t UTF-8, and try again."
        ) from error
    if "\0" in text:
        raise ValueError(f"{path} holds zero bytes, so it is not UTF-8 text; convert UTF-16 first.")
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def _found(stem: Path, language: str) -> Path:
    """Return the path of a language's file, plain or gzip."""
    plain = stem.with_name(f"{stem.name}.{language}")
    packed = stem.with_name(f"{stem.name}.{language}.gz")
    return plain if plain.is_file() or not packed.is_file() else packed
