"""What training adds on top of a frozen embedder: a query projection, and a layer that attends to neighbours."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor, nn

from experiments.embedded.data import Embedded, Split
from experiments.embedded.methods import percent, taught
from experiments.intents.evaluate import SHOTS
from rarecall import Memory, NeighbourAttention, Recall, RecallEmbedding

BATCH = 128
ADAPTING, ADAPTING_RATE = 400, 1e-3  # steps, and learning rate of the projection
ATTENDING, ATTENDING_RATE = 1500, 1e-3


def adapt(data: Embedded, *, on: str, seed: int) -> dict[str, Any]:
    """Train a query projection by the memory's own loss, each example without itself; then write the memory anew."""
    figures: dict[str, Any] = {}
    for shots, split in SHOTS.items():
        examples, questions = data.splits[split], data.splits[on]
        torch.manual_seed(seed)
        start = time.perf_counter()
        projection = _projection(examples)
        seconds = time.perf_counter() - start
        projected = [Split(nn.functional.normalize(projection(keys)), labels) for keys, labels in (examples, questions)]
        figures[shots] = {"seconds": seconds}
        for reader in ("nearest", "blend"):
            for name, (some, asked) in {"frozen": (examples, questions), "adapted": projected}.items():
                answers = taught(some, reader=reader).predict(asked.keys).label
                figures[shots][f"{reader}, {name}"] = percent(answers == asked.labels)
        print(shots, figures[shots], flush=True)
    return figures


def _projection(examples: Split) -> nn.Linear:
    keys, labels = examples
    projection = nn.Linear(keys.shape[1], keys.shape[1], bias=False)
    nn.init.eye_(projection.weight)
    optimizer = torch.optim.Adam(projection.parameters(), lr=ADAPTING_RATE)
    memory = Memory(keys.shape[1], len(keys))
    sources = torch.arange(len(keys))
    for step in range(ADAPTING):
        if step % 50 == 0:  # keys of an older projection are of another space
            memory.reset()
            memory.write(projection(keys), labels, sources)
        rows = torch.randint(len(keys), (BATCH,))
        recall = memory(projection(keys[rows]), exclude=sources[rows])
        optimizer.zero_grad()
        memory.loss(recall, labels[rows]).backward()
        optimizer.step()
    return projection.requires_grad_(False)


class Head(nn.Module):
    """A softmax over classes, of a query and of what a layer reads from its recall."""

    def __init__(self, layer: nn.Module | None, key_size: int, size: int, classes: int) -> None:
        super().__init__()
        self.layer = layer
        self.classes = nn.Linear(key_size + (size if layer is not None else 0), classes)

    def forward(self, recall: Recall) -> Tensor:
        parts = [recall.query] if self.layer is None else [recall.query, self.layer(recall)]
        logits: Tensor = self.classes(torch.cat(parts, -1))
        return logits


def attend(data: Embedded, *, on: str, seed: int) -> dict[str, Any]:
    """Train a softmax on the query alone, with the nearest value, and with attention to neighbours."""
    figures: dict[str, Any] = {}
    size = 128
    for shots, split in SHOTS.items():
        (keys, labels), questions, classes = data.splits[split], data.splits[on], len(data.classes)
        memory = Memory(keys.shape[1], len(keys), k=32)
        sources = torch.arange(len(keys))
        memory.write(keys, labels, sources)
        torch.manual_seed(seed)
        layers = {
            "query alone": None,
            "nearest value": RecallEmbedding(classes, size),
            "attention to 16 neighbours": NeighbourAttention(keys.shape[1], classes, size, neighbours=16),
        }
        figures[shots] = {}
        for name, layer in layers.items():
            head = Head(layer, keys.shape[1], size, classes)
            optimizer = torch.optim.AdamW(head.parameters(), lr=ATTENDING_RATE)
            for _ in range(ATTENDING):
                rows = torch.randint(len(keys), (BATCH,))
                loss = nn.functional.cross_entropy(head(memory(keys[rows], exclude=sources[rows])), labels[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            with torch.no_grad():
                figures[shots][name] = percent(head(memory(questions.keys)).argmax(1) == questions.labels)
        print(shots, figures[shots], flush=True)
    return figures
