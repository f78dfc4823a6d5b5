"""python -m benchmarks.document

Writes the tables of `results/speed-*.json` into docs/speed.md, each after the comment that names its file, and draws
the plots of docs/speed/ from the same files.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from benchmarks.report import plot, table

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs" / "speed.md"
PLOTS = ROOT / "docs" / "speed"
LABELS = {
    "recall@1": "share of queries whose nearest key is found",
    "recall@k": "share of the k nearest keys that are found",
    "ms": "search and update of 16, ms",
    "size": "keys",
    "step_ms": "whole step, ms",
}


def filled(text: str) -> str:
    """The text with every table made anew from its result."""

    def replace(found: re.Match[str]) -> str:
        return f"<!-- {found[1]} -->\n\n{table(ROOT / found[1])}\n\n<!-- end -->"

    return re.sub(r"<!-- (results/\S+) -->.*?<!-- end -->", replace, text, flags=re.DOTALL)


def draw(results: Path, folder: Path) -> list[Path]:
    """Step time against recall for each workload, and against size; of the results that are there."""
    drawn = []
    folder.mkdir(exist_ok=True)
    approximate, scaling = results / "speed-approximate.json", results / "speed-scaling.json"
    if approximate.is_file():
        for row in {row["workload"]: row for row in json.loads(approximate.read_text())["rows"]}.values():
            for share in ("recall@1", "recall@k"):
                drawn.append(folder / f"{row['workload']}-{share.replace('@', '-at-')}.png")
                plot(drawn[-1], row["curves"], share, "ms", "search", labels=LABELS)
    if scaling.is_file():
        rows = json.loads(scaling.read_text())["rows"]
        named = [row | {"name": f"{row['workload']}, batch {row['batch']}"} for row in rows]
        drawn.append(folder / "size.png")
        plot(drawn[-1], named, "size", "step_ms", "name", labels=LABELS, log_x=True)
    return drawn


if __name__ == "__main__":
    DOCUMENT.write_text(filled(DOCUMENT.read_text()))
    draw(ROOT / "results", PLOTS)
