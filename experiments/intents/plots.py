"""Plots of accuracy by the number of examples."""

from __future__ import annotations

import os
from pathlib import Path

from experiments.embedded.report import of_kind
from experiments.intents.table import TITLES
from experiments.plotting import STYLES, saved

LINES = {
    "blend": "rarecall, blend",
    "logistic regression, tuned": "logistic regression, tuned",
    "class means": "class means",
    "nearest": "nearest neighbour",
}


def draw(folder: str | os.PathLike[str], out: str | os.PathLike[str]) -> list[Path]:
    """Plot the results in `folder` to PNG files in `out`."""
    result = of_kind(folder, "intents", "few-shot")
    if result is None:
        raise FileNotFoundError(f"There are no results of intents in {folder}. Run evaluate first.")
    path = Path(out) / "intents-accuracy.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    with saved(path, panels=len(TITLES)) as panels:
        for axes, (data, title) in zip(panels, TITLES.items(), strict=True):
            figures = result["figures"][data]
            for style, (method, label) in zip(STYLES, LINES.items(), strict=True):
                points = [figures[shots]["accuracy"][method] for shots in figures]
                axes.plot(list(figures), points, label=label, marker="o", **style)
            axes.set_ylabel(f"{title}, right, %")
        panels[-1].set_xlabel("examples of an intent")
    return [path]
