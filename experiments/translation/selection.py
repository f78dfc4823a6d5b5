"""Selection of the training pairs that are most like the text of interest (Axelrod et al. 2011).

A pair's score is the difference of its cross-entropies by two language models, one of the text of interest and one of
equally much of the other text, summed over both languages (a bilingual Moore-Lewis score). Ours are bigram models of
word pieces.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from experiments.translation.pairs import Pairs, Sentences

PRIOR = 5.0  # occurrences of a piece that its unigram probability counts for, in predicting the next one


def most_like(pairs: Pairs, wanted: Tensor, share: float, seed: int = 0) -> Tensor:
    """Return which pairs to use: all of the wanted parts, and of the others the share that is most like them.

    Args:
        pairs: the text.
        wanted: (parts,) bool, the text of interest; some parts, but not all.
        share: from 0 to 1.
        seed: random seed of the pairs that stand for the other text.

    Returns:
        (n,) bool.

    Raises:
        ValueError: if nothing or everything is wanted.
    """
    if bool(wanted.all()) or not bool(wanted.any()):
        raise ValueError(
            "To select training pairs (--select), some files must be repeated and others not: those not repeated are "
            "selected by their likeness to the repeated ones. Set --repeat, or use all pairs."
        )
    inside = pairs.by_pair(wanted)
    outside = (~inside).nonzero().squeeze(1)
    generator = torch.Generator().manual_seed(seed)
    sample = torch.zeros_like(inside)
    sample[outside[torch.randperm(len(outside), generator=generator)[: int(inside.sum())]]] = True
    score = sum(_unlike(side, inside.numpy(), sample.numpy()) for side in (pairs.sources, pairs.targets))
    best = torch.from_numpy(score)[outside].argsort(stable=True)[: round(share * len(outside))]
    chosen = inside.clone()
    chosen[outside[best]] = True
    return chosen


def _unlike(side: Sentences, inside: np.ndarray, sample: np.ndarray) -> np.ndarray:
    """Return the cross-entropy per piece of each sentence by the text `inside` minus that by `sample`, (n,)."""
    pieces, starts = side.pieces.numpy().astype(np.int64), side.starts.numpy()
    sentence = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    before = np.roll(pieces, 1)  # the piece before the first of a sentence is the end of another
    difference = _log_likelihood(pieces, before, sample[sentence]) - _log_likelihood(pieces, before, inside[sentence])
    return np.add.reduceat(difference, starts[:-1]) / np.diff(starts)


def _log_likelihood(pieces: np.ndarray, before: np.ndarray, text: np.ndarray) -> np.ndarray:
    """Return log P(piece | piece before) at each place, by a bigram model of the places `text`, (places,) bool."""
    symbols = int(pieces.max()) + 1
    counts = np.bincount(pieces[text], minlength=symbols)
    alone = (counts + 1) / (counts.sum() + symbols)
    times = np.bincount(before[text], minlength=symbols)
    seen, often = np.unique(before[text] * symbols + pieces[text], return_counts=True)
    asked = before * symbols + pieces
    place = np.minimum(np.searchsorted(seen, asked), len(seen) - 1)
    together = np.where(seen[place] == asked, often[place], 0)
    return np.log((together + PRIOR * alone[pieces]) / (times[before] + PRIOR))
