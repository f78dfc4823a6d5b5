"""Safe files: safetensors with a kind, a version and a checksum, written beside and renamed."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor

VERSION = 2


def write(path: str | os.PathLike[str], tensors: Mapping[str, Tensor], *, kind: str, header: dict[str, str]) -> None:
    """Write tensors so that a kill at any moment leaves the old file or the whole new one.

    A file that is replaced keeps its mode, and a link stays a link to it. `read` checks the kind, and returns the rest.
    """
    path = Path(path).resolve()
    if not path.parent.is_dir():
        raise FileNotFoundError(f"Cannot write {path}: there is no folder {path.parent}. Make it first.")
    _remove_left_over(path)
    # In a folder of its own, since safetensors writes to a file of another name first, and a kill would leave that.
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    beside.mkdir(exist_ok=True)
    whole = beside / path.name
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    metadata = {"format": f"rarecall.{kind}", "version": str(VERSION)} | header
    metadata["checksum"] = _checksum(contiguous, metadata)
    try:
        safetensors.torch.save_file(contiguous, whole, metadata=metadata)
        # safetensors makes files that only their owner reads; a new folder has the mode that the process gives.
        os.chmod(whole, path.stat().st_mode & 0o7777 if path.exists() else beside.stat().st_mode & 0o666)
        sync(whole)
        os.replace(whole, path)
        sync(path.parent)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def read(path: str | os.PathLike[str], *, kind: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and the header of a file of this kind whose checksum is right."""
    path = Path(path)
    while True:
        if not path.is_file():
            raise FileNotFoundError(f"There is no file {path}.")
        opened = path.stat().st_ino
        try:
            return _read(path, kind)
        except ValueError:
            if path.is_file() and path.stat().st_ino == opened:
                raise
            # It was replaced while it was read: the new one is whole.


def _read(path: Path, kind: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            _check(path, metadata, kind)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (safetensors.SafetensorError, RuntimeError) as error:
        raise ValueError(
            f"{path} is not a whole safetensors file ({error}). It was cut short or is of another kind; "
            "take a copy of it that is whole."
        ) from error
    if metadata.pop("checksum", None) != _checksum(tensors, metadata):
        raise ValueError(f"{path} is damaged: its checksum is wrong. Take a copy of it that is whole.")
    return tensors, metadata


def _check(path: Path, metadata: dict[str, str], kind: str) -> None:
    found, version = metadata.get("format", "none"), metadata.get("version", "")
    if found != f"rarecall.{kind}":
        raise ValueError(f"{path} has the format {found!r}; expected 'rarecall.{kind}', as rarecall writes it.")
    if version != str(VERSION):
        raise ValueError(
            f"{path} has version {version!r} of the format; this rarecall reads version {VERSION}. Install the "
            "rarecall that wrote it, or write it again."
        )


def _checksum(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """SHA-256 of all names, types, shapes, numbers and metadata."""
    digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _remove_left_over(path: Path) -> None:
    """Remove what a killed process left when it wrote this file."""
    for other in path.parent.iterdir():
        found = re.fullmatch(re.escape(f".{path.name}.") + r"(\d+)\.tmp", other.name)
        if found and not _is_running(int(found[1])):
            shutil.rmtree(other, ignore_errors=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return process != os.getpid()  # a file of this process's number is of an earlier one


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
