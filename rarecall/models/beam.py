"""Beam search with the length normalisation and the coverage penalty of GNMT (Wu et al. 2016, equation 14).

score(Y, X) = log P(Y | X) / lp(Y) + cp(X; Y)
lp(Y)    = (5 + |Y|)^alpha / (5 + 1)^alpha
cp(X; Y) = beta * sum_i log(min(sum_j p_ij, 1)),   p_ij: how much of the j-th step's attention went to the i-th piece
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
    """How to search.

    Attributes:
        width: sentences that are followed at once.
        alpha: of the length normalisation; 0 for none.
        beta: of the coverage penalty; 0 for none.
    """

    width: int = 4
    alpha: float = 0.6
    beta: float = 0.2

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ValueError(f"Beam got width={self.width}; expected at least 1.")


@dataclass(frozen=True)
class Hypothesis:
    """A whole sentence that was found.

    Attributes:
        pieces: without the end.
        score: of the formula above.
    """

    pieces: list[int]
    score: float


def length_penalty(length: int, alpha: float) -> float:
    """lp of so many pieces, the end included."""
    return ((5 + length) / 6) ** alpha


def coverage_penalty(coverage: Tensor, beta: float) -> Tensor:
    """(..., length) attention summed over the steps -> (...,) cp."""
    return beta * coverage.clamp(1e-10, 1.0).log().sum(-1)


@torch.no_grad()
def search(network: GNMT, source: Tensor, beam: Beam | None = None, longest: int | None = None) -> list[Hypothesis]:
    """The best translation of each sentence.

    Args:
        network: in evaluation mode.
        source: (batch, length) int64, all of one length, the last of each the end.
        beam: how to search.
        longest: pieces at the most, the end included; twice as many as the source and 10 by default.
    """
    beam = beam or Beam()
    longest = longest or 2 * source.shape[1] + 10
    width, symbols, decoder = beam.width, network.symbols, network.decoder
    rows = torch.arange(len(source)).repeat_interleave(width)
    encoded = _rows(network.encoder(source), rows)
    carried = decoder.begin(encoded)
    alive = torch.arange(len(source))  # sentences that are still searched, in the order of the rows
    pieces = torch.full((len(rows), 1), decoder.start)
    # Of the hypotheses of a sentence, all alike at first, only one counts.
    total = torch.full((len(source), width), -torch.inf)
    total[:, 0] = 0.0
    coverage = source.new_zeros(len(rows), source.shape[1], dtype=torch.float32)
    ended: list[list[Hypothesis]] = [[] for _ in source]
    for length in range(1, longest + 1):
        steps = decoder(pieces[:, -1:], encoded, carried)
        logits, _ = decoder.speak(steps.states[:, 0], steps.query[:, 0])
        logits[:, decoder.start] = -torch.inf
        if length == longest:
            logits[:, torch.arange(symbols) != network.end] = -torch.inf
        coverage = coverage + steps.attended[:, 0]
        now = total[..., None] + F.log_softmax(logits, -1).view(len(alive), width, symbols)
        # Of twice as many, at least `width` go on: each hypothesis ends in only one way.
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
