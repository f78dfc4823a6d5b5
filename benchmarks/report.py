"""Results as JSON, and tables and plots made from it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.machine import commit, provenance
from benchmarks.settings import Settings

Row = Mapping[str, Any]


def write(path: Path, settings: Settings, title: str, columns: Mapping[str, str], rows: Sequence[Row]) -> None:
    """Writes the rows of a comparison with where they come from."""
    given = asdict(settings)
    old = given.pop("old")
    content = {
        "title": title,
        **provenance(),
        **({} if old is None else {"old_commit": commit(old)}),
        "seed": settings.seed,
        "settings": given,
        "columns": dict(columns),
        "rows": [
            {name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in row.items()}
            for row in rows
        ],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")


def table(path: Path) -> str:
    """The rows of a result as a table in Markdown."""
    content = json.loads(path.read_text())
    columns: dict[str, str] = content["columns"]
    cells = [[_show(row[name]) for name in columns] for row in content["rows"]]
    widths = [max(map(len, column)) for column in zip(columns.values(), *cells, strict=True)]

    def line(texts: Sequence[str]) -> str:
        return "| " + " | ".join(text.rjust(width) for text, width in zip(texts, widths, strict=True)) + " |"

    rule = "|" + "|".join("-" * (width + 1) + ":" for width in widths) + "|"
    machine = content["machine"]
    commits = content["commit"] + (f" against {content['old_commit']}" if "old_commit" in content else "")
    where = f"{machine['cpu']}, {content['settings']['threads']} threads, commit {commits}"
    return "\n".join([content["title"], where, "", line(list(columns.values())), rule, *map(line, cells)])


def _show(value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


# Told apart by marker and dash, so that a print in grey reads as well.
STYLES = ("o-", "s--", "^-.", "D:", "v-", "P--", "X-.", "*:")


def plot(
    path: Path, rows: Sequence[Row], x: str, y: str, by: str, *, labels: Mapping[str, str], log_x: bool = False
) -> None:
    """Draws one line for each value of `by`: y (on a logarithmic scale) against x."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 4.2), layout="constrained")
    names = sorted({str(row[by]) for row in rows})
    for number, name in enumerate(names):
        points = sorted((row[x], row[y]) for row in rows if str(row[by]) == name)
        grey = str(0.6 * number / max(len(names) - 1, 1))
        axes.plot(*zip(*points, strict=True), STYLES[number % len(STYLES)], color=grey, label=name)
    axes.set(xlabel=labels.get(x, x), ylabel=labels.get(y, y), yscale="log", xscale="log" if log_x else "linear")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
