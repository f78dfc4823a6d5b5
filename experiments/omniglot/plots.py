"""Plots of the life-long measurements and of learning curves."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from experiments import results
from experiments.omniglot.table import PAPER
from experiments.plotting import STYLES, saved

# Panels of a learning curve: label, scale, and figures of `metrics.jsonl` with their labels.
PANELS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("loss", "linear", {"loss": "loss", "by_class": "softmax over classes", "by_memory": "of the memory"}),
    (
        "right in training, %",
        "linear",
        {
            "accuracy": "memory, nearest neighbour",
            "memory_accuracy": "memory, nearest neighbour",
            "class_accuracy": "softmax over classes",
            "batch_accuracy": "nearest in the batch",
            "second_time": "second time in an episode",
            "last_time": "last time in an episode",
        },
    ),
    ("20-way 1-shot, %", "linear", {"validation": "validation characters"}),
    ("classes", "log", {"window": "classes in the memory"}),
)
MARKED = tuple(style | {"marker": marker} for style, marker in zip(STYLES, "os^D", strict=True))


def draw(folder: str | os.PathLike[str], out: str | os.PathLike[str]) -> list[Path]:
    """Plot all life-long results and learning curves, on ranks too, in `folder` to PNG files in `out`.

    Of life-long results: stream, retention and long tail. A learning curve is a file `omniglot-*-training.jsonl`, the
    metrics of a run.
    """
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
    for metrics in sorted(Path(folder).glob("omniglot-*-training.jsonl")):
        paths.append(out / f"{metrics.stem}.png")
        _training(paths[-1], [json.loads(line) for line in metrics.read_text().splitlines()])
    on_ranks = results.read_all(folder, "omniglot-ranks")
    if on_ranks:
        paths.append(out / "omniglot-ranks.png")
        _ranks(paths[-1], {f"{run['ranks']} ranks" if run["ranks"] > 1 else "1 rank": run["curve"] for run in on_ranks})
    return paths


def _ranks(path: Path, curves: dict[str, list[dict[str, float]]]) -> None:
    block = 50  # steps of which a point of the loss is the mean
    with saved(path, 3) as axes:
        for style, (title, curve) in zip(STYLES, curves.items(), strict=False):
            blocks = [curve[start : start + block] for start in range(0, len(curve), block)]
            means = [sum(line["loss"] for line in each) / len(each) for each in blocks]
            measured = [(line["step"], line["validation"]) for line in curve if "validation" in line]
            axes[0].plot([each[-1]["step"] for each in blocks], means, label=title, **style)
            axes[1].plot([line["step"] for line in curve], [line["window"] for line in curve], label=title, **style)
            axes[2].plot(*zip(*measured, strict=True), label=title, **style)
        for panel, label in zip(axes, ("loss", "classes in the memory", "20-way 1-shot, %"), strict=True):
            panel.set_ylabel(label)
        axes[1].set_yscale("log")
        axes[-1].set_xlabel("step")


def _training(path: Path, lines: list[dict[str, float]]) -> None:
    measured = {name for line in lines for name in line}
    panels = [(label, scale, names) for label, scale, names in PANELS if measured & names.keys()]
    with saved(path, len(panels)) as axes:
        for panel, (label, scale, names) in zip(axes, panels, strict=True):
            share = 100 if label.startswith("right") else 1
            shown = [(name, title) for name, title in names.items() if name in measured]
            for style, (name, title) in zip(STYLES, shown, strict=False):
                points = [(line["step"], share * line[name]) for line in lines if name in line]
                panel.plot(*zip(*points, strict=True), label=title, **style)
            panel.set_yscale(scale)
            panel.set_ylabel(label)
        axes[-1].set_xlabel("step")


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
