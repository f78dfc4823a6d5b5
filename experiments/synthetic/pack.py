"""python -m experiments.synthetic pack --weights runs/a/network.safetensors --slots 150000 --out small.safetensors

Write a trained network with only the newest slots of its memory. After training, a memory is full of outdated keys,
since slots are only overwritten when none is empty; the newest were written or confirmed in the last epochs.
"""

from __future__ import annotations

import json
import os

from experiments.pack import keep_newest
from experiments.synthetic.evaluate import network_of
from rarecall.models import weights


def pack(path: str | os.PathLike[str], slots: int, out: str | os.PathLike[str]) -> int:
    """Write a trained network with only the newest slots of its memory. Returns the number of slots kept."""
    network, run = network_of(path)
    if network.memory is None:
        raise ValueError(f"{path} holds a network without a memory; expected one with a memory.")
    kept = keep_newest(network.memory, slots)
    commit = run.pop("commit")
    header = {"run": json.dumps(run | {"kept": kept}), "commit": commit}
    weights.save(network, out, header=header)
    return kept
