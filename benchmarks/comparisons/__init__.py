"""One file a comparison: `run(settings, progress)` yields its rows, `COLUMNS` are those of its table.

`steps(settings)` is how far its progress goes, and `DEFAULTS`, where it has any, are settings of its own.
"""

from __future__ import annotations

NAMES = (
    "exact",
    "approximate",
    "training",
    "streams",
    "latency",
    "versus",
    "scaling",
    "update",
    "memory",
    "translation",
    "distributed",
    "serve",
    "reading",
)
