"""A look inside: what a key encodes, and whether the memory knows when it is wrong."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from experiments.synthetic.answers import Answers, per_cent
from experiments.synthetic.task import Data, Examples


def look_inside(answers: Answers, data: Data) -> dict[str, Any]:
    """What the nearest neighbours of the test's digits have in common with what was asked.

    Args:
        answers: to the test examples, of a memory whose sources are numbers of training examples, as `refill` makes it.
        data: the task.

    Returns:
        Shares of nearest neighbours with the same number, length and place of the number, beside the shares of random
        training examples; and how sure the memory was when it was right and when it was wrong.
    """
    if answers.source is None or answers.by_memory is None or answers.confidence is None:
        raise ValueError("look_inside got the answers of a network without a memory; there is nothing inside.")
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
    """What pairs of examples have in common, in per cent: the number, or what surrounds it."""
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
    """The share of right answers in each tenth of the range of confidences."""
    bins = (confidence * parts).long().clamp(0, parts - 1)
    return [{"from": part / parts} | per_cent(right[bins == part]) for part in range(parts)]


def _beside(examples: Examples, which: Tensor, offset: int) -> Tensor:
    """(n,) int64: the symbol so far from the first digit; -1 beyond the sequence."""
    place = examples.starts[which] + offset
    inside = (place >= 0) & (place < examples.lengths[which])
    symbols = examples.inputs[which, place.clamp(0, examples.inputs.shape[1] - 1)]
    return torch.where(inside, symbols, -1)


def _mean(numbers: Tensor) -> float | None:
    return round(numbers.mean().item(), 4) if len(numbers) else None
