"""Streams: ask, then learn (the protocol of ACM, Prabhu et al. 2023), in memories large enough and too small."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from experiments.embedded.data import Split
from experiments.embedded.methods import NEIGHBOURS, percent
from rarecall import Memory, MemoryClassifier

ZIPF, RARE = 6000, 68  # length of the Zipf stream; the least frequent classes are the rare ones
RELABELLED, TAUGHT = 10, (1, 2, 5, 10)  # classes that get another label, and after how many teachings to ask


def by_class(examples: Split, seed: int) -> Split:
    """Return the examples class by class, the classes in a random order."""
    classes = int(examples.labels.max()) + 1
    rank = torch.randperm(classes, generator=torch.Generator().manual_seed(seed))
    rows = rank[examples.labels].sort(stable=True).indices
    return Split(examples.keys[rows], examples.labels[rows])


def zipf(examples: Split, seed: int, length: int = ZIPF) -> Split:
    """Draw examples, with replacement, so that the n-th most frequent class comes 1/n as often as the first."""
    generator = torch.Generator().manual_seed(seed)
    classes = int(examples.labels.max()) + 1
    rank = torch.randperm(classes, generator=generator)
    drawn = rank[torch.multinomial(1 / torch.arange(1.0, classes + 1), length, True, generator=generator)]
    order = examples.labels.sort(stable=True).indices
    sizes = examples.labels.bincount(minlength=classes)
    first = sizes.cumsum(0) - sizes
    place = (torch.rand(length, generator=generator) * sizes[drawn]).long()
    rows = order[first[drawn] + place]
    return Split(examples.keys[rows], examples.labels[rows])


def run(stream: Split, questions: Split, *, memory: Memory) -> dict[str, Any]:
    """Ask for each example, then teach it; return the accuracy over the stream and at its end."""
    torch.manual_seed(0)
    classifier = MemoryClassifier(torch.nn.Identity(), memory)
    right = torch.zeros(len(stream.labels), dtype=torch.bool)
    for i, (key, label) in enumerate(zip(stream.keys.split(1), stream.labels.split(1), strict=True)):
        right[i] = classifier.predict(key).label == label
        classifier.teach(key, label)
    answers = classifier.predict(questions.keys).label == questions.labels
    rare = _rare(stream.labels, int(questions.labels.max()) + 1)
    held = memory.values.unique()
    return {
        "online": percent(right),
        "at the end": percent(answers),
        "rare classes kept": int(torch.isin(rare, held).sum()),
        "rare": percent(answers[torch.isin(questions.labels, rare)]),
        "common": percent(answers[~torch.isin(questions.labels, rare)]),
        "slots": len(memory),
    }


def knn_online(stream: Split) -> dict[str, float]:
    """Return the accuracy over the stream of the kNN vote that keeps all examples, at the k that is best for it."""
    right = dict.fromkeys(NEIGHBOURS, 0)
    for start in range(1, len(stream.labels), 256):
        rows = torch.arange(start, min(start + 256, len(stream.labels)))
        similarities = stream.keys[rows] @ stream.keys.T
        similarities.masked_fill_(torch.arange(len(stream.labels)) >= rows[:, None], -torch.inf)
        near, where = similarities.topk(max(NEIGHBOURS), 1)
        votes = one_hot(stream.labels[where], int(stream.labels.max()) + 1).float()
        for k in NEIGHBOURS:
            there = near[:, :k].isfinite().float()[..., None]
            scores = (votes[:, :k] * there * (1 + 1e-3 * near[:, :k].clamp(min=-1)[..., None])).sum(1)
            right[k] += int((scores.argmax(1) == stream.labels[rows]).sum())
    best = max(right, key=lambda k: right[k])
    return {"online": 100 * right[best] / len(stream.labels), "k": best}


def relabel(examples: Split, questions: Split, *, forget: bool, seed: int = 0) -> dict[str, Any]:
    """Teach some classes a new label, one example after the other; GRACE's three measures (Hartvigsen et al. 2023).

    Edit success: what was just taught is answered so. Generalisation: other wordings of the class are. Retention: the
    questions of all other classes are answered rightly, in per cent of those that were before.

    Args:
        forget: whether the old label is forgotten first, as `forget(label=...)` does.
    """
    chosen = torch.randperm(int(examples.labels.max()) + 1, generator=torch.Generator().manual_seed(seed))[:RELABELLED]
    found: dict[str, list[float]] = {
        name: [] for name in ("edit success", "retention", *(f"generalisation after {n}" for n in TAUGHT))
    }
    needed = []
    for label in chosen.tolist():
        classifier = MemoryClassifier(torch.nn.Identity(), Memory(examples.keys.shape[1], 2 * len(examples.labels)))
        classifier.teach(*examples)
        own = questions.labels == label
        before = classifier.predict(questions.keys[~own]).label == questions.labels[~own]
        new, edited = 10_000, []
        if forget:
            classifier.forget(label=label)
        shares: list[float] = []
        for key in examples.keys[examples.labels == label].split(1):
            classifier.teach(key, new)
            edited.append(float((classifier.predict(key).label == new).float()))
            shares.append(percent(classifier.predict(questions.keys[own]).label == new))
        found["edit success"].append(100 * sum(edited) / len(edited))
        after = classifier.predict(questions.keys[~own]).label == questions.labels[~own]
        found["retention"].append(100 * float((after & before).sum()) / float(before.sum()))
        for n in TAUGHT:
            found[f"generalisation after {n}"].append(shares[min(n, len(shares)) - 1])
        needed.append(next((n + 1 for n, share in enumerate(shares) if share > 50), len(shares) + 1))
    means = {name: sum(figures) / len(figures) for name, figures in found.items()}
    return means | {"teachings until most are answered so": sorted(needed)[len(needed) // 2]}


def relabelled(examples: Split, questions: Split) -> dict[str, Any]:
    """Measure `relabel` with the old label kept, and forgotten first."""
    return {
        "beside the old label": relabel(examples, questions, forget=False),
        "old label forgotten": relabel(examples, questions, forget=True),
    }


def _rare(labels: Tensor, classes: int) -> Tensor:
    counts = labels.bincount(minlength=classes)
    return counts.argsort(stable=True)[: min(RARE, classes // 2)]
