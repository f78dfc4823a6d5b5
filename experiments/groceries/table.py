"""python -m experiments.groceries table: our figures and baselines, from results/*.json."""

from __future__ import annotations

import os

from experiments.embedded.report import accuracies, of_kind, origins, rows, streams


def table(folder: str | os.PathLike[str]) -> str:
    """Format all results in a folder as Markdown."""
    few, stream = of_kind(folder, "groceries", "few-shot"), of_kind(folder, "groceries", "stream")
    lines: list[str] = []
    if few:
        figures = few["figures"]
        lines += ["## Accuracy by shop photos of a product", ""]
        lines += [*accuracies({name: found["accuracy"] for name, found in figures.items()}), ""]
        errors = [["blend", *(f"{found['calibration error']:.1f}" for found in figures.values())]]
        lines += [*rows(["expected calibration error, %", *figures], errors), ""]
    if stream:
        lines += ["## Streams", "", *streams(stream["figures"])]
    return "\n".join([*lines, *origins([few, stream])])
