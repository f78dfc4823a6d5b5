"""python -m experiments.omniglot demo

The trained network meets the test characters of Omniglot, none of which it has ever seen, as in `rarecall demo`.
"""

from __future__ import annotations

from pathlib import Path

import torch

from experiments.omniglot.data import Omniglot
from experiments.omniglot.episodes import as_input
from rarecall import Memory
from rarecall.demo.meeting import SHOWINGS, Meeting, meet
from rarecall.models import weights


def run(data: Omniglot, out: Path, seed: int = 0, name: str = "omniglot") -> Meeting:
    """Shows all test characters up to ten times and asks for ten other drawings of each; the picture goes to `out`.

    name: of the weights.
    """
    network = weights.load(name)
    characters = data.characters("test")
    drawings = as_input(characters.drawings.transpose(0, 1).flatten(0, 1)).unflatten(0, (-1, len(characters)))
    shown = max(SHOWINGS)
    memory = Memory(network.key_size, capacity=shown * len(characters))  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(characters), generator=generator)  # else the picture would be of one alphabet
    drawings = drawings[:, order]
    return meet(memory, network, drawings[:shown], drawings[shown:], out, generator)
