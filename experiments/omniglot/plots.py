"""Plots of the life-long measurements."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from experiments import results
from experiments.omniglot.table import PAPER
from experiments.plotting import STYLES, saved

MARKED = tuple(style | {"marker": marker} for style, marker in zip(STYLES, "os^D", strict=True))


def draw(folder: str | os.PathLike[str], out: str | os.PathLike[str]) -> list[Path]:
    """Plot stream, retention and long tail of all life-long results in `folder` to PNG files in `out`."""
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    measured = {PAPER[r["model"]][0]: r["figures"] for r in results.read_all(folder, "omniglot lifelong")}
    if not measured:
        raise FileNotFoundError(
            f"There are no life-long results in {folder}. Run `python -m experiments.omniglot lifelong` first."
        )
    paths = [out / f"omniglot-{name}.png" for name in ("stream", "retention", "long-tail")]
    for path, plot in zip(paths, (_stream, _retention, _long_tail), strict=True):
        with saved(path) as [axes]:
            plot(axes, measured)
            axes.set_ylabel("accuracy, %")
            axes.set_ylim(0, 103)
    return paths


def _stream(axes: Any, measured: dict[str, Any]) -> None:
    for style, (title, figures) in zip(MARKED, measured.items(), strict=False):
        growth = figures["stream"]["by classes learned"]
        axes.plot([int(mark) for mark in growth], [figure["mean"] for figure in growth.values()], label=title, **style)
    axes.set_xlabel("classes learned one after the other, 15 drawings each")


def _retention(axes: Any, measured: dict[str, Any]) -> None:
    styles = iter(MARKED)
    for title, figures in measured.items():
        for size in ("large enough", "too small"):
            kept = figures["retention"][size]
            points = kept["by updates since shown"]
            label = f"{title}, {kept['capacity']} slots"
            axes.plot([int(lag) for lag in points], list(points.values()), label=label, **next(styles))
    axes.set_xscale("log")
    axes.set_xlabel("updates since a class was shown, once")


def _long_tail(axes: Any, measured: dict[str, Any]) -> None:
    fills = (("dimgrey", ""), ("white", "//"), ("lightgrey", ".."), ("white", "xx"))
    width = 0.8 / len(measured)
    names: list[str] = []
    for place, (title, figures) in enumerate(measured.items()):
        seen = {
            name: cell for name, cell in figures["long tail"]["by times seen"].items() if cell["accuracy"] is not None
        }
        names = list(seen)
        color, hatch = fills[place]
        left = [bar + place * width - 0.4 + width / 2 for bar in range(len(seen))]
        heights = [cell["accuracy"] for cell in seen.values()]
        axes.bar(left, heights, width, label=title, color=color, hatch=hatch, edgecolor="black")
    axes.set_xticks(range(len(names)), names)
    axes.set_xlabel("times seen so far; classes come by a Zipf law")
