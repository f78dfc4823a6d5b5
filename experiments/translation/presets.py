"""Presets: the paper's network, and one that a CPU can train."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from experiments.translation.state import Run

PRESETS = {
    "paper": Run(
        pieces=32_000,
        units=1024,
        layers=8,
        capacity=500_000,
        steps=340_000,
        tokens=4096,
        rate=5e-4,
        dropout=0.2,
        longest=100,
    ),
    "cpu": Run(
        pieces=8_000,
        units=256,
        layers=2,
        capacity=500_000,
        steps=40_000,
        tokens=1280,
        rate=1e-3,
        dropout=0.1,
        shortcut=True,
        ask=True,
        trust=True,
        drawn=1_500,
        passage=100,
    ),
}


def make_run(preset: str, *, memory: bool, **chosen: Any) -> Run:
    """Return the settings of a run.

    Args:
        preset: a name in PRESETS.
        memory: whether it has a memory.
        chosen: fields of `Run` that replace the preset's, unless they are None.
    """
    run = replace(PRESETS[preset], **{name: value for name, value in chosen.items() if value is not None})
    return run if memory else replace(run, capacity=0, ask=False, trust=False, passage=0)
