"""Text for the language model: Europarl's English documents, of which the last ones are held out."""

from __future__ import annotations

import gzip
import re
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

HELD_OUT = 400  # documents
SHORTEST = 20  # sentences of a document
END = "<end>"


class Documents(NamedTuple):
    """Documents, each a list of sentences.

    Attributes:
        train: to train the network on.
        validation: to fit the memory's trust on, and to choose on.
        test: to measure on.
    """

    train: list[list[str]]
    validation: list[list[str]]
    test: list[list[str]]


def read_documents(data: Path) -> Documents:
    """Read the documents; every second of the last ones is for testing."""
    folder = data / "ende"
    with gzip.open(folder / "europarl.en.gz", "rt") as lines, gzip.open(folder / "europarl.doc.gz", "rt") as items:
        pairs = zip(items.read().split("\n"), lines.read().split("\n"), strict=True)
        documents = [[line for _, line in group if line] for _, group in groupby(pairs, key=lambda pair: pair[0])]
    documents = [document for document in documents if len(document) >= SHORTEST]
    held_out = documents[-HELD_OUT:]
    return Documents(documents[:-HELD_OUT], held_out[::2], held_out[1::2])


def train_tokenizer(documents: list[list[str]], size: int) -> Any:
    """Return a tokenizer of `size` byte-level pieces, learned from documents."""
    from tokenizers import ByteLevelBPETokenizer
    from transformers import PreTrainedTokenizerFast

    pieces = ByteLevelBPETokenizer()
    lines = (line for document in documents for line in document)
    pieces.train_from_iterator(lines, size, special_tokens=[END], show_progress=False)
    return PreTrainedTokenizerFast(tokenizer_object=pieces._tokenizer, eos_token=END, pad_token=END)


def names(documents: list[list[str]], known: set[str]) -> dict[str, list[str]]:
    """Return names that are not among known words, each with the sentences that it stands in, two or more.

    A name is a capitalised word of five letters or more that does not begin a sentence.
    """
    found: dict[str, list[str]] = {}
    for document in documents:
        for sentence in document:
            for name in set(re.findall(r"(?<=[a-z,] )[A-Z][a-z]{4,}\b", sentence)) - known:
                found.setdefault(name, []).append(sentence)
    return {name: sentences for name, sentences in found.items() if len(sentences) >= 2}
