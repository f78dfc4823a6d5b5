"""What a kept classifier tells: answers, the examples behind them, and its history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from rarecall.store.labels import Label


@dataclass(frozen=True)
class Taught:
    """A taught example.

    Attributes:
        id: its number.
        example: as it was taught, as far as it was kept.
        label: what it is taught as.
        when: when it was taught.
        who: who taught it, where that was said.
    """

    id: int
    example: Any
    label: Label
    when: datetime
    who: str | None


@dataclass(frozen=True)
class Evidence(Taught):
    """A taught example that an answer comes from.

    Attributes:
        similarity: cosine similarity of its own key to the question.
    """

    similarity: float


@dataclass(frozen=True)
class Answer:
    """What a question was answered.

    Attributes:
        label: the most probable label; None where nothing was taught.
        probability: of this label, 0 to 1.
        known: False where the question is probably of no class that was taught.
        familiarity: the probability that it is of one, 0 to 1.
        alternatives: labels and their probabilities, the most probable first.
    """

    label: Label | None
    probability: float
    known: bool
    familiarity: float
    alternatives: list[tuple[Label, float]]
    _explain: Callable[[int], list[Evidence]] = field(repr=False, compare=False)

    @property
    def because(self) -> list[Evidence]:
        """The taught examples that decided it, nearest first: up to five."""
        return self._explain(5)

    def explain(self, count: int) -> list[Evidence]:
        """Return so many of them."""
        return self._explain(count)


@dataclass(frozen=True)
class Line:
    """A line of the history.

    Attributes:
        id: the entry's number, for `undo`.
        when: when it was written.
        kind: what was done: create, teach, import, merge, relabel, forget, undo, fit or settings.
        who: by whom, where that was said.
        reason: why, where that was said.
        count: how many examples it concerned.
        labels: up to six of the labels that its examples have in it.
        undone: the entry that took it back, or None.
        detail: more.
    """

    id: int
    when: datetime
    kind: str
    who: str | None
    reason: str | None
    count: int
    labels: list[Label]
    undone: int | None
    detail: dict[str, Any]


def when(seconds: float) -> datetime:
    """Return a time of the journal, in UTC."""
    return datetime.fromtimestamp(seconds, UTC)
