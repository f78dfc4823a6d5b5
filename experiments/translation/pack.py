"""python -m experiments.translation pack --weights runs/a/network.safetensors --slots 5000 --out small.safetensors

Half a million keys are too much for a file that is given away. `evaluate --refill` fills the memory again from the
text.
"""

from __future__ import annotations

import os
from dataclasses import replace

from experiments.pack import keep_newest
from experiments.translation import networks


def pack(path: str | os.PathLike[str], slots: int, out: str | os.PathLike[str]) -> int:
    """Writes a trained network with only the newest slots of its memory; returns how many it keeps."""
    trained = networks.read(path)
    if trained.network.memory is None:
        raise ValueError(f"{path} holds a network without a memory; there is nothing to leave out.")
    kept = keep_newest(trained.network.memory, slots)
    networks.save(replace(trained, run=trained.run | {"kept": kept}), out)
    return kept
