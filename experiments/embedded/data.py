"""Real data through a frozen embedder: keys and labels. Embeddings are computed once and kept in the cache.

intents = load_intents("clinc150", "data")      # data/intents/clinc150/*.tsv, by MiniLM
keys, labels = intents.splits["train_10"]       # (n, 384) of length 1, (n,) int64
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from experiments import folders
from rarecall import storage
from rarecall.integrations import embedders

INTENTS = ("banking77", "clinc150")


class Split(NamedTuple):
    """Examples: keys (n, key_size) of length 1, and labels (n,) int64; -1 is none of the classes."""

    keys: Tensor
    labels: Tensor


@dataclass(frozen=True, eq=False)
class Embedded:
    """A data set.

    Attributes:
        classes: their names.
        splits: by name.
        examples: of each split, a text or the name of an image.
    """

    classes: tuple[str, ...]
    splits: dict[str, Split]
    examples: dict[str, list[str]]

    def few(self, split: str, shots: int, seed: int) -> Split:
        """Return `shots` examples of each class, drawn at random, in the order of the split."""
        keys, labels = self.splits[split]
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
        chosen = [order[labels[order] == label][:shots] for label in range(len(self.classes))]
        rows = torch.cat(chosen).sort().values
        return Split(keys[rows], labels[rows])


def load_intents(name: str, data: str | os.PathLike[str] | None = None) -> Embedded:
    """Read BANKING77 or CLINC150; splits are named as the files are."""
    folder = folders.data(data) / "intents" / name
    files = sorted(folder.glob("*.tsv"))
    if not files:
        raise FileNotFoundError(f"There are no questions in {folder}: expected train.tsv, valid.tsv, test.tsv, ...")
    rows = {file.stem: [line.split("\t") for line in file.read_text().split("\n") if line] for file in files}
    classes = sorted({row[1] for split, some in rows.items() if not split.startswith("oos") for row in some})
    number = {name: i for i, name in enumerate(classes)}
    examples = {split: [row[0] for row in some] for split, some in rows.items()}
    labels = {split: torch.tensor([number.get(row[1], -1) for row in some]) for split, some in rows.items()}
    keys = _keys(f"{name}-minilm", "minilm", examples, list)
    return Embedded(tuple(classes), {split: Split(keys[split], labels[split]) for split in rows}, examples)


def load_groceries(data: str | os.PathLike[str] | None = None) -> Embedded:
    """Read the grocery store data: the splits train, val and test of shop photos, and "catalogue", one picture each."""
    archive = zipfile.ZipFile(folders.data(data) / "groceries" / "groceries.zip")
    table = list(csv.reader(io.StringIO(archive.read("classes.csv").decode())))[1:]
    examples, labels = (
        {"catalogue": [row[4].lstrip("/") for row in table]},
        {"catalogue": [int(row[1]) for row in table]},
    )
    for split in ("train", "val", "test"):
        rows = [line.split(", ") for line in archive.read(f"{split}.txt").decode().split("\n") if line]
        examples[split], labels[split] = [row[0] for row in rows], [int(row[1]) for row in rows]

    def images(names: Sequence[str]) -> list[Any]:
        return [image(archive, name) for name in names]

    keys = _keys("groceries-views", "efficientnet", examples, images)
    splits = {split: Split(keys[split], torch.tensor(labels[split])) for split in examples}
    return Embedded(tuple(row[0] for row in table), splits, examples)


def image(archive: zipfile.ZipFile, name: str) -> Any:
    """Return an image of the archive."""
    from PIL import Image

    return Image.open(io.BytesIO(archive.read(name))).convert("RGB")


def _keys(
    name: str, embedder: str, examples: dict[str, list[str]], read: Callable[[Sequence[str]], list[Any]]
) -> dict[str, Tensor]:
    """Embed each split, or take it from the cache where it was embedded before."""
    content = "\n".join(example for split in sorted(examples) for example in examples[split])
    digest = hashlib.sha256(f"{embedder}\n{content}".encode()).hexdigest()[:16]
    path = Path(folders.cache()) / f"{name}-{digest}.safetensors"
    if path.is_file():
        return storage.read(path, kind="embeddings")[0]
    print(f"Embedding {sum(map(len, examples.values()))} examples by {embedder}, once ...", flush=True)
    network = embedders.load(embedder)
    unique = sorted({example for some in examples.values() for example in some})
    with torch.no_grad():
        parts = [network(read(unique[start : start + 512])) for start in range(0, len(unique), 512)]
    row = {example: i for i, example in enumerate(unique)}
    keys = torch.cat(parts)
    embedded = {split: keys[[row[example] for example in some]] for split, some in examples.items()}
    folders.keep(path, embedded, kind="embeddings")
    return embedded
