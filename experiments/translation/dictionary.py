"""Entries of a dictionary in the format of the Ding project, e.g. Debian's package trans-de-en.

A line is "German :: English". Both sides have the same number of forms (singular, plural, phrases), separated by "|";
the synonyms of a form are separated by ";"; remarks stand in brackets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from experiments.translation.bleu import WORD
from experiments.translation.text import read_lines

REMARKS = re.compile(r"\{[^}]*\}|\[[^\]]*\]|\([^)]*\)|<[^>]*>")


class Entry(NamedTuple):
    """A form of an entry: English words, separated by spaces, and one German word."""

    english: str
    german: str


class Asked(NamedTuple):
    """A word of a reference: its line number, the English words of the source that it translates, and the word."""

    line: int
    english: str
    german: str


def read_entries(path: Path) -> set[Entry]:
    """Read the entries of a dictionary whose German side is one word."""
    if not path.is_file():
        raise FileNotFoundError(
            f"There is no dictionary {path}. Install one, e.g. with apt-get install trans-de-en, and give its path."
        )
    found = {entry for line in read_lines(path) if not line.startswith("#") for entry in _forms(line)}
    if not found:
        raise ValueError(f'{path} holds no entries; expected lines of the form "German :: English".')
    return found


def _forms(line: str) -> Iterator[Entry]:
    german, _, english = line.partition("::")
    # Surplus forms of one side have no counterpart.
    for of_german, of_english in zip(german.split("|"), english.split("|"), strict=False):
        words = [word for side in of_german.split(";") if WORD.fullmatch(word := REMARKS.sub("", side).strip())]
        for side in of_english.split(";"):
            meaning = " ".join(WORD.findall(REMARKS.sub(" ", side).strip().removeprefix("to ").lower()))
            if meaning:
                yield from (Entry(meaning, word) for word in words)


def asked_words(sources: list[str], targets: list[str], rare: set[str], entries: Iterable[Entry]) -> list[Asked]:
    """Return the rare words of the references that the dictionary translates from words of the same line's source.

    If several entries of a word fit, the one with the longest English side counts.
    """
    meanings: dict[str, list[str]] = {}
    for entry in entries:
        if entry.german in rare:
            meanings.setdefault(entry.german, []).append(entry.english)
    found = []
    for line, (source, target) in enumerate(zip(sources, targets, strict=True)):
        read = f" {' '.join(WORD.findall(source.lower()))} "
        for word in sorted(set(WORD.findall(target)) & meanings.keys()):
            fitting = [english for english in meanings[word] if f" {english} " in read]
            if fitting:
                found.append(Asked(line, max(fitting, key=lambda english: (len(english), english)), word))
    return found
