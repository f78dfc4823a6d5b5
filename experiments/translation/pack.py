"""python -m experiments.translation pack --weights runs/a/network.safetensors --slots 5000 --out small.safetensors

Write a trained network with only the newest slots of its memory: half a million keys are too large to publish.
`evaluate --refill` fills the memory again from the text. `--on FILE`, weights in the same folder, leaves out what that
file has: a network that was trained with --frozen shares all but what the memory adds with the one without memory.
"""

from __future__ import annotations

import os
from dataclasses import replace

from experiments.pack import keep_newest
from experiments.translation import networks


def pack(
    path: str | os.PathLike[str], slots: int, out: str | os.PathLike[str], on: str | os.PathLike[str] | None = None
) -> int:
    """Write a trained network with only the newest slots of its memory. Returns the number of slots kept.

    Args:
        path: file of the network with memory.
        slots: number of slots to keep.
        out: file to write.
        on: file of the network that it was trained on top of, frozen; its weights are left out.
    """
    trained = networks.read(path)
    if trained.network.memory is None:
        raise ValueError(f"{path} holds a network without a memory; expected one with a memory.")
    if on is not None and not trained.run["frozen"]:
        raise ValueError(f"{path} was not trained with --frozen, so it shares no weights with {on}. Leave out --on.")
    kept = keep_newest(trained.network.memory, slots)
    networks.save(replace(trained, run=trained.run | {"kept": kept}), out, on=on)
    return kept
