"""Beam search with the length normalisation and the coverage penalty of GNMT (Wu et al. 2016, equation 14).

score(Y, X) = log P(Y | X) / lp(Y) + cp(X; Y)
lp(Y)    = (5 + |Y|)^alpha / (5 + 1)^alpha
cp(X; Y) = beta * sum_i log(min(sum_j p_ij, 1)),   p_ij: attention of the j-th step to the i-th source piece
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from rarecall.models.gnmt import GNMT
from rarecall.models.seq2seq import Carried, Encoded


@dataclass(frozen=True)
class Beam:
    """Settings of the search.

    Attributes:
        width: hypotheses per sentence.
        alpha: strength of the length normalisation; 0 for none.
        beta: strength of the coverage penalty; 0 for none.
    """

    width: int = 4
    alpha: float = 0.6
    beta: float = 0.2

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ValueError(f"Beam got width={self.width}; expected at least 1.")


@dataclass(frozen=True)
class Hypothesis:
    """A complete translation.

    Attributes:
        pieces: its pieces, without the end.
        score: score by the formula above.
    """

    pieces: list[int]
    score: float


def length_penalty(length: int, alpha: float) -> float:
    """Return lp for a length in pieces, including the end."""
    return ((5 + length) / 6) ** alpha


def coverage_penalty(coverage: Tensor, beta: float) -> Tensor:
    """Return cp, (...,), for the attention summed over the steps, (..., length)."""
    return beta * coverage.clamp(1e-10, 1.0).log().sum(-1)


@torch.no_grad()
def search(network: GNMT, source: Tensor, beam: Beam | None = None, longest: int | None = None) -> list[Hypothesis]:
    """Return the best translation of each sentence.

    Args:
        network: a network in evaluation mode.
        source: (batch, length) int64, sentences of the same length, ending with the end piece.
        beam: settings of the search.
        longest: maximum number of pieces, including the end (default: twice the source length plus 10).
    """
    beam = beam or Beam()
    longest = longest or 2 * source.shape[1] + 10
    width, symbols, decoder = beam.width, network.symbols, network.decoder
    rows = torch.arange(len(source)).repeat_interleave(width)
    encoded = _rows(network.encoder(source), rows)
    carried = decoder.begin(encoded)
    alive = torch.arange(len(source))  # unfinished sentences, in the order of the rows
    pieces = torch.full((len(rows), 1), decoder.start)
    # At first all hypotheses of a sentence are equal; only one counts.
    total = torch.full((len(source), width), -torch.inf)
    total[:, 0] = 0.0
    coverage = source.new_zeros(len(rows), source.shape[1], dtype=torch.float32)
    ended: list[list[Hypothesis]] = [[] for _ in source]
    for length in range(1, longest + 1):
        steps = decoder(pieces[:, -1:], encoded, carried)
        logits, _ = decoder.speak(steps.states[:, 0], steps.read[:, 0])
        logits[:, decoder.start] = -torch.inf
        if length == longest:
            logits[:, torch.arange(symbols) != network.end] = -torch.inf
        coverage = coverage + steps.attended[:, 0]
        now = total[..., None] + F.log_softmax(logits, -1).view(len(alive), width, symbols)
        # Among 2 * width candidates at least `width` do not end, since each hypothesis has one way to end.
        scores, best = now.flatten(1).topk(min(2 * width, width * symbols))
        piece = best % symbols
        origin = best // symbols + torch.arange(len(alive))[:, None] * width
        ends = piece == network.end
        for row, place in (ends[:, :width] & scores[:, :width].isfinite()).nonzero().tolist():
            where = int(origin[row, place])
            score = scores[row, place].item() / length_penalty(length, beam.alpha)
            score += coverage_penalty(coverage[where], beam.beta).item()
            ended[int(alive[row])].append(Hypothesis(pieces[where, 1:].tolist(), score))
        going = torch.tensor([len(ended[sentence]) < width for sentence in alive.tolist()], dtype=torch.bool)
        if length == longest or not going.any():
            break
        on = ends.int().argsort(dim=1, stable=True)[going, :width]
        total, piece, origin = (t[going].gather(1, on) for t in (scores, piece, origin))
        rows, alive = origin.flatten(), alive[going]
        pieces = torch.cat((pieces[rows], piece.flatten()[:, None]), 1)
        coverage, encoded = coverage[rows], _rows(encoded, rows)
        carried = [_carry(carry, rows) for carry in steps.carried]
    return [max(found, key=lambda hypothesis: hypothesis.score) for found in ended]


def _rows(encoded: Encoded, rows: Tensor) -> Encoded:
    return Encoded(encoded.states[rows], _carry(encoded.last, rows))


def _carry(carried: Carried, rows: Tensor) -> Carried:
    return carried[0][:, rows], carried[1][:, rows]
