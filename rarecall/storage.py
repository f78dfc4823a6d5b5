"""Safe files: safetensors with a kind and a version, written beside and renamed."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import safetensors
import safetensors.torch
from torch import Tensor

VERSION = 1


def write(path: str | os.PathLike[str], tensors: dict[str, Tensor], *, kind: str, header: dict[str, str]) -> None:
    """Writes tensors so that a kill at any moment leaves the old file or the whole new one.

    Args:
        path: where; its folder must exist.
        tensors: what, by name.
        kind: what the file is, checked by `read`.
        header: more to keep beside the tensors.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"Cannot write {path}: there is no folder {path.parent}. Make it first.")
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    metadata = {"format": f"rarecall.{kind}", "version": str(VERSION)} | header
    try:
        contiguous = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
        safetensors.torch.save_file(contiguous, beside, metadata=metadata)
        _sync(beside)
        os.replace(beside, path)
        _sync(path.parent)
    finally:
        beside.unlink(missing_ok=True)


def read(path: str | os.PathLike[str], *, kind: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the header of a file of this kind."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            _check(path, metadata, kind)
            return {name: file.get_tensor(name) for name in file.keys()}, metadata  # noqa: SIM118
    except safetensors.SafetensorError as error:
        raise ValueError(
            f"{path} is not a whole safetensors file ({error}). It was cut short or is of another kind; "
            "take a copy of it that is whole."
        ) from error


def _check(path: Path, metadata: dict[str, str], kind: str) -> None:
    found, version = metadata.get("format", "none"), metadata.get("version", "")
    if found != f"rarecall.{kind}":
        raise ValueError(f"{path} has the format {found!r}; expected 'rarecall.{kind}', as rarecall writes it.")
    if not version.isdecimal() or int(version) < 1:
        raise ValueError(f"{path} has the version {version!r}; expected a whole number, 1 or greater.")
    if int(version) > VERSION:
        raise ValueError(
            f"{path} has version {version} of the format; this rarecall reads up to {VERSION}. "
            "Install a newer rarecall."
        )


def _sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
