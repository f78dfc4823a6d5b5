"""What plots have in common: they can be read in grey, since their lines differ by dashes and not by colour."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
from matplotlib import pyplot

STYLES = (
    {"color": "black", "linestyle": "-"},
    {"color": "black", "linestyle": "--"},
    {"color": "dimgrey", "linestyle": ":"},
    {"color": "dimgrey", "linestyle": "-."},
)


@contextmanager
def saved(path: Path, panels: int = 1) -> Iterator[list[Any]]:
    """Axes to draw on, one below the other; they are written to `path` as PNG with a grid and a legend."""
    figure, axes = pyplot.subplots(
        panels, figsize=(6, 4 if panels == 1 else 2.4 * panels), layout="constrained", squeeze=False, sharex=True
    )
    yield list(axes[:, 0])
    for panel in axes[:, 0]:
        panel.set_axisbelow(True)
        panel.grid(axis="y", color="lightgrey")
        panel.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
