"""An embedder with a memory behind it: teach it one example at a time, ask it why, make it forget."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn

from rarecall import reading
from rarecall.memory import Memory
from rarecall.reading import Reader, Reading
from rarecall.recall import Recall


@dataclass(frozen=True, eq=False)
class Prediction:
    """Answers to n questions.

    Attributes:
        label: (n,) int64, -1 where the classifier does not know.
        confidence: (n,) the probability of the best label, given that it is one of those taught.
        similarity: (n,) the cosine similarity of the nearest neighbour, -inf where there was none.
        known_prob: (n,) the probability that the label was taught at all.
        reading: the probabilities of all labels, without thresholds.
    """

    label: Tensor
    confidence: Tensor
    similarity: Tensor
    known_prob: Tensor
    reading: Reading

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
        fields = self.labels, self.sources, self.similarities, self.weights, self.ages, self.slots
        for question in range(len(self.slots)):
            count = int((self.slots[question] >= 0).sum())
            lines.append(f"question {question}: {count} neighbours" if count else f"question {question}: nothing known")
            if count:
                lines.append(f"{'label':>10} {'source':>10} {'similarity':>10} {'weight':>7} {'age':>8} {'slot':>8}")
            rows = zip(*(field[question, :count].tolist() for field in fields), strict=True)
            for label, source, similarity, weight, age, slot in rows:
                lines.append(f"{label:10d} {source:10d} {similarity:10.3f} {weight:7.3f} {age:8d} {slot:8d}")
        return "\n".join(lines)


class MemoryClassifier(nn.Module):
    """A trained embedder and a memory: a classifier that learns a class from one example, without training.

    Each example gets a slot of its own while there are empty ones. A full memory goes by the paper's update or, with
    `eviction="balanced"`, which suits a classifier better, lets the most similar examples become one.

    Three thresholds say when it does not know; without any, it always answers. Below a `min_known` of 0.5, a class that
    was never taught is the likelier explanation. A low *confidence* means that several labels are equally likely; a low
    *similarity* means that even the nearest example is far away.

    Args:
        embedder: maps x to (n, key_size).
        memory: of that key_size.
        reader: how neighbours become an answer: "blend", "vote", "nearest" or a `rarecall.reading.Reader`. It is fitted
            to what was taught at the first question, and again whenever that has grown or shrunk by a quarter.
        min_known, min_confidence, min_similarity: below any of these the answer is "I don't know".

    Example:
        >>> classifier = MemoryClassifier(nn.Flatten(), Memory(key_size=4, capacity=10), min_similarity=0.5)
        >>> classifier.teach(torch.tensor([[1.0, 0.0, 0.0, 0.0]]), label=3, source=101)
        >>> classifier.predict(torch.tensor([[0.9, 0.1, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])).label
        tensor([ 3, -1])
    """

    def __init__(
        self,
        embedder: nn.Module,
        memory: Memory,
        *,
        reader: str | Reader = "blend",
        min_known: float = 0.0,
        min_confidence: float = 0.0,
        min_similarity: float = -1.0,
    ) -> None:
        super().__init__()
        thresholds = (
            ("min_known", min_known, 0),
            ("min_confidence", min_confidence, 0),
            ("min_similarity", min_similarity, -1),
        )
        for name, threshold, least in thresholds:
            if not least <= threshold <= 1:
                raise ValueError(f"MemoryClassifier got {name}={threshold}; expected {least} to 1.")
        self.embedder, self.memory, self.reader = embedder, memory, reading.make(reader)
        self.min_known, self.min_confidence, self.min_similarity = min_known, min_confidence, min_similarity
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
            labels, sources = (self._for_each(ids, query.shape[:-1]) for ids in (label, source))
            with self._teaching:  # nothing else may change the memory between recall and update
                memory = self.memory
                if memory.eviction == "balanced" or labels.numel() <= memory.capacity - len(memory):
                    rows = query.reshape(-1, memory.key_size)
                    memory.write(rows, labels.reshape(-1), None if sources is None else sources.reshape(-1))
                else:
                    memory.update(memory(query), labels, sources)

    def predict(self, x: Any) -> Prediction:
        """Return the labels of n questions, with -1 for "I don't know". Threads may ask at once."""
        with self._answering():
            with self._teaching:
                self.reader.refit(self.memory)
            recall = self(x)
            read = self.reader(self.memory, recall)
        similarity, confidence = recall.similarities[..., 0], read.probabilities[..., 0]
        sure = (read.known >= self.min_known) & (confidence >= self.min_confidence)
        label = read.values[..., 0].where(sure & (similarity >= self.min_similarity), -1)
        return Prediction(label, confidence, similarity, read.known, read)

    def explain(self, x: Any, neighbours: int = 5) -> Explanation:
        """Return the nearest neighbours of n questions: which examples the answer came from."""
        with self._answering():
            recall = self(x)
        fields = recall.slots, recall.values, recall.similarities, recall.weights
        slots, labels, similarities, weights = (field[..., :neighbours] for field in fields)
        sources, ages = self.memory.trace(slots)
        return Explanation(slots, labels, sources, similarities, weights, ages)

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

    def get_extra_state(self) -> Tensor:
        """Return the reader for `state_dict`, as bytes, which any file of tensors can hold."""
        return torch.frombuffer(bytearray(json.dumps(self.reader.settings()).encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        """Take the reader from a `state_dict`."""
        self.reader = reading.from_settings(json.loads(bytes(state.cpu().numpy())))

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_modes_lock": None, "_teaching": None, "_answers": 0, "_modes": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._modes_lock, self._teaching = Lock(), Lock()

    def _for_each(self, ids: Any, shape: torch.Size) -> Any:
        return torch.full(shape, ids, device=self.memory.values.device) if isinstance(ids, int) else ids
