"""python -m experiments.translation evaluate --weights runs/b/network.safetensors --baseline runs/a/network.safetensors

The paper's protocol: the weights are frozen, only the memory changes. The even lines of the test, counted from 0, are
shown to the memory three times, and the odd lines are translated; or the whole test is shown, as an oracle, and the
whole test is translated.
"""

from __future__ import annotations

import copy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from experiments.translation.bleu import RARE, bleu, difference, of_rare_words, rare_words, with_rare_words
from experiments.translation.networks import Trained
from experiments.translation.pairs import encode
from experiments.translation.text import Text
from experiments.translation.translator import PASSES, check_lengths, show, translate
from rarecall.models.beam import Beam
from rarecall.models.gnmt import GNMT

# Whose translations these are, in the order of the paper's table.
BASELINE, EMPTIED, MEMORY = "without memory", "with memory, emptied", "with memory"
EVEN, WHOLE = "even lines as context", "whole test as context (oracle)"
FULL, ODD, DEVELOPMENT = "full test", "odd lines", "development"


@dataclass(frozen=True, eq=False)
class Measured:
    """What the networks are measured with.

    Attributes:
        test: whose even lines are shown, and whose odd lines are translated.
        development: where what was shown must do no harm.
        training: the text that they were trained on, to know which words are rare, and to refill the memory.
    """

    test: Text
    development: Text
    training: Text


def evaluate(
    trained: Trained,
    baseline: Trained | None,
    measured: Measured,
    *,
    beam: Beam | None = None,
    refill: int = 0,
    translations: Path | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """All figures as they are published.

    Args:
        trained: the network with a memory, or one without, of which there is less to measure.
        baseline: the network without a memory that it is compared with.
        measured: the text.
        beam: how to search.
        refill: empty the memory and show it the last so many training pairs first; 0 to take it as it is.
        translations: a folder to write all translations to, one file for each.
        quiet: no progress bars.
    """
    beam = beam or Beam()
    check(trained, baseline, measured)
    test, odd = measured.test, range(1, len(measured.test), 2)
    sources = {FULL: test.sources, ODD: test.of(odd).sources, DEVELOPMENT: measured.development.sources}
    right = {FULL: test.targets, ODD: test.of(odd).targets, DEVELOPMENT: measured.development.targets}
    found: dict[str, dict[str, list[str]]] = {}

    def ask(whose: str, of: Trained, network: GNMT, *parts: str) -> None:
        for part in parts:
            if not quiet:
                print(f"{whose}: {part}")
            told = translate(network, of.vocabulary, sources[part], beam, quiet=quiet)
            found.setdefault(whose, {})[part] = told
            if part == FULL and whose != WHOLE:
                found[whose][ODD] = [told[number] for number in odd]

    if baseline is not None:
        ask(BASELINE, baseline, baseline.network.eval(), FULL, DEVELOPMENT)
    network, figures = trained.network.eval(), dict[str, Any]()
    if network.memory is None:
        ask(BASELINE, trained, network, FULL, DEVELOPMENT)
    else:
        if refill:
            fill(trained, measured.training, refill, quiet=quiet)
        figures["slots"] = len(network.memory)
        if not trained.run["frozen"]:
            # What the network has learned beside its memory since it began with another is not the memory's merit.
            emptied = copy.deepcopy(network)
            if emptied.memory is not None:
                emptied.memory.reset()
            ask(EMPTIED, trained, emptied, FULL)
        ask(MEMORY, trained, network, FULL, DEVELOPMENT)
        for whose, context, parts in (
            (EVEN, test.of(range(0, len(test), 2)), (ODD, DEVELOPMENT)),
            (WHOLE, test, (FULL,)),
        ):
            # Each context is shown to a memory that saw no other.
            taught = copy.deepcopy(network)
            pairs = encode(context, trained.vocabulary)
            show(taught, pairs, first_id=len(measured.training), passes=PASSES, quiet=quiet)
            ask(whose, trained, taught, *parts)
    if translations is not None:
        write_all(found, translations)
    figures |= {
        "bleu": {whose: {part: bleu(told, right[part]) for part, told in of.items()} for whose, of in found.items()},
        "differences": differences(found, right, quiet=quiet),
        "rare words": of_rare(found, test, measured.training, quiet=quiet),
    }
    about = {"beam": asdict(beam), "passes": PASSES, "refill": refill}
    return {"experiment": "translation", "protocol": about, "figures": figures}


def check(trained: Trained, baseline: Trained | None, measured: Measured) -> None:
    """Raises where the networks and the text do not belong together, before any of the hour's work is done."""
    for of in (trained, *([baseline] if baseline is not None else [])):
        if of.run["text"] != measured.training.digest:
            raise ValueError(
                f"The network was trained on other text ({of.run['trained_on']}, digest {of.run['text']}) than is "
                f"given (digest {measured.training.digest}). Name the same files by --source and --target, or --data."
            )
        check_lengths(of.vocabulary.encode(measured.test.sources))
        check_lengths(of.vocabulary.encode(measured.development.sources))
    if baseline is not None and (baseline.network.memory is not None or trained.network.memory is None):
        raise ValueError("Expected the network with a memory as --weights, and the one without as --baseline.")


def fill(trained: Trained, training: Text, pairs: int, *, quiet: bool = False) -> None:
    """Empties the memory and shows it the last pairs of the training text, once each."""
    assert trained.network.memory is not None
    trained.network.memory.reset()
    first = max(0, len(training) - pairs)
    shown = encode(training.of(range(first, len(training))), trained.vocabulary, quiet=quiet)
    show(trained.network, shown, first_id=first, passes=1, quiet=quiet)


def differences(
    found: dict[str, dict[str, list[str]]], right: dict[str, list[str]], *, quiet: bool = True
) -> list[dict[str, Any]]:
    """Of each translation from those it should be better than, or no worse."""
    compared = (
        (EMPTIED, BASELINE, FULL),
        (MEMORY, EMPTIED, FULL),
        (MEMORY, BASELINE, FULL),
        (MEMORY, BASELINE, ODD),
        (EVEN, MEMORY, ODD),
        (EVEN, BASELINE, ODD),
        (WHOLE, MEMORY, FULL),
        (WHOLE, BASELINE, FULL),
        (MEMORY, BASELINE, DEVELOPMENT),
        (EVEN, MEMORY, DEVELOPMENT),
    )
    at_hand = [one for one in compared if one[0] in found and one[1] in found]
    return [
        {"of": whose, "from": other, "on": part} | difference(found[whose][part], found[other][part], right[part])
        for whose, other, part in tqdm(at_hand, desc="bootstrap", disable=quiet)
    ]


def of_rare(
    found: dict[str, dict[str, list[str]]], test: Text, training: Text, *, quiet: bool = True
) -> dict[str, Any]:
    """How the odd lines fare that share a rare word with the even ones, their context."""
    context, asked = test.targets[0::2], test.targets[1::2]
    lines = with_rare_words(asked, rare_words(context, training.targets, quiet=quiet))
    return {
        "rare": f"seen at most {RARE} times in training",
        "sentences": len(lines),
        "by": {whose: of_rare_words(of[ODD], asked, lines) for whose, of in found.items() if ODD in of},
    }


def write_all(found: dict[str, dict[str, list[str]]], folder: Path) -> None:
    """Writes each translation to a file of its own, a line for a line."""
    folder.mkdir(parents=True, exist_ok=True)
    for whose, of in found.items():
        for part, told in of.items():
            name = f"{whose}, {part}.txt".replace(" ", "-").replace(",", "").replace("(", "").replace(")", "")
            (folder / name).write_text("".join(f"{line}\n" for line in told))
