"""Plots of training and of the memory's confidence and capacity."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from experiments import results
from experiments.plotting import STYLES, saved
from experiments.synthetic.table import PAPER


def draw(folder: str | os.PathLike[str], out: str | os.PathLike[str]) -> list[Path]:
    """Plot the results in `folder` to PNG files in `out`.

    The metrics of a run, `synthetic-*-training.jsonl`, give its training curves; results of networks with a memory give
    accuracy by confidence and accuracy by capacity.
    """
    folder, out = Path(folder), Path(out)
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for metrics in sorted(folder.glob("synthetic-*-training.jsonl")):
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
        paths.append(_save(out / f"{metrics.stem}.png", lambda axes, lines=lines: _training(axes, lines)))
    inside = {
        PAPER[result["model"]][0]: result["figures"]
        for result in results.read_all(folder, "synthetic")
        if result["preset"] == "paper" and "inside" in result["figures"]
    }
    if inside:
        paths.append(_save(out / "synthetic-confidence.png", lambda axes: _confidence(axes, inside)))
    if any(figures["by capacity"] for figures in inside.values()):
        paths.append(_save(out / "synthetic-capacity.png", lambda axes: _capacity(axes, inside)))
    if not paths:
        raise FileNotFoundError(f"There are no results of the synthetic task in {folder}. Train and evaluate first.")
    return paths


def _save(path: Path, plot: Any) -> Path:
    with saved(path) as [axes]:
        plot(axes)
        axes.set_ylabel("right, %")
        axes.set_ylim(0, 103)
    return path


def _training(axes: Any, lines: list[dict[str, float]]) -> None:
    with_memory = "slots" in lines[0]
    wanted = (
        ("first", "memory's answer, first digit" if with_memory else "output, first digit"),
        ("output_1" if with_memory else "", "output, first digit"),
        ("right", "training sequences of the level"),
        ("validation", "held-out sequences, all numbers and lengths"),
    )
    for style, (name, label) in zip(STYLES, wanted, strict=True):
        points = [(line["step"], 100 * line[name]) for line in lines if name in line]
        if points:
            axes.plot(*zip(*points, strict=True), label=label, **style)
    before = None
    for line in lines:
        level = (line["numbers"], line["longest"])
        if before is not None and level > before and line["numbers"].is_integer():
            axes.axvline(line["step"], color="lightgrey", linewidth=0.8)
        before = level
    axes.set_xlabel("step; grey: more numbers, or longer sequences")


def _confidence(axes: Any, inside: dict[str, Any]) -> None:
    for style, (title, figures) in zip(STYLES, inside.items(), strict=False):
        parts = [part for part in figures["inside"]["right by confidence"] if part["asked"]]
        axes.plot([part["from"] + 0.05 for part in parts], [part["mean"] for part in parts], label=title, **style)
    axes.set_xlabel("confidence of the memory in a digit")


def _capacity(axes: Any, inside: dict[str, Any]) -> None:
    for style, (title, figures) in zip(STYLES, inside.items(), strict=False):
        sizes = figures["by capacity"]
        if sizes:
            axes.plot([int(s) for s in sizes], [share["mean"] for share in sizes.values()], label=title, **style)
    axes.set_xscale("log")
    axes.set_xlabel("slots of the memory")
