"""Weights that the project's releases have, for an install without a checkout: fetched once, and checked."""

from __future__ import annotations

import hashlib
import os
import urllib.request
from pathlib import Path

RELEASES = "https://github.com/rarecall/rarecall/releases/download/weights"
# Bytes and SHA-256 of each file in weights/.
FILES = {
    "omniglot-paper-alone": (1_700_136, "c7a2361351416c9e36e129fe26094d125805277d51b679df4b3f5e6dcc541e41"),
    "omniglot-paper-distorted": (1_700_168, "bbbf05fdc4a296938c6807b9ec1fd25c0dacc37da125e9eb4f9110b5b79bce43"),
    "omniglot-paper": (1_700_104, "41452a8bfc2168675eda417264d5bdb15e64380a6b9809567c19c09c94cb6002"),
    "omniglot-residual-0": (4_051_232, "4a98b28a0eab66dfb2cbecc6b2a1ffea35f322ae663338619d12318be26be6ba"),
    "omniglot-residual-1": (4_051_200, "dd8ea57864b02f310ee2b0b3b27a596e9fa1d7feeb199a69c102ba5e8abf215f"),
    "synthetic-neural-gpu-memory": (116_074, "e9c56c091eb4c29b862e97ead5c004cbd82b92b0e9385da40bb072980623006d"),
    "synthetic-neural-gpu-memory-fixed": (116_162, "db1e82df5e7d2dc4f41692b555907d6382a990f8bde63105cd0a4337bffc5f06"),
    "synthetic-seq2seq-memory": (4_883_834, "7c9fb7c22222f1c9808d7f25adae74b5ba3389dfc39a44afc91186db55cc6b02"),
    "synthetic-seq2seq-memory-fixed": (4_883_867, "feca9235daa1fe885ba8efe1d89cf7af6a5a77ee449fdb416faa1ea116d9c430"),
    "translation-memory": (1_186_308, "ed723e745865aca109dd158494c901c9498ef614a1baa328ccd3a08bf7816079"),
    "translation": (26_390_240, "e91d48167cbbd8f6e06241611de80eded107103736d3519f83114d2fe5a84c89"),
}


def fetch(name: str) -> Path:
    """Return the file of published weights: from the cache, or from the project's releases, checked either way.

    The cache is in $RARECALL_CACHE or ~/.cache/rarecall. $RARECALL_WEIGHTS_URL names a mirror of the releases.
    """
    size, digest = FILES[name]
    home = Path(os.environ.get("RARECALL_CACHE") or Path.home() / ".cache" / "rarecall")
    path = home / "weights" / f"{name}-{digest[:16]}.safetensors"
    if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == digest:
        return path
    url = f"{os.environ.get('RARECALL_WEIGHTS_URL', RELEASES).rstrip('/')}/{name}.safetensors"
    try:
        with urllib.request.urlopen(url, timeout=30) as response:
            content = response.read(size + 1)
    except OSError as error:
        raise FileNotFoundError(
            f"The weights {name} ({size / 1e6:.1f} MB) are not here, and {url} cannot be reached ({error}). Connect to "
            "the internet, set RARECALL_WEIGHTS_URL to a mirror, or pass the path of the file."
        ) from error
    if len(content) != size or hashlib.sha256(content).hexdigest() != digest:
        raise ValueError(f"{url} is not the file that was published: its SHA-256 is not {digest}. Nothing was kept.")
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    beside.write_bytes(content)
    os.replace(beside, path)
    return path
