"""From what a user gives to what is kept: examples, their content, and keys of length 1."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rarecall.store.content import decode, encode
from rarecall.store.kept_memory import KeptMemory
from rarecall.store.slots import NOWHERE, Floats, Ints

PROBES, SAME_EMBEDDER = 3, 0.99  # kept examples that are embedded again, and how similar they must be


class Embedding:
    """The embedder of a folder.

    Args:
        embed: maps a list of examples to (n, key_size). None: examples are embeddings themselves, or come with keys.
        kept: whose settings say what is expected.
    """

    def __init__(self, embed: Callable[[list[Any]], Any] | None, kept: KeptMemory) -> None:
        self.embed, self._kept = embed, kept
        self.fingerprint = getattr(embed, "fingerprint", None)

    @property
    def name(self) -> str | None:
        """The name of the embedder."""
        if self.embed is None:
            return None
        named = getattr(self.embed, "name", None)
        kind = self.embed if hasattr(self.embed, "__qualname__") else type(self.embed)
        return str(named) if named else f"{kind.__module__}:{kind.__qualname__}"

    def examples(self, given: Any, keys: Any, many: bool = False) -> tuple[list[Any], bool]:
        """Return examples as a list, and whether there were many.

        Args:
            given: one or many.
            keys: their embeddings, or None.
            many: whether there are as many labels, so that any sequence but text and bytes is of examples.
        """
        if self.embed is None and keys is None:
            first = given[0] if isinstance(given, list | tuple) and given else given
            if isinstance(first, str | bytes | Path):
                taught_by = self._kept.settings.get("embedder") or "none so far"
                raise TypeError(
                    f"Got {type(first).__name__} without an embedder (that of the folder: {taught_by}). Pass one: "
                    "rarecall.open(folder, embed=...); or the embeddings of the examples, keys=...."
                )
            array = np.asarray(given.detach().cpu() if isinstance(given, Tensor) else given, np.float32)
            if array.ndim not in (1, 2):
                raise ValueError(f"Got embeddings of shape {array.shape}; expected (key_size,) or (n, key_size).")
            return ([array], False) if array.ndim == 1 else (list(array), True)
        if isinstance(given, list | tuple | set) or (many and not isinstance(given, str | bytes)):
            return list(given), True
        if (
            isinstance(given, np.ndarray) and given.ndim == 1 and given.dtype.kind in "UO"
        ):  # of texts; others are images
            return given.tolist(), True
        if hasattr(given, "tolist") and type(given).__module__.startswith("pandas"):
            return given.tolist(), True
        return [given], False

    def contents(self, examples: list[Any], keys: Any = None) -> list[tuple[str, bytes]]:
        """Return what is kept of examples; nothing of those that are their own embeddings."""
        if self.embed is None and keys is None:
            return [("none", b"")] * len(examples)
        return [encode(example, self._kept.settings["keep"]) for example in examples]

    def units(self, examples: list[Any], keys: Any = None) -> Floats:
        """Return embeddings of length 1, (n, key_size)."""
        if keys is None and self.embed is not None:
            with torch.no_grad():
                keys = self.embed(examples)
        elif keys is None:
            keys = np.stack(examples)
        keys = keys.detach().float().cpu().numpy() if isinstance(keys, Tensor) else np.asarray(keys, np.float32)
        keys = keys[None] if keys.ndim == 1 and len(examples) == 1 else keys
        size = self._kept.settings.get("key_size", keys.shape[-1] if keys.ndim else 0)
        if keys.shape != (len(examples), size) or size == 0:
            raise ValueError(f"Got embeddings of shape {keys.shape}; expected ({len(examples)}, {size or 'key_size'}).")
        wide = keys.astype(np.float64)
        lengths = np.sqrt(np.add.accumulate(wide * wide, axis=1)[:, -1:])
        if not np.isfinite(lengths).all():
            raise ValueError("Got embeddings that are nan or infinite; expected finite ones. Look at the embedder.")
        if not lengths.all():
            raise ValueError(f"Got {int((lengths == 0).sum())} embeddings that are all 0; they have no direction.")
        # What is of length 1 already, such as keys that were exported, keeps its bits.
        units: Floats = np.where(np.abs(lengths - 1) < 1e-6, keys, (wide / lengths).astype(np.float32))
        return units

    def find(self, example: Any) -> Ints:
        """Return the numbers of the examples that were taught with this content, or of this embedding."""
        key = None
        if self.embed is None and isinstance(example, list | tuple | np.ndarray | Tensor):
            examples, many = self.examples(example, None)
            if many:
                raise ValueError(f"Got {len(examples)} embeddings; expected one, or the examples' numbers: id=....")
            example, key = None, self.units(examples).tobytes()
        return self._kept.journal.find(*encode(example, self._kept.settings["keep"]), key)

    def check(self) -> None:
        """Refuse an embedder that gives other keys to what was taught."""
        kept = self._kept
        if self.embed is None or not len(kept.places):
            return
        taught_by, taught_fingerprint = kept.settings.get("embedder"), kept.settings.get("fingerprint")
        problem = None
        if self.fingerprint is not None and taught_fingerprint is not None:
            if self.fingerprint != taught_fingerprint:
                problem = f"its fingerprint is {self.fingerprint}, not {taught_fingerprint}"
        else:
            there = np.flatnonzero(kept.places.table[:, 1] != NOWHERE)[: 10 * PROBES]
            oldest = kept.journal.read_examples(there).values()
            probes = [each for each in oldest if each.kind not in ("none", "sha256", "json")][:PROBES]
            if probes:
                again = self.units([decode(each.kind, each.content) for each in probes])
                similar = min(float(unit @ each.key) for unit, each in zip(again, probes, strict=True))
                if similar < SAME_EMBEDDER:
                    problem = f"what it gives for a taught example has a similarity of {similar:.3f} to what was kept"
            elif taught_by is not None and taught_by != self.name:
                problem = "and no example was kept that could be compared"
        if problem:
            raise ValueError(
                f"{kept.folder} was taught with the embedder {taught_by}; {self.name} is another: {problem}. Open it "
                "with the embedder it was taught with, or export the examples and teach them to a new folder."
            )
