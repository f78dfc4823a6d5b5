"""python -m experiments.synthetic pack --weights runs/a/network.safetensors --slots 150000 --out small.safetensors

A memory that was trained with is full of keys that the network has long outgrown: slots are only written over when
there is no other. The newest are those that were written or confirmed in the last epochs.
"""

from __future__ import annotations

import json
import os

from experiments.pack import keep_newest
from experiments.synthetic.evaluate import network_of
from rarecall.models import weights


def pack(path: str | os.PathLike[str], slots: int, out: str | os.PathLike[str]) -> int:
    """Writes a trained network with only the newest slots of its memory; returns how many it keeps."""
    network, run = network_of(path)
    if network.memory is None:
        raise ValueError(f"{path} holds a network without a memory; there is nothing to leave out.")
    kept = keep_newest(network.memory, slots)
    commit = run.pop("commit")
    header = {"run": json.dumps(run | {"kept": kept}), "commit": commit}
    weights.save(network, out, header=header)
    return kept
