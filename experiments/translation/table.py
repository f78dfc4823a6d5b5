"""python -m experiments.translation table

Print the paper's table next to our results, from results/*.json.
"""

from __future__ import annotations

import os
from typing import Any

from experiments import results
from experiments.translation.evaluate import BASELINE, DEVELOPMENT, EVEN, FULL, MEMORY, ODD, WHOLE

# The paper's third table: BLEU on newstest2014 after training on WMT14.
PAPER: dict[str, tuple[str, float | None, float | None]] = {
    BASELINE: ("GNMT", 23.25, 23.17),
    MEMORY: ("GNMT with memory", 23.29, 23.16),
    EVEN: ("GNMT with memory and even lines as context", None, 23.60),
    WHOLE: ("GNMT with memory and whole test as context*", 31.11, None),
}
# How the memory is wired into the network, and the rows of each wiring.
AS_THE_PAPER, LEARNED = "as in the paper", "learned query, mixed output"
WIRINGS = {AS_THE_PAPER: (BASELINE, MEMORY, EVEN, WHOLE), LEARNED: (MEMORY, EVEN, WHOLE)}


def table(folder: str | os.PathLike[str]) -> str:
    """Format all results in a folder as Markdown."""
    found = results.read_all(folder, "translation")
    lines = ["## Translation, English to German, BLEU", ""]
    lines += [f"The paper's network has 8 layers of 1024 and was trained on WMT14. Ours: {_texts(found)}.", ""]
    sizes = list(dict.fromkeys(_measured(result) for result in found)) or ["ours"]
    columns = [f"{size}, {part}" for size in sizes for part in (FULL, ODD)]
    lines += _row("", "the paper, full test", "the paper, odd lines", *columns)
    lines += _row(*["---"] * (3 + len(columns)))
    for wiring, rows in WIRINGS.items():
        for whose in rows:
            name, *published = PAPER[whose]
            figures = [_number(figure) if wiring == AS_THE_PAPER else "–" for figure in published]
            ours = [_ours(found, size, wiring, whose, part) for size in sizes for part in (FULL, ODD)]
            lines += _row(name + (f", {wiring}" if whose != BASELINE else ""), *figures, *ours)
    lines += ["", "\\* An oracle: the memory was shown the right answers.", ""]
    for result in found:
        lines += [f"### {title(result)}", "", lines_of(result), ""]
    taught = results.read_all(folder, "translation words")
    for result in taught:
        size = _sized(result["training"])
        lines += [f"### Rare words of a dictionary, taught to {size}", "", words_lines(result), ""]
    lines += ["## Where the figures come from", ""]
    for result in taught:
        lines.append(f"- `{result['command']}`, seed {result['seed']}, commit {result['commit'][:12]}")
    for result in found:
        lines.append(f"- `{result['command']}`, seed {result['seed']}, commit {result['commit'][:12]}")
        lines += [f"  - {whose}: {_trained(training)}" for whose, training in result["training"].items()]
    return "\n".join(lines)


def title(result: dict[str, Any]) -> str:
    """Return a title: the networks measured, and their training text."""
    networks = " and ".join(result["training"])
    wiring = f", {_wiring(result)}" if MEMORY in result["training"] else ""
    return f"{networks} ({_measured(result)}{wiring}), trained on {_texts([result])}"


