"""Folders of the experiments: where data is read from, and the cache of data that is slow to prepare."""

from __future__ import annotations

import os
from pathlib import Path

from torch import Tensor

from rarecall import storage


def cache() -> Path:
    """Return the cache folder, in $RARECALL_CACHE or ~/.cache/rarecall: one for each format of our files."""
    return _home() / f"format-{storage.VERSION}"


def _home() -> Path:
    return Path(os.environ.get("RARECALL_CACHE") or Path.home() / ".cache" / "rarecall")


def data(folder: str | os.PathLike[str] | None = None) -> Path:
    """Return the data folder: `folder` if given, else $RARECALL_DATA, else a folder in the cache."""
    return Path(folder or os.environ.get("RARECALL_DATA") or _home() / "data")


def keep(path: Path, tensors: dict[str, Tensor], *, kind: str, header: dict[str, str] | None = None) -> None:
    """Write a file to the cache. A failed write is ignored: the data is prepared again next time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        storage.write(path, tensors, kind=kind, header=header or {})
    except OSError:
        pass
