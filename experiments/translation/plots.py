"""Plots of training."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from experiments.plotting import STYLES, saved

PANELS = (
    ("loss", {"by_output": "loss of the output", "by_trust": "of both together", "by_memory": "of the memory"}),
    (
        "gain in log-likelihood",
        {"gain": "by the other sentences of an episode", "gain_on_development": "on the development set"},
    ),
    ("BLEU", {"bleu": "first sentences of the development set"}),
    (
        "share",
        {
            "memory_right": "memory's own answer is right",
            "confidence_right": "how sure it is when right",
            "confidence_wrong": "how sure it is when wrong",
        },
    ),
)


def draw(folder: str | os.PathLike[str], out: str | os.PathLike[str]) -> list[Path]:
    """Plot the metrics of each run, `translation-*-training.jsonl` in `folder`, to a PNG file in `out`."""
    folder, out = Path(folder), Path(out)
    found = sorted(folder.glob("translation-*-training.jsonl"))
    if not found:
        raise FileNotFoundError(f"There are no metrics of a training in {folder}. Copy those of a run there first.")
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for metrics in found:
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
        panels = [(label, names) for label, names in PANELS if any(name in line for line in lines for name in names)]
        paths.append(out / f"{metrics.stem}.png")
        with saved(paths[-1], len(panels)) as axes:
            for panel, (label, names) in zip(axes, panels, strict=True):
                _curves(panel, lines, names)
                panel.set_ylabel(label)
                if label != "loss":
                    panel.set_ylim(bottom=0)
            axes[-1].set_xlabel("step")
    return paths


def _curves(panel: Any, lines: list[dict[str, float]], names: dict[str, str]) -> None:
    for style, (name, label) in zip(STYLES, names.items(), strict=False):
        points = [(line["step"], line[name]) for line in lines if name in line]
        if points:
            panel.plot(*zip(*points, strict=True), label=label, **style)
