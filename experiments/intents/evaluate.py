"""Few-shot accuracy, calibration and what was never taught, beside baselines on the same embeddings."""

from __future__ import annotations

import time
from typing import Any

import torch

from experiments.embedded.data import Embedded, Split
from experiments.embedded.methods import METHODS, accuracy, auroc, calibration_error, percent, taught
from experiments.embedded.streams import by_class, knn_online, relabelled, run, zipf
from rarecall import Memory

SHOTS = {"5": "train_5", "10": "train_10", "all": "train"}
PORTIONS = {"one by one": 1, "in tens": 10, "all at once": None}
READERS = ("nearest", "vote", "blend")
BY_CLASS = 20  # examples of an intent in the stream that comes class by class
# What is remembered in a stream: all of it (None), or this many slots, by which rules.
MEMORIES: tuple[tuple[str, int | None, dict[str, Any]], ...] = (
    ("large enough", None, {}),
    ("250 slots, by age", 250, {}),
    ("250 slots, by age, averaged by count", 250, {"averaging": "count"}),
    ("250 slots, balanced", 250, {"eviction": "balanced"}),
)


def evaluate(data: Embedded, *, on: str, methods: bool = True) -> dict[str, Any]:
    """Measure all methods and readers at each number of examples; `on`: "valid" or "test"."""
    figures: dict[str, Any] = {}
    for shots, split in SHOTS.items():
        examples, valid, questions = data.splits[split], data.splits["valid"], data.splits[on]
        figures[shots] = measure(examples, questions, data.splits.get(f"oos_{on}", data.splits.get("oos_val")))
        if methods:
            figures[shots]["accuracy"] |= {
                name: accuracy(method(examples, valid, len(data.classes)), questions)
                for name, method in METHODS.items()
            }
        print(shots, {name: round(figure, 2) for name, figure in figures[shots]["accuracy"].items()}, flush=True)
    return figures


def measure(examples: Split, questions: Split, unknown: Split | None) -> dict[str, Any]:
    """Measure the readers: accuracy, and of the blend its calibration, what it does not know, and its time."""
    found: dict[str, Any] = {"examples": len(examples.labels), "accuracy": {}}
    for reader in READERS:
        classifier = taught(examples, reader=reader)
        start = time.perf_counter()
        classifier.reader.refit(classifier.memory)
        seconds = time.perf_counter() - start
        answer = classifier.predict(questions.keys)
        found["accuracy"][reader] = percent(answer.label == questions.labels)
    found["fit seconds"] = seconds
    found["calibration error"] = calibration_error(answer.reading, questions.labels)
    if unknown is not None:
        other = classifier.predict(unknown.keys).known_prob
        known = answer.known_prob
        found["unknown"] = {
            "AUROC": auroc(known, other),
            "known answered at 0.5": percent(known >= 0.5),
            "unknown refused at 0.5": percent(other < 0.5),
        }
    return found


def portions(data: Embedded, *, on: str, shots: str = "10") -> dict[str, Any]:
    """Teach the same examples one by one, in tens and all at once, in a random order."""
    keys, labels = data.splits[SHOTS[shots]]
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    examples, questions = Split(keys[order], labels[order]), data.splits[on]
    return {
        name: percent(taught(examples, portion=portion).predict(questions.keys).label == questions.labels)
        for name, portion in PORTIONS.items()
    }


def streams(data: Embedded, *, on: str, seed: int) -> dict[str, Any]:
    """Measure streams of CLINC150, and labels that are changed."""
    questions = data.splits[on]
    orders = {
        "Zipf": zipf(data.splits["train"], seed),
        "class by class": by_class(data.few("train_imbalanced", BY_CLASS, seed), seed),
    }
    figures: dict[str, Any] = {}
    for name, stream in orders.items():
        figures[name] = {"kNN vote (ACM), all kept": knn_online(stream)}
        for memory, capacity, rules in MEMORIES:
            slots = len(stream.labels) if capacity is None else capacity
            figures[name][memory] = run(stream, questions, memory=Memory(stream.keys.shape[1], slots, **rules))
            print(name, memory, figures[name][memory], flush=True)
    figures["relabelled"] = relabelled(data.splits["train_10"], questions)
    print(figures["relabelled"], flush=True)
    return figures
