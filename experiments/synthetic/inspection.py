"""What the keys of a memory encode, and whether its confidence tells right answers from wrong ones."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from experiments.synthetic.answers import Answers, per_cent
from experiments.synthetic.task import Data, Examples


def look_inside(answers: Answers, data: Data) -> dict[str, Any]:
    """Compare the test examples with the training examples that their digits' nearest neighbours came from.

    Args:
        answers: answers to the test examples, with a memory filled by `refill`, whose sources are training examples.
        data: the task.

    Returns:
        Percentages of nearest neighbours with the same number, length and position of the number, next to those of
        random training examples; and the memory's confidence when it was right and when it was wrong.
    """
    if answers.source is None or answers.by_memory is None or answers.confidence is None:
        raise ValueError(
            "look_inside got the answers of a network without a memory; expected those of one with a memory."
        )
    found = answers.source >= 0
    asked = torch.arange(len(data.test))[:, None].expand_as(answers.source)[found]
    known = answers.source[found]
    drawn = torch.randint(len(data.training), known.shape, generator=torch.Generator().manual_seed(0))
    could = data.times_seen(data.test.x)[asked] > 0
    return {
        "nearest": in_common(data.test, asked, data.training, known),
        "random": in_common(data.test, asked, data.training, drawn),
        "same number where it was in training": per_cent(data.test.x[asked[could]] == data.training.x[known[could]]),
        "confidence": {
            "right": _mean(answers.confidence[answers.by_memory]),
            "wrong": _mean(answers.confidence[~answers.by_memory]),
        },
        "right by confidence": by_confidence(answers.confidence.flatten(), answers.by_memory.flatten()),
    }


def in_common(asked: Examples, these: Tensor, known: Examples, those: Tensor) -> dict[str, dict[str, Any]]:
    """Return how often pairs of examples agree, in per cent: in the number, and in its surroundings."""
    return {
        "number": per_cent(asked.x[these] == known.x[those]),
        "length": per_cent(asked.lengths[these] == known.lengths[those]),
        "place": per_cent(asked.starts[these] == known.starts[those]),
        "symbol before and after": per_cent(
            (_beside(asked, these, -1) == _beside(known, those, -1))
            & (_beside(asked, these, asked.digits) == _beside(known, those, known.digits))
        ),
    }


def by_confidence(confidence: Tensor, right: Tensor, parts: int = 10) -> list[dict[str, Any]]:
    """Return the percentage of correct answers in each bin of confidence."""
    bins = (confidence * parts).long().clamp(0, parts - 1)
    return [{"from": part / parts} | per_cent(right[bins == part]) for part in range(parts)]


def _beside(examples: Examples, which: Tensor, offset: int) -> Tensor:
    """Return the symbol at `offset` from the first digit, (n,) int64; -1 outside the sequence."""
    place = examples.starts[which] + offset
    inside = (place >= 0) & (place < examples.lengths[which])
    symbols = examples.inputs[which, place.clamp(0, examples.inputs.shape[1] - 1)]
    return torch.where(inside, symbols, -1)


def _mean(numbers: Tensor) -> float | None:
    return round(numbers.mean().item(), 4) if len(numbers) else None
