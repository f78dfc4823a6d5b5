"""A softmax over part of the vocabulary: over all of it, it is much of the work of a small network's step.

After "On Using Very Large Target Vocabulary for Neural Machine Translation" (Jean, Cho, Memisevic, Bengio, 2015): the
pieces of the batch take part, and some of the others, drawn anew for each step, stand for them all.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Candidates(NamedTuple):
    """The pieces that take part in a step.

    Attributes:
        pieces: (n,) int64, each once.
        places: where in `pieces` the target's are, of the target's shape.
        weights: (n,), the logarithm of how many pieces each stands for, to be added to its logit.
    """

    pieces: Tensor
    places: Tensor
    weights: Tensor


def draw(target: Tensor, vocabulary: int, drawn: int) -> Candidates:
    """All pieces of the target, and as many of the others as are to be drawn.

    What the softmax divides by is then right on average: the exponentials of those drawn, times the number that each
    stands for, are on average those of all.

    Args:
        target: int64 of any shape.
        vocabulary: pieces in all.
        drawn: of those that are not in the target; where there are no more of them, all take part.
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
