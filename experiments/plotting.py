"""Common plot style. Lines differ by dash pattern, not by colour, so plots are readable in greyscale."""

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
    """Yield `panels` axes, stacked vertically; on exit, add a grid and legends and write them to `path` as PNG."""
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
