"""Plots of accuracy by the number of photos."""

from __future__ import annotations

import os
from pathlib import Path

from experiments.embedded.report import of_kind
from experiments.intents.plots import LINES
from experiments.plotting import STYLES, saved


def draw(folder: str | os.PathLike[str], out: str | os.PathLike[str]) -> list[Path]:
    """Plot the results in `folder` to PNG files in `out`."""
    result = of_kind(folder, "groceries", "few-shot")
    if result is None:
        raise FileNotFoundError(f"There are no results of groceries in {folder}. Run evaluate first.")
    path = Path(out) / "groceries-accuracy.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    with saved(path) as [axes]:
        shots = [name for name in result["figures"] if name != "catalogue picture"]
        for style, (method, label) in zip(STYLES, LINES.items(), strict=True):
            points = [result["figures"][name]["accuracy"][method] for name in shots]
            axes.plot(shots, points, label=label, marker="o", **style)
        axes.set_xlabel("shop photos of a product")
        axes.set_ylabel("right, %")
    return [path]
