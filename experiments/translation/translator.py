"""Translating with a trained network, teaching it pairs of sentences, and asking where its words came from."""

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

SENTENCES = 32  # that are translated at once, at the most
LONGEST = 500  # pieces of a sentence that is translated or taught
PASSES = 3  # in which the paper shows a context


def translate(
    network: GNMT, vocabulary: Vocabulary, lines: Sequence[str], beam: Beam | None = None, *, quiet: bool = True
) -> list[str]:
    """Translates each line; an empty one into an empty one. Nothing is changed."""
    encoded = vocabulary.encode(lines)
    check_lengths(encoded)
    return [vocabulary.decode(pieces) for pieces in find(network, encoded, beam, quiet=quiet)]


def find(
    network: GNMT, encoded: Sequence[Sequence[int]], beam: Beam | None = None, *, quiet: bool = True
) -> list[list[int]]:
    """The pieces of the translation of each line of pieces; none of an empty one."""
    found: list[list[int]] = [[] for _ in encoded]
    with tqdm(total=len(encoded), desc="translating", disable=quiet) as bar:
        for places, source in by_length(encoded, SENTENCES):
            for place, hypothesis in zip(places, search(network, source, beam), strict=True):
                found[place] = hypothesis.pieces
            bar.update(len(places))
    return found


def remember(network: GNMT, decoded: Decoded, batch: Batch, generator: torch.Generator | None = None) -> None:
    """Updates the memory, where there is one, with the right pieces of a batch."""
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
    """Shows pairs to the memory: updates and no training. The weights stay as they are.

    Args:
        network: with a memory.
        pairs: to remember, those with an empty side left out.
        first_id: the source of the first pair; the others follow.
        passes: over all of them.
        tokens: target pieces of an update at the most, none of which sees the others of its update.
        seed: of their order, and of the slots that are written over.
    """
    if network.memory is None:
        raise ValueError("This network has no memory, so it cannot be shown anything; take weights with one.")
    network.eval()
    generator = torch.Generator().manual_seed(seed)
    which = pairs.usable(LONGEST).nonzero().squeeze(1)
    # Whatever misses finds a slot.
    tokens = min(tokens, network.memory.capacity)
    order = [part for _ in range(passes) for part in pairs.batches(which, tokens, generator)] if len(which) else []
    for part in tqdm(order, desc="showing", disable=quiet):
        batch = pairs.batch(part)
        batch = Batch(batch.ids + first_id, batch.source, batch.target, batch.mask)
        remember(network, network(batch.source, batch.target), batch, generator)


@dataclass(frozen=True)
class Said:
    """A piece that was produced, and what the memory had to say of it.

    Attributes:
        piece: as the vocabulary shows it.
        answer: the memory's own piece, or None where it knew nothing.
        confidence: how sure it was.
        source: the id of the pair that the answer came from, -1 for none.
        pair: that pair's sentences, or None where the text is not at hand.
    """

    piece: str
    answer: str | None
    confidence: float
    source: int
    pair: tuple[str, str] | None

    def line(self) -> str:
        """As it is printed."""
        if self.answer is None:
            return f"{self.piece:>16}   the memory knows nothing"
        told = "" if self.pair is None else f": {self.pair[0]} ||| {self.pair[1]}"
        return f"{self.piece:>16}   {self.answer:>16} {self.confidence:4.0%}   from {self.source}{told}"


class Translator:
    """Translates, learns pairs on the spot, and explains.

    Args:
        network: trained; its memory changes when it is taught.
        vocabulary: that it was trained with.
        known: how many pairs it was trained on; taught ones are numbered from there on.
        text: those pairs, to name where an answer came from, or None where they are not at hand.
        beam: how to search.
    """

    def __init__(
        self, network: GNMT, vocabulary: Vocabulary, known: int = 0, text: Text | None = None, beam: Beam | None = None
    ) -> None:
        self.network, self.vocabulary, self.beam = network.eval(), vocabulary, beam
        self._text = text
        self._known = known
        self._taught: list[tuple[str, str]] = []

    def translate(self, line: str) -> str:
        """Translates a sentence."""
        [found] = translate(self.network, self.vocabulary, [line], self.beam)
        return found

    def teach(self, source: str, target: str, passes: int = PASSES) -> int:
        """Remembers that these mean the same; returns the id by which `explain` names the pair."""
        for line, name in ((source, "source"), (target, "target")):
            if not line.strip():
                raise ValueError(f"The {name} of the pair to be taught is empty; expected a sentence.")
        text = Text([source], [target], (1,))
        check_lengths(self.vocabulary.encode([source, target]))
        number = self._known + len(self._taught)
        show(self.network, encode(text, self.vocabulary), first_id=number, passes=passes)
        self._taught.append((source, target))
        return number

    @torch.no_grad()
    def explain(self, source: str, target: str | None = None) -> list[Said]:
        """What the memory answers as a translation is written, piece by piece, the end included.

        Args:
            source: the sentence.
            target: its translation; the one that `translate` finds by default.
        """
        network = self.network
        if network.memory is None:
            raise ValueError("This network has no memory, so there is nothing to explain; take weights with one.")
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
        """The sentences of a pair by its id, or None where they are not at hand."""
        taught = source - self._known
        if 0 <= taught < len(self._taught):
            return self._taught[taught]
        if self._text is not None and 0 <= source < len(self._text):
            return self._text.sources[source], self._text.targets[source]
        return None


def check_lengths(encoded: Sequence[Sequence[int]]) -> None:
    """Raises where a sentence is too long to be translated."""
    for number, line in enumerate(encoded):
        if len(line) - 1 > LONGEST:
            raise ValueError(
                f"Line {number + 1} has {len(line) - 1} pieces; expected at most {LONGEST}. Cut it into sentences."
            )