def lines_of(result: dict[str, Any]) -> str:
    """Format one result of `evaluate` as tables."""
    figures = result["figures"]
    lines = _row("BLEU", FULL, ODD, DEVELOPMENT) + _row(*["---"] * 4)
    signatures = set()
    for whose, of in figures["bleu"].items():
        lines += _row(whose, *[f"{of[part]['score']:.2f}" if part in of else "–" for part in (FULL, ODD, DEVELOPMENT)])
        signatures |= {score["signature"] for score in of.values()}
    if figures["differences"]:
        lines += ["", *_row("difference", "from", "on", "BLEU", "p"), *_row(*["---"] * 5)]
        for one in figures["differences"]:
            p = f"{one['p']:.3f}" + ("" if one["significant"] else ", not significant")
            lines += _row(one["of"], one["from"], one["on"], f"{one['difference']:+.2f}", p)
    rare = figures["rare words"]
    lines += ["", f"Odd lines that share a word with the even ones that was {rare['rare']}: {rare['sentences']}.", ""]
    lines += _row("", "BLEU of these", "of their rare words right, %") + _row(*["---"] * 3)
    for whose, of in rare["by"].items():
        accuracy = "–" if of["accuracy"] is None else f"{of['accuracy']:.1f} of {of['words']}"
        lines += _row(whose, f"{of['bleu']['score']:.2f}", accuracy)
    searched = result["protocol"]["beam"]
    lines += ["", f"- {', '.join(sorted(signatures))}"]
    lines.append(f"- beam of {searched['width']}, alpha {searched['alpha']}, beta {searched['beta']}")
    if "slots" in figures:
        refill = result["protocol"]["refill"]
        told = f", after it was shown {refill} training pairs anew" if refill else ""
        lines.append(f"- {figures['slots']} slots of the memory were filled{told}")
    return "\n".join(lines)


def words_lines(result: dict[str, Any]) -> str:
    """Format one result of `words` as a table."""
    asked, lines = result["words"], _row("", "right", "%", "BLEU", "BLEU of their lines", "BLEU of other lines", "p")
    lines += _row(*["---"] * 7)
    for how, of in result["figures"].items():
        scores = [of[name]["score"] for name in ("bleu", "bleu of lines with such words", "bleu of the other lines")]
        p = f"{of['difference']['p']:.3f}" if "difference" in of else "–"
        lines += _row(how, str(of["right"]), f"{100 * of['right'] / asked:.1f}", *[f"{x:.2f}" for x in scores], p)
    told = f"{asked} words of {result['lines']} lines, {result['rare']}, which the dictionary has"
    return "\n".join([*lines, "", f"- {told}; p: of the difference in BLEU from before"])


def _ours(found: list[dict[str, Any]], size: str, wiring: str, whose: str, part: str) -> str:
    """Return the score of the last result that has it."""
    asked = [result for result in found if _measured(result) == size]
    if whose != BASELINE:
        asked = [result for result in asked if MEMORY in result["training"] and _wiring(result) == wiring]
    scores = [result["figures"]["bleu"].get(whose, {}).get(part) for result in asked]
    known = [score["score"] for score in scores if score is not None]
    published = PAPER[whose][1 if part == FULL else 2]
    return f"{known[-1]:.2f}" if known else "–" if published is None else "not measured"


def _any_of(result: dict[str, Any]) -> dict[str, Any]:
    """Return the training of the network with memory, or of the one without if there is no other."""
    training: dict[str, Any] = result["training"].get(MEMORY) or result["training"][BASELINE]
    return training


def _wiring(result: dict[str, Any]) -> str:
    """Return how the memory is wired: with --ask or --trust it is not the paper's way."""
    training = _any_of(result)
    return LEARNED if training["ask"] or training["trust"] else AS_THE_PAPER


def _measured(result: dict[str, Any]) -> str:
    """Return the size of the network, and whether it was decoded greedily."""
    return _sized(_any_of(result)) + (", greedy" if result["protocol"]["beam"]["width"] == 1 else "")


def _texts(found: list[dict[str, Any]]) -> str:
    texts = dict.fromkeys(training["trained_on"] for result in found for training in result["training"].values())
    return "; ".join(texts) or "not measured"


def _sized(training: dict[str, Any]) -> str:
    twice = ", attending twice" if training.get("reattend") else ""
    return f"{training['layers']} layers of {training['units']}, {training['pieces']} pieces{twice}"


def _trained(training: dict[str, Any]) -> str:
    begun = f", begun with {training['begun_with']}" if training["begun_with"] else ""
    return (
        f"{_sized(training)}, trained on "
        f"{training['trained_on']} with seed {training['seed']} for {training['steps']} steps of up to "
        f"{training['tokens']} target pieces{begun}, at commit {training['commit'][:12]}"
    )


def _number(score: float | None) -> str:
    return "–" if score is None else f"{score:.2f}"


def _row(*cells: str) -> list[str]:
    return ["| " + " | ".join(cells) + " |"]
