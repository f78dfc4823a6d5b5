"""Real keys: embeddings of Omniglot drawings by the trained network in weights/omniglot-residual-0.safetensors.

All 1623 characters, every quarter turn a class of its own, 20 drawings of each: every embedding is of one of these
129 840 drawings, distorted anew as in training, so that no two are alike. They are made once, in parts that are kept in
the cache folder (RARECALL_CACHE, else ~/.cache/rarecall): 0.4 ms an image on one core.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import normalize
from tqdm import tqdm

from experiments import folders
from experiments.omniglot import data
from experiments.omniglot.distort import distort
from experiments.omniglot.episodes import as_input
from rarecall import models, storage
from rarecall.models.weights import FOLDER

NETWORK = "omniglot-residual-0"
PART = 50_000  # embeddings of a file
BATCH = 500
NUMBERS = 256  # of an embedding
CLASSES = 4 * 1623


def embeddings(use: str, count: int, key_size: int) -> tuple[Tensor, Tensor]:
    """(count, key_size) normalised, and (count,) int64, the class of each; those for "keys" and "queries" differ.

    Fewer numbers than the network's 256 are the coordinates along as many orthogonal directions, drawn once at random.
    """
    if key_size > NUMBERS:
        raise ValueError(f"Real keys of {key_size} numbers were asked for; expected at most the network's {NUMBERS}.")
    random = torch.randn(NUMBERS, NUMBERS, generator=torch.Generator().manual_seed(0))
    directions = torch.linalg.qr(random).Q[:, :key_size] if key_size < NUMBERS else torch.eye(NUMBERS)
    digest = hashlib.sha256((FOLDER / f"{NETWORK}.safetensors").read_bytes()).hexdigest()[:16]
    keys, classes = torch.empty(count, key_size), torch.empty(count, dtype=torch.int64)
    for number, rows in enumerate(torch.arange(count).split(PART)):
        path = folders.cache() / f"embeddings-{digest}" / f"{use}-{number}.safetensors"
        if not path.is_file():
            _make(path, seed=2 * number + (use == "queries"))
        tensors, _ = storage.read(path, kind="embeddings")
        here = slice(int(rows[0]), int(rows[-1]) + 1)
        keys[here] = normalize(tensors["embeddings"][: len(rows)].float() @ directions)
        classes[here] = tensors["classes"][: len(rows)]
    return keys, classes


def _make(path: Path, seed: int) -> None:
    """Writes PART embeddings, in half precision, and their classes."""
    drawings = data.load().characters("all").turned().drawings  # (classes, 20, 28, 28)
    network = models.load(NETWORK)
    classes = torch.randint(len(drawings), (PART,), generator=torch.Generator().manual_seed(seed))
    made = []
    with torch.random.fork_rng(), torch.no_grad(), tqdm(total=PART, desc=path.stem, unit=" embeddings") as progress:
        torch.manual_seed(seed)
        for batch in classes.split(BATCH):
            chosen = drawings[batch, torch.randint(drawings.shape[1], (len(batch),))]
            made.append(normalize(network(distort(as_input(chosen), untouched=0))).half())
            progress.update(len(batch))
    path.parent.mkdir(parents=True, exist_ok=True)
    storage.write(path, {"embeddings": torch.cat(made), "classes": classes}, kind="embeddings", header={})
