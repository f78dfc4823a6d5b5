"""python -m experiments.omniglot table

Print the paper's table next to our results, from results/*.json.
"""

from __future__ import annotations

import os
from typing import Any

from experiments import results

COLUMNS = ("5-way 1-shot", "5-way 5-shot", "20-way 1-shot", "20-way 5-shot")
# The paper's first table, in per cent.
PAPER: dict[str, tuple[str, tuple[float | None, ...]]] = {
    "pixels": ("Pixels nearest neighbour", (41.7, 63.2, 26.7, 42.6)),
    "mann": ("MANN (no convolutions)", (82.8, 94.9, None, None)),
    "siamese": ("Convolutional Siamese net", (96.7, 98.4, 88.0, 96.5)),
    "matching": ("Matching Network", (98.1, 98.9, 93.8, 98.5)),
    "matching-fce": ("Matching Network, full context embeddings", (None, None, None, None)),
    "paper": ("ConvNet with memory", (98.4, 99.6, 95.0, 98.6)),
    "paper-distorted": ("ConvNet with memory, distortions in training", (None, None, None, None)),
    "paper-batchnorm": ("ConvNet with memory, distortions, batch normalisation", (None, None, None, None)),
    "paper-softmax": ("ConvNet with memory, softmax in training", (None, None, None, None)),
    "ours": ("Residual network with memory", (None, None, None, None)),
    "joined": ("Our network: two of these and the paper's, joined", (None, None, None, None)),
}


def table(folder: str | os.PathLike[str]) -> str:
    """Format all results in a folder as Markdown."""
    few_shot = {result["model"]: result for result in results.read_all(folder, "omniglot")}
    lines = ["## N-way K-shot", "", "Per cent; the paper's figure, then ours on upright and on turned characters.", ""]
    lines += _row("", *COLUMNS) + _row("---", *["---"] * len(COLUMNS))
    for model, (title, published) in PAPER.items():
        cells = []
        for column, figure in zip(COLUMNS, published, strict=True):
            ours = _figures(few_shot.get(model), column)
            cells.append(f"{'–' if figure is None else figure} / {ours}")
        preliminary = "note" in few_shot.get(model, {}).get("training", {})
        lines += _row(title + (" (preliminary, see below)" if preliminary else ""), *cells)
    within_lines = [""]
    for model, result in few_shot.items():
        within = result["figures"].get("within an alphabet")
        if within:
            figure = within["20-way 1-shot"]
            within_lines.append(f"- {_title(model)}, 20-way 1-shot within an alphabet: {_plus_minus(figure)}")
    lines += within_lines
    measured = results.read_all(folder, "omniglot lifelong")
    for result in measured:
        lines += ["", f"## Life-long: {_title(result['model'])}", "", lifelong_lines(result)]
    lines += ["", "## Where the figures come from", ""]
    for result in [*few_shot.values(), *measured]:
        lines.append(
            f"- `{result['command']}`, seed {result['seed']}, commit {result['commit'][:12]}, "
            f"split: {result['split']}{_trained(result.get('training', {}))}"
        )
    return "\n".join(lines)


def few_shot_lines(result: dict[str, Any]) -> str:
    """Format one result of `evaluate` as a table."""
    lines = _row(_title(result["model"]), *COLUMNS) + _row("---", *["---"] * len(COLUMNS))
    for turns in ("upright", "turned"):
        figures = result["figures"][turns]
        lines += _row(
            f"{result['characters'][turns]} classes, {turns}",
            *[_plus_minus(figures[c]) if c in figures else "–" for c in COLUMNS],
        )
    within = result["figures"].get("within an alphabet")
    if within:
        lines += _row("within an alphabet", "", "", _plus_minus(within["20-way 1-shot"]), "")
    return "\n".join(lines)


def lifelong_lines(result: dict[str, Any]) -> str:
    """Format one result of `lifelong` as tables."""
    figures = result["figures"]
    lines = _row("all at once", *figures["all at once"]) + _row("---", *["---"] * len(figures["all at once"]))
    lines += _row("accuracy", *[_plus_minus(figure) for figure in figures["all at once"].values()])
    growth = figures["stream"]["by classes learned"]
    lines += ["", *_row("classes learned one after the other", *growth), *_row("---", *["---"] * len(growth))]
    lines += _row("accuracy on all of them", *[f"{figure['mean']:.1f}" for figure in growth.values()])
    kept = figures["retention"]
    lags = list(kept["large enough"]["by updates since shown"])
    lines += ["", *_row("updates since shown once", *lags), *_row("---", *["---"] * len(lags))]
    for size in ("large enough", "too small"):
        row = kept[size]["by updates since shown"]
        lines += _row(f"{kept[size]['capacity']} slots, {size}", *[f"{row[lag]:.1f}" for lag in lags])
    tail = figures["long tail"]["by times seen"]
    lines += ["", *_row("times seen so far (Zipf)", *tail), *_row("---", *["---"] * len(tail))]
    lines += _row(
        "accuracy", *["–" if cell["accuracy"] is None else f"{cell['accuracy']:.1f}" for cell in tail.values()]
    )
    lines += _row(
        "confidence", *["–" if cell["confidence"] is None else f"{cell['confidence']:.2f}" for cell in tail.values()]
    )
    lines += _row("asked", *[str(cell["asked"]) for cell in tail.values()])
    lines.append("")
    for name, figure in figures["long tail"]["seen or never seen"].items():
        lines.append(f"- Seen or never seen: {name} {figure:.3f}")
    return "\n".join(lines)


def _figures(result: dict[str, Any] | None, column: str) -> str:
    if result is None:
        return "not trained"
    if column not in result["figures"]["upright"]:
        return "–"
    upright, turned = (result["figures"][turns][column]["mean"] for turns in ("upright", "turned"))
    return f"{upright:.1f} / {turned:.1f}"


def _title(model: str) -> str:
    return PAPER[model][0] if model in PAPER else model


def _plus_minus(figure: dict[str, float]) -> str:
    return f"{figure['mean']:.2f} ± {figure['interval']:.2f}"


def _trained(training: dict[str, Any]) -> str:
    if "note" in training:
        return f"; {training['note']}"
    if "of" in training:
        return "".join(_trained(of) for of in training["of"])
    if "steps" not in training:
        return ""
    begun = f", begun with {training['begun_with']}" if training.get("begun_with") else ""
    return f"; trained on {training['on']}, {training['steps']} steps, seed {training['seed']}{begun}"


def _row(*cells: str) -> list[str]:
    return ["| " + " | ".join(cells) + " |"]
