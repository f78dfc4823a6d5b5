"""What a run measures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """Each comparison takes every combination of these that makes sense for it; some have `DEFAULTS` of their own."""

    workloads: tuple[str, ...] = ("clustered", "uniform")
    sizes: tuple[int, ...] = (500_000,)
    key_sizes: tuple[int, ...] = (128,)
    ks: tuple[int, ...] = (256,)
    batches: tuple[int, ...] = (1, 16, 128)
    steps: int = 20
    threads: int = 2
    seed: int = 0
    old: Path | None = None  # the checkout that `versus` compares with


# The columns of a table that say what a row is of.
SETTING = {"workload": "workload", "size": "keys", "key_size": "numbers", "k": "k", "batch": "batch"}
SHORT = Settings()
LONG = Settings(
    sizes=(100_000, 500_000, 1_000_000, 5_000_000),
    key_sizes=(64, 128, 256),
    ks=(256, 1),
)
