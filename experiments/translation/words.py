"""python -m experiments.translation words --weights FILE --dictionary /usr/share/trans/de-en

Teach rare words from a dictionary at run time. The asked words are those of the test's references that the training
text has at most RARE times and that the dictionary translates from words of the source line.

An entry is taught in one of two ways:

- `teach_pairs`: as a pair of two short sentences, its English and its German side.
- `teach_in_place`: in a sentence that has its English side. The network translates the sentence, the attention tells
  which word of the translation comes from the English words, and the German word takes its place; the memory is updated
  with the German word's pieces and the piece after them, which ends the word, and with nothing else. This uses the
  source and the dictionary, not the reference.

All entries are taught to one memory, then the whole test is translated. Which of the dictionary's translations is
meant is known from the reference, as it is to a translator who keeps a glossary.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from experiments.translation.bleu import RARE, bleu, difference, rare_words, words
from experiments.translation.dictionary import Asked, Entry, asked_words
from experiments.translation.networks import Trained
from experiments.translation.pairs import encode
from experiments.translation.text import Text
from experiments.translation.translator import PASSES, find, show, translate
from experiments.translation.vocabulary import Vocabulary
from rarecall import Memory
from rarecall.models.beam import Beam
from rarecall.models.gnmt import GNMT

ROUNDS = 3  # a sentence may have several words, and one that is still missing is taught again


def evaluate_words(
    trained: Trained, test: Text, training: Text, entries: set[Entry], *, beam: Beam | None = None, quiet: bool = False
) -> dict[str, Any]:
    """Return how many of the asked words are right, and BLEU, before and after their entries are taught."""
    beam, network, vocabulary = beam or Beam(), trained.network.eval(), trained.vocabulary
    _memory_of(network)
    asked = asked_words(test.sources, test.targets, rare_words(test.targets, training.targets, quiet=quiet), entries)
    if not asked:
        raise ValueError("The dictionary has no rare word of this text; use another dictionary or text.")
    found = {"before": translate(network, vocabulary, test.sources, beam, quiet=quiet)}
    for how, teach in (("taught as pairs", teach_pairs), ("taught in place", teach_in_place)):
        taught = copy.deepcopy(network)
        teach(taught, vocabulary, test.sources, asked, first_id=len(training), beam=beam, quiet=quiet)
        found[how] = translate(taught, vocabulary, test.sources, beam, quiet=quiet)
    lines = sorted({one.line for one in asked})
    others = sorted(set(range(len(test))) - set(lines))

    def among(which: list[int], of: list[str]) -> list[str]:
        return [of[line] for line in which]

    figures: dict[str, Any] = {
        how: {
            "right": sum(one.german in words(told[one.line]) for one in asked),
            "bleu": bleu(told, test.targets),
            "bleu of lines with such words": bleu(among(lines, told), among(lines, test.targets)),
            "bleu of the other lines": bleu(among(others, told), among(others, test.targets)),
        }
        for how, told in found.items()
    }
    for how in [how for how in found if how != "before"]:
        figures[how]["difference"] = difference(found[how], found["before"], test.targets)
    return {
        "experiment": "translation words",
        "rare": f"seen at most {RARE} times in training",
        "words": len(asked),
        "lines": len(lines),
        "protocol": {"beam": asdict(beam), "rounds": ROUNDS, "passes": PASSES},
        "figures": figures,
    }


def teach_pairs(
    network: GNMT,
    vocabulary: Vocabulary,
    sources: Sequence[str],
    asked: Sequence[Asked],
    *,
    first_id: int,
    beam: Beam | None = None,
    quiet: bool = True,
) -> None:
    """Teach each entry as a pair of sentences, as they stand in the dictionary. `sources` and `beam` are not used."""
    pairs = sorted({(one.english, one.german) for one in asked})
    text = Text([english for english, _ in pairs], [german for _, german in pairs], (len(pairs),))
    show(network, encode(text, vocabulary), first_id=first_id, quiet=quiet)


@torch.no_grad()
def teach_in_place(
    network: GNMT,
    vocabulary: Vocabulary,
    sources: Sequence[str],
    asked: Sequence[Asked],
    *,
    first_id: int,
    beam: Beam | None = None,
    quiet: bool = True,
) -> None:
    """Teach each entry in the sentence that has it.

    Args:
        network: a network with a memory, which is updated.
        vocabulary: its vocabulary.
        sources: the sentences.
        asked: what to teach, each in its line of `sources`.
        first_id: source of the keys of `asked[0]`; the others follow.
        beam: settings of the beam search.
        quiet: show no progress bars.
    """
    _memory_of(network)
    generator = torch.Generator().manual_seed(0)
    missing = list(enumerate(asked))
    for _ in range(ROUNDS):
        lines = sorted({one.line for _, one in missing})
        read = dict(zip(lines, vocabulary.encode([sources[line] for line in lines]), strict=True))
        told = dict(zip(lines, find(network, list(read.values()), beam, quiet=quiet), strict=True))
        missing = [
            (number, one) for number, one in missing if one.german not in words(vocabulary.decode(told[one.line]))
        ]
        first = {one.line: (number, one) for number, one in reversed(missing)}  # one word of a line in each round
        for line, (number, one) in tqdm(first.items(), desc="teaching", disable=quiet):
            _teach_word(network, vocabulary, read[line], told[line], one, first_id + number, generator)


def _teach_word(
    network: GNMT,
    vocabulary: Vocabulary,
    read: list[int],
    told: list[int],
    one: Asked,
    source_id: int,
    generator: torch.Generator,
) -> None:
    """Put the German word in its place in the translation `told` of `read`, and write the keys of its pieces."""
    from_pieces = pieces_of(one.english, [vocabulary.piece(piece) for piece in read])
    if not from_pieces:
        return
    source, [word] = torch.tensor([read]), vocabulary.encode([one.german])
    begin, end = place_of(attention(network, source, [*told, network.end]), told, from_pieces, vocabulary)
    target = torch.tensor([[*told[:begin], *word[:-1], *told[end:], network.end]])
    mask = torch.zeros_like(target, dtype=torch.bool)
    mask[0, begin : begin + len(word)] = True  # `word` ends with the end piece: one piece more
    recall = network(source, target).recall
    assert recall is not None
    _memory_of(network).update(
        recall, target, source=torch.full_like(target, source_id), mask=mask, generator=generator
    )


def _memory_of(network: GNMT) -> Memory:
    if network.memory is None:
        raise ValueError("This network has no memory to teach; use weights of a network with a memory.")
    return network.memory


def attention(network: GNMT, source: Tensor, target: list[int]) -> Tensor:
    """Return the attention weights, (time, length), of a translation, a list of pieces, of source (1, length)."""
    encoded = network.encoder(source)
    before = torch.tensor([[network.start, *target[:-1]]])
    weights: Tensor = network.decoder(before, encoded, network.decoder.begin(encoded)).attended[0]
    return weights


def pieces_of(english: str, pieces: Sequence[str]) -> list[int]:
    """Return the places of the pieces that spell the first occurrence of English words; none if there is none."""
    spelled = [" " if piece.startswith("<0x") else piece.replace("▁", " ") for piece in pieces]
    owner = [place for place, part in enumerate(spelled) for _ in part]
    between = r"\W+".join(re.escape(word) for word in english.split())
    match = re.search(rf"(?<!\w){between}(?!\w)", "".join(spelled), re.IGNORECASE)
    return [] if match is None else sorted(set(owner[match.start() : match.end()]))


def place_of(attended: Tensor, told: Sequence[int], from_pieces: list[int], vocabulary: Vocabulary) -> tuple[int, int]:
    """Return begin and end of the word in `told` that attends most to the pieces `from_pieces` of the source.

    Args:
        attended: (time, length), attention weights of `told` and the end piece.
        told: the pieces of a translation.
        from_pieces: places in the source.
        vocabulary: of the pieces.
    """
    pieces = [vocabulary.piece(piece) for piece in told]
    starts = [place for place, piece in enumerate(pieces) if place == 0 or begins_word(piece)]
    if not starts:
        return 0, 0
    weights = attended[: len(told), from_pieces].sum(1)
    spans = list(zip(starts, [*starts[1:], len(told)], strict=True))
    # The first piece of a word attends to what the word means, the others often to the end of the sentence.
    return max(spans, key=lambda span: float(weights[span[0]]))


def begins_word(piece: str) -> bool:
    """Return whether a piece begins a word, or is punctuation, which is no part of one (but for hyphens)."""
    return piece.startswith("▁") or not (any(map(str.isalnum, piece)) or piece == "-" or piece.startswith("<0x"))
