"""Baseline: answer with the output of the nearest training example by Hamming distance.

The As and Bs dominate the distance, so it mostly finds an example with the same surroundings and another number.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from experiments.synthetic.task import PADDING, Examples


def nearest(asked: Tensor, known: Tensor, block: int = 500) -> Tensor:
    """Return the index of the known sequence nearest to each of `asked` by Hamming distance; the first of equals.

    Args:
        asked, known: (n, length) and (m, length) int64; padding is a symbol of its own.
        block: number of sequences per matrix product.

    Returns:
        (n,) int64
    """
    if asked.shape[1] != known.shape[1]:
        raise ValueError(
            f"nearest got sequences padded to {asked.shape[1]} and to {known.shape[1]} places; pad them to one length."
        )
    known_ones = F.one_hot(known, PADDING + 1).flatten(1).float()
    found = []
    for part in asked.split(block):
        same = F.one_hot(part, PADDING + 1).flatten(1).float() @ known_ones.t()  # (block, m): number of equal places
        found.append(same.argmax(1))
    return torch.cat(found)


def answer(asked: Examples, known: Examples) -> Tensor:
    """Return the outputs of the nearest known examples, (n, length) int64."""
    length = max(asked.inputs.shape[1], known.inputs.shape[1])
    found = nearest(_padded(asked.inputs, length), _padded(known.inputs, length))
    return _padded(known.outputs, length)[found, : asked.inputs.shape[1]]


def _padded(sequences: Tensor, length: int) -> Tensor:
    return F.pad(sequences, (0, length - sequences.shape[1]), value=PADDING)
