"""Trained weights as safetensors files: half precision on disk, float32 in memory.

A memory in a network is saved with it: its filled slots in order, integers in the smallest type that holds them. The
state of its search is derived from the keys and left out. Shared weights are saved once. A network with a memory on top
of frozen weights may leave those to the file that has them.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rarecall import storage
from rarecall.memory import Memory
from rarecall.models.convnet import ConvNet
from rarecall.models.gnmt import GNMT
from rarecall.models.joined import Joined
from rarecall.models.neural_gpu import NeuralGPU
from rarecall.models.published import FILES, fetch
from rarecall.models.residual import ResidualNet
from rarecall.models.seq2seq import Seq2Seq
from rarecall.slots import FIELDS


@runtime_checkable
class HasSettings(Protocol):
    """A network that returns the arguments to create another of the same shapes."""

    def settings(self) -> dict[str, object]:
        """Return the arguments of its class."""


NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "ConvNet": ConvNet,
    "GNMT": GNMT,
    "NeuralGPU": NeuralGPU,
    "ResidualNet": ResidualNet,
    "Seq2Seq": Seq2Seq,
}
FOLDER = Path(__file__).parents[2] / "weights"
# Names of networks that consist of several files.
JOINED = {"omniglot": ("omniglot-residual-0", "omniglot-residual-1", "omniglot-paper")}


def save(
    network: nn.Module,
    path: str | os.PathLike[str],
    *,
    header: dict[str, str] | None = None,
    on: str | os.PathLike[str] | None = None,
) -> None:
    """Write the network's parameters and buffers, rounded to half precision, and the arguments to create it.

    Args:
        network: the network.
        path: the file.
        header: more to write to its header.
        on: a file of weights in the same folder that has some of the tensors already, e.g. of the network without
            memory. They are left out here and read from there, so the two files belong together.
    """
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
    if on is not None:
        beneath, _ = storage.read(on, kind="network")
        known = {name for name in tensors.keys() & beneath.keys() if torch.equal(tensors[name], beneath[name])}
        tensors = {name: tensor for name, tensor in tensors.items() if name not in known}
        about["on"] = json.dumps({"name": Path(on).stem, "sha256": _digest(Path(on))})
    storage.write(path, tensors, kind="network", header=about | (header or {}))


def load(name: str | os.PathLike[str]) -> nn.Module:
    """Load a trained network, in evaluation mode.

    Args:
        name: of published weights, e.g. "omniglot-paper", or of several joined ones, "omniglot"; or a path. They are
            in a checkout; an install fetches them once from the project's releases, and checks them.
    """
    if name in JOINED:
        return Joined([load(part) for part in JOINED[str(name)]]).eval()
    path = Path(name)
    if not path.is_file() and path.parent == Path("."):
        path = FOLDER / f"{path.name}.safetensors"
    if not path.is_file():
        if path.stem not in FILES or path.parent != FOLDER:
            raise FileNotFoundError(
                f"There are no weights {name}; expected a path or one of {sorted([*JOINED, *FILES])}."
            )
        path = fetch(path.stem)
    tensors, header = read(path)
    kind = header.get("network", "none")
    if kind not in NETWORKS:
        raise ValueError(f"{path} holds weights of the network {kind!r}; expected one of {sorted(NETWORKS)}.")
    settings = json.loads(header["settings"])
    if settings.get("memory") is not None:
        settings["memory"] = Memory(**settings["memory"])
    network = NETWORKS[kind](**settings)
    load_into(network, tensors, path)
    return network


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors of a file written by `save`, together with those that it leaves to another, and its header."""
    tensors, header = storage.read(path, kind="network")
    if "on" not in header:
        return tensors, header
    on = json.loads(header["on"])
    beneath = Path(path).with_name(f"{on['name']}.safetensors")
    if not beneath.is_file() and on["name"] in FILES:
        beneath = fetch(on["name"])
    if not beneath.is_file() or _digest(beneath) != on["sha256"]:
        raise ValueError(
            f"{path} needs {beneath} beside it, with the SHA-256 {on['sha256']}: it holds the rest of the weights. "
            "Copy both files together."
        )
    return storage.read(beneath, kind="network")[0] | tensors, header


def load_into(network: nn.Module, tensors: dict[str, Tensor], path: str | os.PathLike[str]) -> None:
    """Load tensors written by `save` into a network, and set it to evaluation mode."""
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
            # Half precision has three digits; keys must have norm 1 to more than that.
            tensors[prefix + "keys"] = F.normalize(tensors[prefix + "keys"], dim=-1)
    try:
        network.load_state_dict(tensors)
    except RuntimeError as error:
        raise ValueError(f"{path} holds weights of another network than {type(network).__name__}: {error}") from error
    network.eval()


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _memories(network: nn.Module) -> dict[str, Memory]:
    """Return the memories in a network, by the prefix of their tensors' names."""
    return {f"{name}.": module for name, module in network.named_modules() if isinstance(module, Memory)}


def _shared(network: nn.Module) -> dict[str, str]:
    """Return {other name: first name} of parameters that have several names."""
    first: dict[int, str] = {}
    named = network.named_parameters(remove_duplicate=False)
    return {name: first[id(weight)] for name, weight in named if first.setdefault(id(weight), name) != name}


def _rounded(tensor: Tensor) -> Tensor:
    return tensor.half() if tensor.is_floating_point() else tensor


def _smallest(tensor: Tensor) -> Tensor:
    """Convert integers to the smallest type that holds them."""
    if tensor.is_floating_point() or tensor.numel() == 0:
        return tensor
    low, high = int(tensor.min()), int(tensor.max())
    for dtype in (torch.int8, torch.int16, torch.int32):
        if torch.iinfo(dtype).min <= low and high <= torch.iinfo(dtype).max:
            return tensor.to(dtype)
    return tensor
