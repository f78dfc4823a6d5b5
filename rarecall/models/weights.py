"""Trained weights in safe files: half precision on the disk, float32 in use.

A memory in a network is saved with it: the filled slots, in their order, and their numbers in the smallest integers
that hold them. What its search keeps follows from the keys, and is left out. Weights that two parts of a network share
are saved once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rarecall import storage
from rarecall.memory import FIELDS, Memory
from rarecall.models.convnet import ConvNet
from rarecall.models.gnmt import GNMT
from rarecall.models.joined import Joined
from rarecall.models.neural_gpu import NeuralGPU
from rarecall.models.residual import ResidualNet
from rarecall.models.seq2seq import Seq2Seq


@runtime_checkable
class HasSettings(Protocol):
    """A network that says what makes another of the same shapes."""

    def settings(self) -> dict[str, object]:
        """The arguments of its class."""


NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "ConvNet": ConvNet,
    "GNMT": GNMT,
    "NeuralGPU": NeuralGPU,
    "ResidualNet": ResidualNet,
    "Seq2Seq": Seq2Seq,
}
FOLDER = Path(__file__).parents[2] / "weights"
# Networks of several files.
JOINED = {"omniglot": ("omniglot-residual-0", "omniglot-residual-1", "omniglot-paper")}


def save(network: nn.Module, path: str | os.PathLike[str], *, header: dict[str, str] | None = None) -> None:
    """Writes the network's parameters and buffers, rounded to half precision, with what makes its shapes."""
    settings = network.settings() if isinstance(network, HasSettings) else {}
    state = network.state_dict()
    shared = _shared(network)
    left_out = tuple(f"{prefix}search." for prefix in _memories(network))
    tensors = {
        name: _rounded(tensor)
        for name, tensor in state.items()
        if name not in shared and not (left_out and name.startswith(left_out))
    }
    for prefix, memory in _memories(network).items():
        filled = (memory.values >= 0).nonzero().squeeze(1)
        for name in FIELDS:
            tensors[prefix + name] = _smallest(tensors[prefix + name][filled])
    about = {"network": type(network).__name__, "settings": json.dumps(settings)}
    storage.write(path, tensors, kind="network", header=about | (header or {}))


def load(name: str | os.PathLike[str]) -> nn.Module:
    """A trained network, ready to answer.

    Args:
        name: of a file in weights/, such as "omniglot-paper", of several that are joined, "omniglot", or a path.
    """
    if name in JOINED:
        return Joined([load(part) for part in JOINED[str(name)]]).eval()
    path = Path(name)
    if not path.is_file() and path.parent == Path("."):
        path = FOLDER / f"{path.name}.safetensors"
    if not path.is_file():
        known = sorted([*JOINED, *(file.stem for file in FOLDER.glob("*.safetensors"))])
        raise FileNotFoundError(f"There are no weights {name}; expected a path or one of {known}.")
    tensors, header = storage.read(path, kind="network")
    kind = header.get("network", "none")
    if kind not in NETWORKS:
        raise ValueError(f"{path} holds weights of the network {kind!r}; expected one of {sorted(NETWORKS)}.")
    settings = json.loads(header["settings"])
    if settings.get("memory") is not None:
        settings["memory"] = Memory(**settings["memory"])
    network = NETWORKS[kind](**settings)
    load_into(network, tensors, path)
    return network


def load_into(network: nn.Module, tensors: dict[str, Tensor], path: str | os.PathLike[str]) -> None:
    """Fills a network with tensors that `save` wrote, and makes it ready to answer."""
    tensors = dict(tensors)
    state = network.state_dict()
    tensors |= {name: tensors[first] for name, first in _shared(network).items() if first in tensors}
    for prefix, memory in _memories(network).items():
        tensors |= {name: tensor for name, tensor in state.items() if name.startswith(f"{prefix}search.")}
        for name in FIELDS.keys() & {full.removeprefix(prefix) for full in tensors if full.startswith(prefix)}:
            rows, empty = tensors[prefix + name].to(state[prefix + name].dtype), state[prefix + name][:0]
            if len(rows) <= memory.capacity and rows.shape[1:] == empty.shape[1:]:
                tensors[prefix + name] = torch.cat([rows, state[prefix + name][len(rows) :]])
        if prefix + "keys" in tensors:
            # Half precision keeps three digits; the length of a key is 1 to more than that.
            tensors[prefix + "keys"] = F.normalize(tensors[prefix + "keys"], dim=-1)
    try:
        network.load_state_dict(tensors)
    except RuntimeError as error:
        raise ValueError(f"{path} holds weights of another network than {type(network).__name__}: {error}") from error
    network.eval()




def _memories(network: nn.Module) -> dict[str, Memory]:
    """The memories in a network, by the beginning of their tensors' names."""
    return {f"{name}.": module for name, module in network.named_modules() if isinstance(module, Memory)}


def _shared(network: nn.Module) -> dict[str, str]:
    """The further names of parameters that have several, and the first of each."""
    first: dict[int, str] = {}
    named = network.named_parameters(remove_duplicate=False)
    return {name: first[id(weight)] for name, weight in named if first.setdefault(id(weight), name) != name}


def _rounded(tensor: Tensor) -> Tensor:
    return tensor.half() if tensor.is_floating_point() else tensor


def _smallest(tensor: Tensor) -> Tensor:
    """Integers in the smallest type that holds them."""
    if tensor.is_floating_point() or tensor.numel() == 0:
        return tensor
    low, high = int(tensor.min()), int(tensor.max())
    for dtype in (torch.int8, torch.int16, torch.int32):
        if torch.iinfo(dtype).min <= low and high <= torch.iinfo(dtype).max:
            return tensor.to(dtype)
    return tensor
