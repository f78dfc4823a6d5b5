"""Trained weights in safe files: half precision on the disk, float32 in use."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from rarecall import storage
from rarecall.models.convnet import ConvNet
from rarecall.models.residual import ResidualNet


@runtime_checkable
class HasSettings(Protocol):
    """A network that says what makes another of the same shapes."""

    def settings(self) -> dict[str, object]:
        """The arguments of its class."""


NETWORKS: dict[str, Callable[..., nn.Module]] = {"ConvNet": ConvNet, "ResidualNet": ResidualNet}
FOLDER = Path(__file__).parents[2] / "weights"


def save(network: nn.Module, path: str | os.PathLike[str], *, header: dict[str, str] | None = None) -> None:
    """Writes the network's parameters and buffers, rounded to half precision, with what makes its shapes."""
    settings = network.settings() if isinstance(network, HasSettings) else {}
    tensors = {name: t.half() if t.is_floating_point() else t for name, t in network.state_dict().items()}
    about = {"network": type(network).__name__, "settings": json.dumps(settings)}
    storage.write(path, tensors, kind="network", header=about | (header or {}))


def load(name: str | os.PathLike[str]) -> nn.Module:
    """A trained network, ready to answer.

    Args:
        name: of a file in weights/, such as "omniglot", or a path.
    """
    path = Path(name)
    if not path.is_file() and path.parent == Path("."):
        path = FOLDER / f"{path.name}.safetensors"
    if not path.is_file():
        known = sorted(file.stem for file in FOLDER.glob("*.safetensors"))
        raise FileNotFoundError(f"There are no weights {name}; expected a path or one of {known}.")
    tensors, header = storage.read(path, kind="network")
    kind = header.get("network", "none")
    if kind not in NETWORKS:
        raise ValueError(f"{path} holds weights of the network {kind!r}; expected one of {sorted(NETWORKS)}.")
    network = NETWORKS[kind](**json.loads(header["settings"]))
    load_into(network, tensors, path)
    return network


def load_into(network: nn.Module, tensors: dict[str, Tensor], path: str | os.PathLike[str]) -> None:
    """Fills a network with tensors that `save` wrote, and makes it ready to answer."""
    try:
        network.load_state_dict(tensors)
    except RuntimeError as error:
        raise ValueError(f"{path} holds weights of another network than {type(network).__name__}: {error}") from error
    network.eval()
