"""Sampled softmax: the full softmax takes much of the time of a small network's training step.

After "On Using Very Large Target Vocabulary for Neural Machine Translation" (Jean, Cho, Memisevic, Bengio, 2015): the
softmax is over the pieces of the batch and a random sample of the others, which is weighted to represent all of them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Candidates(NamedTuple):
    """The pieces in the softmax of a step.

    Attributes:
        pieces: (n,) int64, without duplicates.
        places: indices of the targets in `pieces`, in the shape of the target.
        weights: (n,), logarithm of the number of pieces that each represents, to be added to its logit.
    """

    pieces: Tensor
    places: Tensor
    weights: Tensor


def draw(target: Tensor, vocabulary: int, drawn: int) -> Candidates:
    """Return all pieces of the target and a sample of the others.

    The weighted sum of exponentials is an unbiased estimate of the full softmax's denominator.

    Args:
        target: int64 of any shape.
        vocabulary: vocabulary size.
        drawn: number of sampled pieces that are not in the target; all of them, if there are fewer.
    """
    own, places = target.unique(return_inverse=True)
    is_other = torch.ones(vocabulary, dtype=torch.bool)
    is_other[own] = False
    others = is_other.nonzero()[:, 0]
    some = others[torch.randperm(len(others))[:drawn]]
    weights = torch.zeros(len(own) + len(some))
    if len(some):
        weights[len(own) :] = math.log(len(others) / len(some))
    return Candidates(torch.cat((own, some)), places, weights)
