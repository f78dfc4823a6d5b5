"""What a kept classifier knows and how well: a table of its classes, what it confuses, and a plot."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rarecall.store.labels import Label

if TYPE_CHECKING:
    from rarecall.kept import KeptClassifier

ASKED = 2000  # examples that are asked again without themselves, at most
BATCH = 256  # of them at once


@dataclass(frozen=True)
class ClassReport:
    """One class.

    Attributes:
        label: which.
        examples, slots: how many are in memory.
        first, last: when the first and the last of them were taught.
        asked: how many of its examples were asked again, each without its own slot.
        right: how many of those were answered with this label.
    """

    label: Label
    examples: int
    slots: int
    first: datetime
    last: datetime
    asked: int
    right: int


@dataclass(frozen=True)
class Report:
    """All classes, the most examples first.

    Attributes:
        classes: one line for each.
        confused: (the right label, the answer, how often), the most frequent first.
        busiest: (number of the example that founded a slot, its label, how often it was the nearest), likewise.
        entries: how many entries the history has.
    """

    classes: list[ClassReport]
    confused: list[tuple[Label, Label, int]]
    busiest: list[tuple[int, Label, int]]
    entries: int

    @property
    def accuracy(self) -> float:
        """The share of the examples asked again that were answered rightly; nan where none could be."""
        asked = sum(each.asked for each in self.classes)
        return sum(each.right for each in self.classes) / asked if asked else float("nan")

    def __str__(self) -> str:
        lines = [f"{'label':<28} {'examples':>8} {'slots':>7} {'right':>12}  {'first':<10}  {'last':<10}"]
        for each in self.classes:
            right = f"{each.right} of {each.asked}" if each.asked else "-"
            name = str(each.label) if len(str(each.label)) <= 28 else f"{str(each.label)[:27]}…"
            dates = f"{each.first:%Y-%m-%d}  {each.last:%Y-%m-%d}"
            lines.append(f"{name:<28} {each.examples:8d} {each.slots:7d} {right:>12}  {dates}")
        for right_label, answer, count in self.confused[:10]:
            lines.append(f"confused {count} times: {right_label} answered as {answer}")
        for number, label, count in self.busiest[:5]:
            lines.append(f"answers most: example {number} ({label}), nearest to {count}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON can hold it."""
        classes = [
            vars(each) | {"first": each.first.isoformat(), "last": each.last.isoformat()} for each in self.classes
        ]
        confused = [{"right": r, "answer": a, "count": n} for r, a, n in self.confused]
        busiest = [{"example": e, "label": label, "count": n} for e, label, n in self.busiest]
        return {"classes": classes, "confused": confused, "busiest": busiest, "entries": self.entries}

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw how many examples each class has, and how many of them are answered rightly."""
        from matplotlib.figure import Figure

        shown = self.classes[:40][::-1]
        figure = Figure(figsize=(8, 1.2 + 0.25 * len(shown)), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        names = [str(each.label)[:28] for each in shown]
        left.barh(names, [each.examples for each in shown], color="tab:blue")
        left.set_xlabel("examples")
        right.barh(names, [100 * each.right / each.asked if each.asked else 0 for each in shown], color="tab:green")
        right.set_xlabel("% right, asked again without itself")
        right.set_xlim(0, 100)
        figure.savefig(path, dpi=120)


def report(kept: KeptClassifier) -> Report:
    """Ask a sample of what was taught again, each example without its own slot."""
    inside = kept._kept
    labels = inside.labels
    with inside.lock:
        inside.check_open()
        table = inside.places.table.copy()
        memory = inside.memory
        ids = np.flatnonzero(table[:, 0] >= 0)
        if memory is None or not len(ids):
            return Report([], [], [], inside.now)
        sample = np.random.default_rng(0).permutation(ids)[:ASKED]
        keys = torch.from_numpy(inside.journal.read_keys(sample, memory.key_size))
        times = {number: at for number, at, _ in inside.journal.taught()}
        slots = torch.from_numpy(table[sample, 0])
        own = memory.sources[slots]
        confused, busiest = Counter[tuple[int, int]](), Counter[int]()
        asked, right = (np.zeros(len(labels), np.int64) for _ in range(2))
        for start in range(0, len(sample), BATCH):
            some = slice(start, start + BATCH)
            recall = memory(keys[some], exclude=own[some])
            answers, nearest = recall.value.tolist(), recall.slots[:, 0].tolist()
            for value, answer, slot in zip(table[sample[some], 1].tolist(), answers, nearest, strict=True):
                if answer < 0:
                    continue
                asked[value] += 1
                right[value] += answer == value
                busiest[int(memory.sources[slot])] += 1
                if answer != value:
                    confused[value, answer] += 1
    classes = []
    taught = np.array([times[number] for number in ids.tolist()])
    for value in np.unique(table[ids, 1]).tolist():
        of = table[ids, 1] == value
        first, last = (datetime.fromtimestamp(at, UTC) for at in (taught[of].min(), taught[of].max()))
        slots_of = len(np.unique(table[ids[of], 0]))
        counts = int(asked[value]), int(right[value])
        classes.append(ClassReport(labels[value], int(of.sum()), slots_of, first, last, *counts))
    classes.sort(key=lambda each: -each.examples)
    return Report(
        classes,
        [(labels[value], labels[answer], count) for (value, answer), count in confused.most_common()],
        [(number, labels[table[number, 1]], count) for number, count in busiest.most_common(20) if number > 0],
        inside.now,
    )
