"""python -m experiments.translation pack --weights runs/a/network.safetensors --slots 5000 --out small.safetensors

Write a trained network with only the newest slots of its memory: half a million keys are too large to publish.
`evaluate --refill` fills the memory again from the text.
"""

from __future__ import annotations

import os
from dataclasses import replace

from experiments.pack import keep_newest
from experiments.translation import networks


def pack(path: str | os.PathLike[str], slots: int, out: str | os.PathLike[str]) -> int:
    """Write a trained network with only the newest slots of its memory. Returns the number of slots kept."""
    trained = networks.read(path)
    if trained.network.memory is None:
        raise ValueError(f"{path} holds a network without a memory; expected one with a memory.")
    kept = keep_newest(trained.network.memory, slots)
    networks.save(replace(trained, run=trained.run | {"kept": kept}), out)
    return kept
