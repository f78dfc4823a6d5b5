"""Where the experiments find data, and where they keep what took long to make."""

from __future__ import annotations

import os
from pathlib import Path

from torch import Tensor

from rarecall import storage


def cache() -> Path:
    """Where decoded and fetched data is kept: RARECALL_CACHE, else ~/.cache/rarecall."""
    return Path(os.environ.get("RARECALL_CACHE") or Path.home() / ".cache" / "rarecall")


def data(folder: str | os.PathLike[str] | None = None) -> Path:
    """Where data is: the folder that is given, else RARECALL_DATA, else a folder in the user's cache."""
    return Path(folder or os.environ.get("RARECALL_DATA") or cache() / "data")


def keep(path: Path, tensors: dict[str, Tensor], *, kind: str, header: dict[str, str] | None = None) -> None:
    """Writes a file of the cache; one that cannot be written costs the next reader some seconds, no more."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        storage.write(path, tensors, kind=kind, header=header or {})
    except OSError:
        pass
