"""python -m experiments.translation evaluate --weights runs/b/network.safetensors --baseline runs/a/network.safetensors

Measure BLEU by the paper's protocol: the weights are frozen, only the memory changes. The even lines of the test set,
counted from 0, are shown to the memory three times, and the odd lines are translated; or, as an oracle, the whole test
set is shown and translated.
"""

from __future__ import annotations

import copy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from experiments.translation.bleu import RARE, bleu, difference, of_rare_words, rare_words, with_rare_words
from experiments.translation.networks import Trained, make_memory
from experiments.translation.pairs import encode
from experiments.translation.text import Text
from experiments.translation.translator import PASSES, check_lengths, show, translate
from rarecall.models.beam import Beam
from rarecall.models.gnmt import GNMT

# The systems compared, in the order of the paper's table.
BASELINE, EMPTIED, MEMORY = "without memory", "with memory, emptied", "with memory"
EVEN, WHOLE = "even lines as context", "whole test as context (oracle)"
FULL, ODD, DEVELOPMENT = "full test", "odd lines", "development"


@dataclass(frozen=True, eq=False)
class Measured:
    """The texts of an evaluation.

    Attributes:
        test: test set; its even lines are shown, its odd lines are translated.
        development: development set, which checks that showing the context does no harm.
        training: training text, to count rare words and to refill the memory.
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
    capacity: int | None = None,
    odd_only: bool = False,
    full_only: bool = False,
    translations: Path | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """Return all published figures.

    Args:
        trained: the network, usually with a memory.
        baseline: a network without a memory to compare it with.
        measured: the texts.
        beam: settings of the beam search.
        refill: first empty the memory and show it this many of the last training pairs; 0: use it as it is.
        capacity: slots of the memory that is refilled (default: as in training).
        odd_only: translate only the odd lines, without and with the even ones as context: a quarter of the work.
        full_only: translate only the full test, without a context.
        translations: folder to write all translations to.
        quiet: show no progress bars.
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

    full: tuple[str, ...]
    full, by_context = ((ODD,), (ODD,)) if odd_only else ((FULL, DEVELOPMENT), (ODD, DEVELOPMENT))
    contexts = [(EVEN, test.of(range(0, len(test), 2)), by_context)]
    if full_only:
        full, contexts = (FULL,), []
    elif not odd_only:
        contexts.append((WHOLE, test, (FULL,)))
    if baseline is not None:
        ask(BASELINE, baseline, baseline.network.eval(), *full)
    network, figures = trained.network.eval(), dict[str, Any]()
    if network.memory is None:
        ask(BASELINE, trained, network, *full)
    else:
        if refill:
            fill(trained, measured.training, refill, capacity, quiet=quiet)
        figures["slots"] = len(network.memory)
        if not trained.run["frozen"]:
            # Measures what the network learned in its weights since it was initialised with the baseline's.
            emptied = copy.deepcopy(network)
            if emptied.memory is not None:
                emptied.memory.reset()
            ask(EMPTIED, trained, emptied, full[0])
        ask(MEMORY, trained, network, *full)
        for whose, context, parts in contexts:
            # Each context is shown to a fresh copy.
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
    about = {"beam": asdict(beam), "passes": PASSES, "refill": refill} | ({"capacity": capacity} if capacity else {})
    return {"experiment": "translation", "protocol": about, "figures": figures}


def check(trained: Trained, baseline: Trained | None, measured: Measured) -> None:
    """Check that the networks and texts match, before an hour of work.

    Raises:
        ValueError: if a network was trained on other text, or --weights and --baseline are mixed up.
    """
    for of in (trained, *([baseline] if baseline is not None else [])):
        if of.run["text"] != measured.training.digest:
            raise ValueError(
                f"The network was trained on other text ({of.run['trained_on']}, digest {of.run['text']}) than is "
                f"given (digest {measured.training.digest}). Use the same files (--source and --target, or --data)."
            )
        check_lengths(of.vocabulary.encode(measured.test.sources))
        check_lengths(of.vocabulary.encode(measured.development.sources))
    if baseline is not None and (baseline.network.memory is not None or trained.network.memory is None):
        raise ValueError("Expected the network with a memory as --weights, and the one without as --baseline.")


def fill(trained: Trained, training: Text, pairs: int, capacity: int | None = None, *, quiet: bool = False) -> None:
    """Replace the memory by an empty one, then show it the last `pairs` pairs of the training text once."""
    assert trained.network.memory is not None
    trained.network.decoder.memory = make_memory(trained.network.units, capacity or trained.network.memory.capacity)
    first = max(0, len(training) - pairs)
    shown = encode(training.of(range(first, len(training))), trained.vocabulary, quiet=quiet)
    show(trained.network, shown, first_id=first, passes=1, quiet=quiet)


def differences(
    found: dict[str, dict[str, list[str]]], right: dict[str, list[str]], *, quiet: bool = True
) -> list[dict[str, Any]]:
    """Return the differences between the systems, each with those it should improve on or not fall behind."""
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
    at_hand = [one for one in compared if all(one[2] in found.get(whose, ()) for whose in one[:2])]
    return [
        {"of": whose, "from": other, "on": part} | difference(found[whose][part], found[other][part], right[part])
        for whose, other, part in tqdm(at_hand, desc="bootstrap", disable=quiet)
    ]


def of_rare(
    found: dict[str, dict[str, list[str]]], test: Text, training: Text, *, quiet: bool = True
) -> dict[str, Any]:
    """Measure the odd lines that share a rare word with the even lines, their context."""
    context, asked = test.targets[0::2], test.targets[1::2]
    lines = with_rare_words(asked, rare_words(context, training.targets, quiet=quiet))
    return {
        "rare": f"seen at most {RARE} times in training",
        "sentences": len(lines),
        "by": {whose: of_rare_words(of[ODD], asked, lines) for whose, of in found.items() if ODD in of},
    }


def write_all(found: dict[str, dict[str, list[str]]], folder: Path) -> None:
    """Write each translation to a file of its own, line by line."""
    folder.mkdir(parents=True, exist_ok=True)
    for whose, of in found.items():
        for part, told in of.items():
            name = f"{whose}, {part}.txt".replace(" ", "-").replace(",", "").replace("(", "").replace(")", "")
            (folder / name).write_text("".join(f"{line}\n" for line in told))
