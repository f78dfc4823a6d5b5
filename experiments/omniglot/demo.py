"""python -m experiments.omniglot demo

Test the trained network on the test characters of Omniglot, none of which it has ever seen, as `rarecall demo` does.
"""

from __future__ import annotations

from pathlib import Path

import torch

from experiments.omniglot.data import Omniglot
from experiments.omniglot.episodes import as_input
from rarecall import Memory
from rarecall.demo.one_shot import SHOWINGS, Report, show_and_ask
from rarecall.models import weights


def run(data: Omniglot, out: Path, seed: int = 0, name: str = "omniglot") -> Report:
    """Show ten drawings of each test character in turn, classify the ten others, and write the image to `out`.

    Args:
        data: the data set.
        out: path of the image.
        seed: random seed of the order of characters and of the memory's updates.
        name: name of the weights.
    """
    network = weights.load(name)
    characters = data.characters("test")
    drawings = as_input(characters.drawings.transpose(0, 1).flatten(0, 1)).unflatten(0, (-1, len(characters)))
    shown = max(SHOWINGS)
    memory = Memory(network.key_size, capacity=shown * len(characters))  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(characters), generator=generator)  # otherwise the image would show one alphabet only
    drawings = drawings[:, order]
    return show_and_ask(memory, network, drawings[:shown], drawings[shown:], out, generator)
