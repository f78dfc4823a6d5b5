from __future__ import annotations

import itertools
import math

import pytest
import torch

from rarecall.models.beam import Beam, coverage_penalty, length_penalty, search
from rarecall.models.gnmt import GNMT

SYMBOLS, LONGEST = 5, 4


def network() -> GNMT:
    net = GNMT(SYMBOLS, 1, 2, 8, 2, 0.0).eval()
    with torch.no_grad():
        net.decoder.output.weight.normal_()  # not all alike
    return net


def score(net: GNMT, source: torch.Tensor, pieces: list[int], beam: Beam) -> float:
    """The formula, of one sentence, in loops."""
    encoded = net.encoder(source[None])
    target = [*pieces, net.end]
    steps = net.decoder(torch.tensor([[net.start, *pieces]]), encoded, net.decoder.begin(encoded))
    logits, _ = net.decoder.speak(steps.states, steps.read)
    logits[..., net.start] = -torch.inf
    if len(target) == LONGEST:  # nothing but the end is left
        logits[0, -1, torch.arange(SYMBOLS) != net.end] = -torch.inf
    chances = logits.log_softmax(-1)[0]
    total = sum(chances[place, piece].item() for place, piece in enumerate(target))
    length = (5 + len(target)) ** beam.alpha / (5 + 1) ** beam.alpha
    covered = beam.beta * sum(math.log(min(p, 1.0)) for p in steps.attended[0].sum(0).tolist())
    return total / length + covered


@pytest.mark.parametrize("beam", [Beam(64), Beam(64, alpha=0.0, beta=0.0), Beam(64, alpha=1.0, beta=1.0)])
@torch.no_grad()
def test_a_beam_that_is_wide_enough_finds_the_best_of_all(beam: Beam) -> None:
    net = network()
    source = torch.tensor([[3, 4, 2], [4, 4, 2]])
    for line, found in zip(source, search(net, source, beam, longest=LONGEST), strict=True):
        every = [list(some) for n in range(LONGEST) for some in itertools.product([0, 3, 4], repeat=n)]
        scores = {tuple(pieces): score(net, line, pieces, beam) for pieces in every}
        best = max(scores, key=lambda pieces: scores[pieces])
        # The widest beam stops once it has as many ends as it is wide; there are not that many here.
        assert tuple(found.pieces) == best
        assert found.score == pytest.approx(scores[best], abs=1e-4)


@torch.no_grad()
def test_a_beam_of_one_takes_the_likeliest_piece_each_time() -> None:
    net = network()
    source = torch.tensor([[3, 4, 3, 2]])
    [found] = search(net, source, Beam(1, alpha=0, beta=0), longest=6)
    pieces: list[int] = []
    while len(pieces) < 5:
        logits = net(source, torch.tensor([[*pieces, 0]])).logits[0, -1]
        logits[net.start] = -torch.inf
        if int(logits.argmax()) == net.end:
            break
        pieces.append(int(logits.argmax()))
    assert found.pieces == pieces


def test_a_batch_finds_what_each_sentence_finds_alone() -> None:
    net = network()
    source = torch.cat((torch.randint(3, SYMBOLS, (6, 3)), torch.full((6, 1), 2)), 1)
    together = search(net, source, Beam(3))
    for line, found in zip(source, together, strict=True):
        [alone] = search(net, line[None], Beam(3))
        assert alone.pieces == found.pieces
        assert alone.score == pytest.approx(found.score, abs=1e-4)


def test_penalties_are_those_of_the_paper() -> None:
    assert length_penalty(1, 0.6) == 1.0
    assert length_penalty(7, 0.5) == pytest.approx(2**0.5)
    covered = torch.tensor([[0.5, 2.0], [1.0, 1.0]])
    torch.testing.assert_close(coverage_penalty(covered, 0.2), torch.tensor([0.2 * math.log(0.5), 0.0]))


def test_a_beam_of_none_is_told() -> None:
    with pytest.raises(ValueError, match="width=0"):
        Beam(0)
