"""python -m benchmarks.document

Writes the tables of `results/speed-*.json` into docs/speed.md, each after the comment that names its file.
"""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.report import table

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs" / "speed.md"


def filled(text: str) -> str:
    """The text with every table made anew from its result."""

    def replace(found: re.Match[str]) -> str:
        return f"<!-- {found[1]} -->\n\n{table(ROOT / found[1])}\n\n<!-- end -->"

    return re.sub(r"<!-- (results/\S+) -->.*?<!-- end -->", replace, text, flags=re.DOTALL)


if __name__ == "__main__":
    DOCUMENT.write_text(filled(DOCUMENT.read_text()))
