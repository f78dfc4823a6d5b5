"""The nearest training example by Hamming distance, whose output is the answer: it finds the same surroundings."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from experiments.synthetic.task import PADDING, Examples


def nearest(asked: Tensor, known: Tensor, block: int = 500) -> Tensor:
    """The number of the known sequence that differs from each asked one at the fewest places; of equals the first.

    Args:
        asked, known: (n, length) and (m, length) int64; padding differs from all else.
        block: asked sequences at a time.

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
        same = F.one_hot(part, PADDING + 1).flatten(1).float() @ known_ones.t()  # (block, m): places that are the same
        found.append(same.argmax(1))
    return torch.cat(found)


def answer(asked: Examples, known: Examples) -> Tensor:
    """(n, length) int64: the outputs of the nearest known examples."""
    length = max(asked.inputs.shape[1], known.inputs.shape[1])
    found = nearest(_padded(asked.inputs, length), _padded(known.inputs, length))
    return _padded(known.outputs, length)[found, : asked.inputs.shape[1]]


def _padded(sequences: Tensor, length: int) -> Tensor:
    return F.pad(sequences, (0, length - sequences.shape[1]), value=PADDING)
