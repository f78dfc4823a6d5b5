"""An embedder with a memory behind it: teach it one example at a time, ask it why, make it forget."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn

from rarecall.memory import Memory
from rarecall.recall import Recall


@dataclass(frozen=True, eq=False)
class Prediction:
    """Answers to n questions.

    Attributes:
        label: (n,) int64, -1 where the classifier does not know.
        confidence: (n,) the weight of the nearest neighbour.
        similarity: (n,) its cosine similarity, -inf where there was none.
    """

    label: Tensor
    confidence: Tensor
    similarity: Tensor

    @property
    def known(self) -> Tensor:
        """(n,) bool: False where the answer is "I don't know"."""
        return self.label >= 0


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why: the neighbours of n questions, nearest first; each field is (n, m), -1 (or -inf, or 0) beyond the last.

    Attributes:
        slots: int64, where the neighbours are.
        labels: int64, their labels.
        sources: int64, the examples that founded them; -1 where none was given.
        similarities: cosine similarities.
        weights: softmax weights; the first is the confidence.
        ages: int64, how many updates ago each was last written or confirmed.
    """

    slots: Tensor
    labels: Tensor
    sources: Tensor
    similarities: Tensor
    weights: Tensor
    ages: Tensor

    def __str__(self) -> str:
        lines = []
        for question in range(len(self.slots)):
            count = int((self.slots[question] >= 0).sum())
            lines.append(f"question {question}: {count} neighbours" if count else f"question {question}: nothing known")
            if count:
                lines.append(f"{'label':>10} {'source':>10} {'similarity':>10} {'weight':>7} {'age':>8} {'slot':>8}")
            for i in range(count):
                label, source, similarity, weight, age, slot = (
                    field[question, i].item()
                    for field in (self.labels, self.sources, self.similarities, self.weights, self.ages, self.slots)
                )
                lines.append(f"{label:10d} {source:10d} {similarity:10.3f} {weight:7.3f} {age:8d} {slot:8d}")
        return "\n".join(lines)


class MemoryClassifier(nn.Module):
    """A trained embedder and a memory: a classifier that learns a class from one example, without training.

    Two thresholds say when it does not know. A low *confidence* means that different neighbours are equally near; a
    low *similarity* means that even the nearest is far away. A memory of one slot is always confident, so it takes the
    similarity to notice a class that it was never shown.

    Args:
        embedder: maps x to (n, key_size).
        memory: of that key_size.
        min_confidence: below it the answer is "I don't know".
        min_similarity: likewise.

    Example:
        >>> classifier = MemoryClassifier(nn.Flatten(), Memory(key_size=4, capacity=10), min_similarity=0.5)
        >>> classifier.teach(torch.tensor([[1.0, 0.0, 0.0, 0.0]]), label=3, source=101)
        >>> classifier.predict(torch.tensor([[0.9, 0.1, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])).label
        tensor([ 3, -1])
    """

    def __init__(
        self, embedder: nn.Module, memory: Memory, *, min_confidence: float = 0.0, min_similarity: float = -1.0
    ) -> None:
        super().__init__()
        if not 0.0 <= min_confidence <= 1.0:
            raise ValueError(f"MemoryClassifier got min_confidence={min_confidence}; expected 0 to 1.")
        if not -1.0 <= min_similarity <= 1.0:
            raise ValueError(f"MemoryClassifier got min_similarity={min_similarity}; expected -1 to 1, a cosine.")
        self.embedder, self.memory = embedder, memory
        self.min_confidence, self.min_similarity = min_confidence, min_similarity
        self._modes_lock, self._teaching = Lock(), Lock()
        self._answers, self._modes = 0, dict[nn.Module, bool]()

    def forward(self, x: Any, exclude: Tensor | None = None) -> Recall:
        """Return the recall of x, with gradients to the embedder: for `memory.loss` and `memory.update`."""
        recall: Recall = self.memory(self.embedder(x), exclude=exclude)
        return recall

    def teach(self, x: Any, label: int | Tensor, source: int | Tensor | None = None) -> None:
        """Remember n examples; label, source: (n,) int64, or one number for all. One thread at a time teaches."""
        with self._answering():
            query = self.embedder(x)
            with self._teaching:  # nothing else may change the memory between recall and update
                recall = self.memory(query)
                self.memory.update(recall, self._for_each(label, recall), self._for_each(source, recall))

    def predict(self, x: Any) -> Prediction:
        """Return the labels of n questions, with -1 for "I don't know". Threads may ask at once."""
        with self._answering():
            recall = self(x)
        similarity = recall.similarities[..., 0]
        known = (recall.confidence >= self.min_confidence) & (similarity >= self.min_similarity)
        return Prediction(recall.value.where(known, -1), recall.confidence, similarity)

    def explain(self, x: Any, neighbours: int = 5) -> Explanation:
        """Return the nearest neighbours of n questions: which examples the answer came from."""
        with self._answering():
            recall = self(x)
        slots = recall.slots[..., :neighbours]
        found = slots >= 0
        there = slots.clamp(min=0)
        return Explanation(
            slots=slots,
            labels=recall.values[..., :neighbours],
            sources=self.memory.sources[there].where(found, -1),
            similarities=recall.similarities[..., :neighbours],
            weights=recall.weights[..., :neighbours],
            ages=self.memory.ages[there].where(found, -1),
        )

    def forget(self, *, label: int | Tensor | None = None, source: int | Tensor | None = None) -> int:
        """Forget a label, or what came from one example; return how many slots were emptied."""
        return self.memory.forget(value=label, source=source)

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """No gradient, and the embedder in evaluation mode: a question has one answer, without dropout.

        Of threads that answer at once, the first sets the mode and the last sets it back.
        """
        with self._modes_lock:
            if not self._answers:
                self._modes = {module: module.training for module in self.embedder.modules()}
                self.embedder.eval()
            self._answers += 1
        try:
            with torch.no_grad():
                yield
        finally:
            with self._modes_lock:
                self._answers -= 1
                if not self._answers:
                    for module, mode in self._modes.items():
                        module.training = mode

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_modes_lock": None, "_teaching": None, "_answers": 0, "_modes": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._modes_lock, self._teaching = Lock(), Lock()

    @staticmethod
    def _for_each(ids: Any, recall: Recall) -> Any:
        return torch.full_like(recall.value, ids) if isinstance(ids, int) else ids
