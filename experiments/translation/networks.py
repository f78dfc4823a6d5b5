"""The translation network, its vocabulary, and the files that hold both."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from experiments.translation.vocabulary import END, START, Vocabulary
from rarecall import Memory
from rarecall.models import weights
from rarecall.models.gnmt import GNMT

# Settings of a run that determine its network.
SHAPES = ("units", "layers", "dropout", "capacity", "shortcut", "ask", "trust", "reattend")


def make_network(symbols: int, run: Mapping[str, Any]) -> GNMT:
    """Return a new network with the settings of a run; without a memory if its capacity is 0."""
    units, layers, dropout, capacity, *choices = (run[name] for name in SHAPES)
    memory = make_memory(units, capacity) if capacity else None
    return GNMT(symbols, START, END, units, layers, dropout, memory, *choices)


def make_memory(units: int, capacity: int) -> Memory:
    """Return an empty memory for a network."""
    # Every target piece of a batch queries half a million keys, so the search is approximate.
    return Memory(units, capacity, search="auto")


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained network.

    Attributes:
        network: the network, in evaluation mode.
        vocabulary: its vocabulary.
        run: settings of its training.
        commit: commit of the code that trained it.
    """

    network: GNMT
    vocabulary: Vocabulary
    run: dict[str, Any]
    commit: str


def save(trained: Trained, path: str | os.PathLike[str], *, on: str | os.PathLike[str] | None = None) -> None:
    """Write network, memory, vocabulary and training settings to one file; what the file `on` has is left out."""
    header = {"run": json.dumps(trained.run), "vocabulary": trained.vocabulary.to_text(), "commit": trained.commit}
    weights.save(trained.network, path, header=header, on=on)


def read(name: str | os.PathLike[str]) -> Trained:
    """Read a file written by `save`, given its path or the name of a file in weights/."""
    path = Path(name)
    if not path.is_file() and path.parent == Path("."):
        path = weights.FOLDER / f"{path.name}.safetensors"
    tensors, header = weights.read(path)
    run = json.loads(header.get("run", "{}"))
    if "vocabulary" not in header or not run.keys() >= set(SHAPES):
        raise ValueError(f"{path} does not hold a translation network; expected a file written by its training.")
    vocabulary = Vocabulary.from_text(header["vocabulary"])
    pieces = tensors.get("encoder.embedding.weight")
    if pieces is None or len(pieces) != len(vocabulary):
        raise ValueError(
            f"{path} holds weights for {'no' if pieces is None else len(pieces)} pieces and a vocabulary of "
            f"{len(vocabulary)}; expected the same number. Use the file as its training wrote it."
        )
    network = make_network(len(vocabulary), run)
    weights.load_into(network, tensors, path)
    return Trained(network, vocabulary, run, header.get("commit", "unknown"))


def begin_with(network: GNMT, trained: Trained) -> None:
    """Copy the weights of a trained network.

    A memory or a second attention that it does not have does not influence the output yet. Layers that it does not have
    come on top and output 0 at first; they have residual connections.
    """
    before, after = trained.network.settings(), network.settings()
    differ = [name for name in ("symbols", "units", "shortcut") if before[name] != after[name]]
    if differ:
        told = ", ".join(f"{name} {before[name]} and not {after[name]}" for name in differ)
        raise ValueError(f"The network given by --from has {told}. Use the same settings, or another network.")
    if trained.network.layers > network.layers:
        raise ValueError(
            f"The network given by --from has {trained.network.layers} layers. Use --layers {trained.network.layers} "
            "or more, or another network."
        )
    if trained.network.reattend and not network.reattend:
        raise ValueError("The network given by --from attends twice. Use --reattend, or another network.")
    if trained.network.memory is not None and network.memory is None:
        raise ValueError("The network given by --from uses a memory. Use --memory, or another network.")
    with torch.no_grad():
        for half in (network.encoder, network.decoder):
            for layer in half.above[trained.network.layers - 1 :]:
                for weight in layer.parameters():
                    weight.chunk(4)[2].zero_()  # what the LSTM writes to its cell; torch's order is i, f, g, o
    # The memory starts empty: its keys would be outdated after the first steps.
    network.load_state_dict(dict(trained.network.named_parameters()), strict=False)


def freeze(network: GNMT) -> None:
    """Freeze all parameters except those that form the memory's query and combine its answer with the output."""
    network.requires_grad_(False)
    for part in (network.decoder.ask, network.decoder.join, network.decoder.trust):
        if part is not None:
            part.requires_grad_(True)


def in_a_word(trained: Trained) -> str:
    """Describe a trained network, for the settings of a run that is initialised with it."""
    run = trained.run
    told = f"{run['steps']} steps {'with' if run['capacity'] else 'without'} memory"
    return f"{told}, seed {run['seed']}, rate {run['rate']:g}"
