"""How examples are kept: as bytes with a kind."""

from __future__ import annotations

import hashlib
import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rarecall.store.folder import canonical

KEEP = ("content", "reference")


def encode(example: Any, keep: str) -> tuple[str, bytes]:
    """Return the kind and the bytes of an example.

    With `keep="reference"`, a path and a number stay what they are, and of text, bytes and arrays only the SHA-256 is
    kept. Else a file is read, and comes back as its bytes.
    """
    if example is None:
        return "none", b""
    if isinstance(example, os.PathLike):
        path = Path(os.fspath(example))
        return ("path", str(path).encode()) if keep == "reference" else ("bytes", path.read_bytes())
    if isinstance(example, str):
        kind, content = "text", example.encode(errors="surrogatepass")
    elif isinstance(example, bytes | bytearray | memoryview):
        kind, content = "bytes", bytes(example)
    elif isinstance(example, np.ndarray | torch.Tensor):
        file = io.BytesIO()
        array = example.detach().cpu().numpy() if isinstance(example, torch.Tensor) else example
        np.save(file, np.ascontiguousarray(array), allow_pickle=False)
        kind, content = "array", file.getvalue()
    else:
        example = example.item() if isinstance(example, np.generic) else example
        try:
            kind, content = "json", canonical(example).encode()
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"Got an example of type {type(example).__name__}, which cannot be kept ({error}); expected text, "
                "bytes, a path, an array, or anything that JSON can hold. To keep no more than an id, pass the id as "
                "the example and its embedding as keys=."
            ) from error
        return kind, content
    return ("sha256", hashlib.sha256(content).digest()) if keep == "reference" else (kind, content)


def decode(kind: str, content: bytes) -> Any:
    """Return the example that `encode` was given, as far as it was kept."""
    if kind == "text":
        return content.decode(errors="surrogatepass")
    if kind == "path":
        return Path(content.decode())
    if kind == "array":
        return np.load(io.BytesIO(content), allow_pickle=False)
    if kind == "json":
        return json.loads(content)
    if kind == "sha256":
        return f"sha256:{content.hex()}"
    return content if kind == "bytes" else None
