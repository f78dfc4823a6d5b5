"""Translate with a trained network, teach it pairs of sentences, and explain where its words come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from tqdm import tqdm

from experiments.translation.pairs import Batch, Pairs, by_length, encode
from experiments.translation.text import Text
from experiments.translation.vocabulary import Vocabulary
from rarecall.models.beam import Beam, search
from rarecall.models.decoded import Decoded
from rarecall.models.gnmt import GNMT

SENTENCES = 32  # maximum number of sentences per batch
LONGEST = 500  # maximum number of pieces of a sentence
PASSES = 3  # how often the paper shows a context


def translate(
    network: GNMT, vocabulary: Vocabulary, lines: Sequence[str], beam: Beam | None = None, *, quiet: bool = True
) -> list[str]:
    """Translate each line; empty lines stay empty. Changes nothing."""
    encoded = vocabulary.encode(lines)
    check_lengths(encoded)
    return [vocabulary.decode(pieces) for pieces in find(network, encoded, beam, quiet=quiet)]


def find(
    network: GNMT, encoded: Sequence[Sequence[int]], beam: Beam | None = None, *, quiet: bool = True
) -> list[list[int]]:
    """Return the pieces of the translation of each encoded line; none for an empty line."""
    found: list[list[int]] = [[] for _ in encoded]
    with tqdm(total=len(encoded), desc="translating", disable=quiet) as bar:
        for places, source in by_length(encoded, SENTENCES):
            for place, hypothesis in zip(places, search(network, source, beam), strict=True):
                found[place] = hypothesis.pieces
            bar.update(len(places))
    return found


def remember(network: GNMT, decoded: Decoded, batch: Batch, generator: torch.Generator | None = None) -> None:
    """Update the memory, if there is one, with the target pieces of a batch."""
    if network.memory is not None and decoded.recall is not None:
        source = batch.ids[:, None].expand_as(batch.target)
        network.memory.update(decoded.recall, batch.target, source=source, mask=batch.mask, generator=generator)


@torch.no_grad()
def show(
    network: GNMT,
    pairs: Pairs,
    *,
    first_id: int = 0,
    passes: int = PASSES,
    tokens: int = 512,
    seed: int = 0,
    quiet: bool = True,
) -> None:
    """Show pairs to the memory: updates without training. The weights do not change.

    Args:
        network: a network with a memory.
        pairs: pairs to store; those with an empty side are left out.
        first_id: source of the first pair; the others follow.
        passes: number of passes over the pairs.
        tokens: maximum number of target pieces per update.
        seed: random seed of the order and of the overwritten slots.
        quiet: show no progress bar.
    """
    if network.memory is None:
        raise ValueError("This network has no memory; use weights of a network with a memory.")
    network.eval()
    generator = torch.Generator().manual_seed(seed)
    which = pairs.usable(LONGEST).nonzero().squeeze(1)
    # Every query that misses gets a slot.
    tokens = min(tokens, network.memory.capacity)
    order = [part for _ in range(passes) for part in pairs.batches(which, tokens, generator)] if len(which) else []
    for part in tqdm(order, desc="showing", disable=quiet):
        batch = pairs.batch(part)
        batch = Batch(batch.ids + first_id, batch.source, batch.target, batch.mask)
        remember(network, network(batch.source, batch.target), batch, generator)


@dataclass(frozen=True)
class Said:
    """A piece of a translation, and the memory's answer at this position.

    Attributes:
        piece: the piece, as displayed by the vocabulary.
        answer: the memory's answer, or None if the memory is empty.
        confidence: confidence of the answer.
        source: id of the pair that the answer came from, -1 for none.
        pair: the sentences of that pair, or None if the text is not available.
    """

    piece: str
    answer: str | None
    confidence: float
    source: int
    pair: tuple[str, str] | None

    def line(self) -> str:
        """Format as one line."""
        if self.answer is None:
            return f"{self.piece:>16}   the memory is empty"
        told = "" if self.pair is None else f": {self.pair[0]} ||| {self.pair[1]}"
        return f"{self.piece:>16}   {self.answer:>16} {self.confidence:4.0%}   from {self.source}{told}"


class Translator:
    """Translate sentences, teach pairs, and explain translations.

    Args:
        network: a trained network; teaching changes its memory.
        vocabulary: its vocabulary.
        known: number of pairs it was trained on; taught pairs get the ids from there on.
        text: the training pairs, to show where an answer came from, or None if they are not available.
        beam: settings of the beam search.
    """

    def __init__(
        self, network: GNMT, vocabulary: Vocabulary, known: int = 0, text: Text | None = None, beam: Beam | None = None
    ) -> None:
        self.network, self.vocabulary, self.beam = network.eval(), vocabulary, beam
        self._text = text
        self._known = known
        self._taught: list[tuple[str, str]] = []

    def translate(self, line: str) -> str:
        """Translate a sentence."""
        [found] = translate(self.network, self.vocabulary, [line], self.beam)
        return found

    def teach(self, source: str, target: str, passes: int = PASSES) -> int:
        """Teach a pair of sentences. Returns the id that `explain` uses for the pair."""
        for line, name in ((source, "source"), (target, "target")):
            if not line.strip():
                raise ValueError(f"The {name} of the taught pair is empty; expected a sentence.")
        text = Text([source], [target], (1,))
        check_lengths(self.vocabulary.encode([source, target]))
        number = self._known + len(self._taught)
        show(self.network, encode(text, self.vocabulary), first_id=number, passes=passes)
        self._taught.append((source, target))
        return number

    @torch.no_grad()
    def explain(self, source: str, target: str | None = None) -> list[Said]:
        """Return the memory's answer for each piece of a translation, including the end.

        Args:
            source: the sentence.
            target: its translation (default: the one found by `translate`).
        """
        network = self.network
        if network.memory is None:
            raise ValueError(
                "This network has no memory to explain its output with; use weights of a network with a memory."
            )
        [read] = self.vocabulary.encode([source])
        check_lengths([read])
        if len(read) == 1:
            return []
        if target is None:
            written = [*find(network, [read], self.beam)[0], network.end]
        else:
            [written] = self.vocabulary.encode([target])
        recall = network(torch.tensor([read]), torch.tensor([written])).recall
        assert recall is not None
        said = []
        for place, piece in enumerate(written):
            slot, answer = int(recall.slots[0, place, 0]), int(recall.value[0, place])
            origin = int(network.memory.sources[slot]) if slot >= 0 else -1
            said.append(
                Said(
                    self.vocabulary.piece(piece),
                    self.vocabulary.piece(answer) if answer >= 0 else None,
                    float(recall.confidence[0, place]),
                    origin,
                    self.pair(origin),
                )
            )
        return said

    def pair(self, source: int) -> tuple[str, str] | None:
        """Return the sentences of a pair by its id, or None if they are not available."""
        taught = source - self._known
        if 0 <= taught < len(self._taught):
            return self._taught[taught]
        if self._text is not None and 0 <= source < len(self._text):
            return self._text.sources[source], self._text.targets[source]
        return None


def check_lengths(encoded: Sequence[Sequence[int]]) -> None:
    """Check the lengths of encoded sentences.

    Raises:
        ValueError: if a sentence is too long.
    """
    for number, line in enumerate(encoded):
        if len(line) - 1 > LONGEST:
            raise ValueError(
                f"Line {number + 1} has {len(line) - 1} pieces; expected at most {LONGEST}. Cut it into sentences."
            )
