"""python -m experiments.intents table: our figures and baselines, from results/*.json."""

from __future__ import annotations

import os

from experiments.embedded.report import accuracies, of_kind, origins, rows, streams

TITLES = {"banking77": "BANKING77", "clinc150": "CLINC150"}
# Published test accuracies at 5 / 10 examples, BANKING77 and CLINC150; all fine-tuned, on more data than ours.
PUBLISHED = {
    "USE (Casanueva et al. 2020)": (76.3, 84.2, 87.8, 90.9),
    "DNNC (Zhang et al. 2020)": (80.4, 86.7, 91.0, 93.8),
    "CPFT (Zhang et al. 2021)": (80.9, 87.2, 92.3, 94.2),
    "ICDA (Lin et al. 2023)": (84.0, 89.8, 92.6, 94.8),
}


def table(folder: str | os.PathLike[str]) -> str:
    """Format all results in a folder as Markdown."""
    few, stream, train = (of_kind(folder, "intents", kind) for kind in ("few-shot", "stream", "train"))
    lines: list[str] = []
    if few:
        figures = few["figures"]
        cells = {
            f"{TITLES[data]}, {shots}": found["accuracy"] for data in figures for shots, found in figures[data].items()
        }
        lines += ["## Accuracy by examples of an intent", "", *accuracies(cells), ""]
        published = [[name, *map(str, (a, b, "", c, d, ""))] for name, (a, b, c, d) in PUBLISHED.items()]
        lines += [*rows(["published, fine-tuned", *cells], published), ""]
        body = [
            [f"{TITLES[data]}, {shots}", f"{found['calibration error']:.1f}"]
            for data in figures
            for shots, found in figures[data].items()
        ]
        lines += ["## Calibration", "", *rows(["", "expected calibration error, %"], body), ""]
        unknown = [
            [shots, f"{o['AUROC']:.3f}", f"{o['known answered at 0.5']:.1f}", f"{o['unknown refused at 0.5']:.1f}"]
            for shots, o in ((shots, found["unknown"]) for shots, found in figures["clinc150"].items())
        ]
        header = ["examples of an intent", "AUROC", "in scope and answered, %", "out of scope and refused, %"]
        lines += ["## Out of scope (CLINC150)", "", *rows(header, unknown), ""]
        taught = few["portions"]
        body = [[TITLES[data], *(f"{figure:.2f}" for figure in taught[data].values())] for data in taught]
        lines += ["## The same examples, 10 of an intent", "", *rows(["", *taught["clinc150"]], body), ""]
    if stream:
        lines += ["## Streams (CLINC150)", "", *streams(stream["figures"])]
    if train:
        for what in ("query projection", "attention"):
            columns = {
                f"{TITLES[data]}, {n}": found for data, of in train["figures"].items() for n, found in of[what].items()
            }
            names = list(next(iter(columns.values())))
            body = [[name, *(f"{found[name]:.1f}" for found in columns.values())] for name in names]
            lines += [f"## Training: {what}", "", *rows(["per cent right", *columns], body), ""]
    return "\n".join([*lines, *origins([few, stream, train])])
