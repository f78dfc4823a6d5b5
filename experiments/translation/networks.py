"""The network that translates, its vocabulary, and the files that hold both."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.translation.vocabulary import END, START, Vocabulary
from rarecall import Memory, storage
from rarecall.models import weights
from rarecall.models.gnmt import GNMT

# Of a run: what makes its network.
SHAPES = ("units", "layers", "dropout", "capacity", "shortcut", "ask", "trust")


def make_network(symbols: int, run: Mapping[str, Any]) -> GNMT:
    """The network of a run, with a memory of so many slots, or with none where there are 0."""
    units, layers, dropout, capacity, shortcut, ask, trust = (run[name] for name in SHAPES)
    # Every target piece of a batch asks half a million keys: what approximate search is for.
    memory = Memory(units, capacity, search="auto") if capacity else None
    return GNMT(symbols, START, END, units, layers, dropout, memory, shortcut, ask, trust)


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained network.

    Attributes:
        network: ready to answer.
        vocabulary: that it was trained with.
        run: how it was trained.
        commit: of the code that trained it.
    """

    network: GNMT
    vocabulary: Vocabulary
    run: dict[str, Any]
    commit: str


def save(trained: Trained, path: str | os.PathLike[str]) -> None:
    """Writes network, memory, vocabulary and how it was trained to one file."""
    header = {"run": json.dumps(trained.run), "vocabulary": trained.vocabulary.to_text(), "commit": trained.commit}
    weights.save(trained.network, path, header=header)


def read(name: str | os.PathLike[str]) -> Trained:
    """What `save` wrote: a path, or the name of a file in weights/."""
    path = Path(name)
    if not path.is_file() and path.parent == Path("."):
        path = weights.FOLDER / f"{path.name}.safetensors"
    tensors, header = storage.read(path, kind="network")
    run = json.loads(header.get("run", "{}"))
    if "vocabulary" not in header or not run.keys() >= set(SHAPES):
        raise ValueError(f"{path} does not hold a network that translates; expected what its training wrote.")
    vocabulary = Vocabulary.from_text(header["vocabulary"])
    pieces = tensors.get("encoder.embedding.weight")
    if pieces is None or len(pieces) != len(vocabulary):
        raise ValueError(
            f"{path} holds weights for {'no' if pieces is None else len(pieces)} pieces and a vocabulary of "
            f"{len(vocabulary)}; expected as many. Take the file as its training wrote it."
        )
    network = make_network(len(vocabulary), run)
    weights.load_into(network, tensors, path)
    return Trained(network, vocabulary, run, header.get("commit", "unknown"))


def begin_with(network: GNMT, trained: Trained) -> None:
    """Gives a network the weights of a trained one; where that has no memory, the answers are not listened to yet."""
    before, after = trained.network.settings(), network.settings()
    differ = [name for name in ("symbols", "units", "layers", "shortcut") if before[name] != after[name]]
    if differ:
        told = ", ".join(f"{name} {before[name]} and not {after[name]}" for name in differ)
        raise ValueError(f"The network to begin with has {told}. Ask for the same, or begin with another.")
    if trained.network.memory is not None and network.memory is None:
        raise ValueError("The network to begin with listens to its memory. Ask for --memory, or begin with another.")
    # Its memory has the keys of another network by the end of the first steps; so it begins empty.
    network.load_state_dict(dict(trained.network.named_parameters()), strict=False)


def freeze(network: GNMT) -> None:
    """Leaves nothing to learn but what has to do with the memory: what to ask it, and how far to listen to it."""
    network.requires_grad_(False)
    for part in (network.decoder.ask, network.decoder.join, network.decoder.trust):
        if part is not None:
            part.requires_grad_(True)


def in_a_word(trained: Trained) -> str:
    """What a run says of the network that it began with."""
    run = trained.run
    told = f"{run['steps']} steps {'with' if run['capacity'] else 'without'} memory"
    return f"{told}, seed {run['seed']}, rate {run['rate']:g}"
