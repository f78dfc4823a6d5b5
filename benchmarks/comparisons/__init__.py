"""One file a comparison: `run(settings, progress)` yields its rows, `COLUMNS` are those of its table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from benchmarks.comparisons import approximate, exact, lsh, memory, scaling, translation, update
from benchmarks.settings import Settings

Row = dict[str, Any]
Run = Callable[[Settings, Any], Iterator[Row]]

COMPARISONS: dict[str, ModuleType] = {
    "exact": exact,
    "approximate": approximate,
    "scaling": scaling,
    "lsh": lsh,
    "update": update,
    "memory": memory,
    "translation": translation,
}
