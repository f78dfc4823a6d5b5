"""python -m experiments.synthetic table

Print the paper's table next to our results, from results/*.json.
"""

from __future__ import annotations

import itertools
import os
from typing import Any

from experiments import results

# The paper's second table, in per cent.
PAPER: dict[str, tuple[str, float]] = {
    "hamming": ("Hamming nearest neighbour", 0.1),
    "seq2seq": ("Sequence-to-sequence with attention", 0.9),
    "neural-gpu": ("Extended Neural GPU", 12.2),
    "seq2seq with memory": ("Sequence-to-sequence with attention and memory", 35.2),
    "neural-gpu with memory": ("Extended Neural GPU with memory", 71.3),
}


def table(folder: str | os.PathLike[str]) -> str:
    """Format all results in a folder as Markdown."""
    found = results.read_all(folder, "synthetic")
    lines: list[str] = []
    for preset, anew in itertools.product(("paper", "small"), (False, True)):
        # Hamming is not trained, and stands in both.
        of_preset = {
            r["model"]: r for r in found if r["preset"] == preset and r.get("training", {}).get("anew", anew) == anew
        }
        if not of_preset.keys() - {"hamming"}:
            continue
        title = "The paper's task" if preset == "paper" else "The small task"
        setting = "surroundings drawn anew in each epoch" if anew else "the same examples in each epoch"
        lines += [f"## {title}, {setting}", "", "Fully correct test sequences, per cent.", ""]
        columns = ("", "the paper", "ours") if preset == "paper" else ("", "ours")
        lines += _row(*columns) + _row(*["---"] * len(columns))
        for model, (name, published) in PAPER.items():
            ours = plus_minus(of_preset[model]["figures"]["test"]) if model in of_preset else "not measured"
            lines += _row(name, *([str(published)] if preset == "paper" else []), ours)
        lines.append("")
        for model, result in of_preset.items():
            lines += [f"### {PAPER[model][0]}", "", lines_of(result), ""]
    lines += ["## Where the figures come from", ""]
    for result in found:
        lines.append(
            f"- `{result['command']}`, seed {result['seed']}, commit {result['commit'][:12]}{_trained(result)}"
        )
    return "\n".join(lines)


def lines_of(result: dict[str, Any]) -> str:
    """Format one result of `evaluate` as tables."""
    figures = result["figures"]
    lines = _row("fully correct", "test", *[name for name in figures if name.startswith("length")])
    lines += _row(*["---"] * lines[0].count(" | "), "---")
    lines += _row("", *[plus_minus(figures[name]) for name in figures if name == "test" or name.startswith("length")])
    seen = figures["by times seen"]
    lines += ["", *_row("number seen in training", *seen), *_row("---", *["---"] * len(seen))]
    lines += _row("fully correct", *[plus_minus(share) for share in seen.values()])
    lines += _row("test sequences", *[str(share["asked"]) for share in seen.values()])
    digits = figures["by digit"]
    places = [str(place) for place in range(1, len(digits["output"]) + 1)]
    lines += ["", *_row("digit", *places), *_row("---", *["---"] * len(places))]
    for name, shares in digits.items():
        lines += _row(name, *[f"{share:.1f}" for share in shares])
    if "inside" in figures:
        lines += ["", *_inside(figures["inside"])]
    if figures.get("by capacity"):
        sizes = figures["by capacity"]
        lines += ["", *_row("slots", *sizes), *_row("---", *["---"] * len(sizes))]
        lines += _row("fully correct", *[plus_minus(share) for share in sizes.values()])
    return "\n".join(lines)


def plus_minus(share: dict[str, Any]) -> str:
    """Format a percentage with its confidence interval."""
    return "–" if share["mean"] is None else f"{share['mean']:.1f} ± {share['interval']:.1f}"


def _inside(inside: dict[str, Any]) -> list[str]:
    common = inside["nearest"]
    lines = [*_row("has the same", *common), *_row("---", *["---"] * len(common))]
    for name, title in (("nearest", "nearest neighbour of a digit's query"), ("random", "random training example")):
        lines += _row(title, *[plus_minus(share) for share in inside[name].values()])
    sure = inside["confidence"]
    told = ", ".join(f"{value:.2f} when {name}" for name, value in sure.items() if value is not None)
    known = plus_minus(inside["same number where it was in training"])
    return [*lines, "", f"- The same number, where it was in training: {known}", f"- Mean confidence: {told}"]


def _trained(result: dict[str, Any]) -> str:
    training = result.get("training", {})
    if "steps" not in training:
        return ""
    surroundings = "drawn anew for each epoch" if training["anew"] else "fixed"
    if training.get("hide"):
        surroundings += f" and up to {training['hide']:.0%} of them hidden"
    begun = f", begun with {training['begun_with']}" if training.get("begun_with") else ""
    return (
        f"; trained with seed {training['seed']} for {training['steps']} steps of {training['batch']} sequences at "
        f"commit {training['commit'][:12]}, As and Bs {surroundings}{begun}"
    )


def _row(*cells: str) -> list[str]:
    return ["| " + " | ".join(cells) + " |"]
