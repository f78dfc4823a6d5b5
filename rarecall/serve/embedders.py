"""The embedders of the page's three kinds of examples, each from what a request is turned into."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from rarecall.integrations import embedders
from rarecall.models.weights import load
from rarecall.serve.images import drawing_pixels

# The memories of a folder that holds several: by name, what their examples are, and the embedder.
MEMORIES = {
    "drawings": ("drawing", "omniglot"),
    "text": ("text", "minilm"),
    "pictures": ("picture", "efficientnet"),
}
# One of three trained alike; joined they are a little more accurate, and three times as slow.
DRAWINGS = "omniglot-residual-0"


class Embedder:
    """A network, and how its input is made of an example.

    Args:
        name: by which a folder knows it.
        network: maps a batch to (n, key_size).
        batch: makes a batch of a list of examples.
    """

    def __init__(self, name: str, network: Callable[[Any], Any], batch: Callable[[list[Any]], Any] = list) -> None:
        self.name, self.network, self.batch = name, network, batch

    def __call__(self, examples: list[Any]) -> Any:
        with torch.inference_mode():
            return self.network(self.batch(examples))


def make(name: str, kind: str) -> Embedder:
    """Load an embedder by its name: omniglot, one of `rarecall.integrations.embedders`, or module:function.

    Args:
        kind: of the examples: "text", "drawing" or "picture".
    """
    if name == "omniglot":
        return Embedder(name, load(DRAWINGS), _drawings)
    return Embedder(name, embedders.load(name), _pictures if kind == "picture" else list)


def kind_of(name: str) -> str:
    """What the examples of an embedder are; of one that is not ours, texts."""
    return next((kind for kind, embedder in MEMORIES.values() if embedder == name), "text")


def _drawings(pngs: list[bytes]) -> Tensor:
    return torch.stack([drawing_pixels(png) for png in pngs])


def _pictures(files: list[bytes]) -> list[Image.Image]:
    return [Image.open(io.BytesIO(file)) for file in files]
