"""The rules by the C++ extension: one call for each operation."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from rarecall import backend

if TYPE_CHECKING:
    from rarecall._native import Found, Index
    from rarecall.memory import Memory


class NativeBackend:
    """See `Backend`. It keeps no pointer into the memory: every call hands over its buffers."""

    def __init__(self, memory: Memory) -> None:
        extension: Any = backend.extension()
        self.memory, self.native = memory, extension
        self.book = extension.Book()  # what follows from values and times
        with torch.inference_mode(False):
            self._drawn = torch.empty((), dtype=torch.int64)

    @property
    def used(self) -> int:
        return self.book.used

    @property
    def filled(self) -> int:
        return self.book.filled

    def rebuild(self) -> None:
        self.book.rebuild(self.memory._buffers)

    def recall(self, query: Tensor, exclude: Tensor | None) -> Found:
        memory, search = self.memory, self.memory._modules["search"]
        index, threads = search.index, torch.get_num_threads()
        buffers, k, inverse_temperature = memory._buffers, memory.k, memory.inverse_temperature
        if index is not None:
            return self.native.recall(self.book, buffers, index, query, exclude, k, inverse_temperature, threads)
        found = self.native.ask(query, exclude, memory.key_size, k)
        candidates = search.find(memory, found.query, exclude)
        self.native.rank(self.book, buffers, found, candidates.contiguous(), inverse_temperature, threads)
        return found

    def found(self, tensors: dict[str, Tensor], exclude: Tensor | None) -> Found:
        ordered = (
            tensors[name].contiguous()
            for name in ("query", "inverse_lengths", "slots", "similarities", "values", "weights")
        )
        return self.native.found_of(*ordered, exclude, self.memory.key_size, self.memory.k)

    def recall_gradient(
        self, found: Found, keys: Tensor, changed: tuple[Tensor, Tensor], of: tuple[Tensor | None, ...]
    ) -> Tensor:
        of = tuple(None if each is None else each.contiguous() for each in of)
        threads = torch.get_num_threads()
        return self.native.recall_gradient(keys, *changed, found, *of, self.memory.inverse_temperature, threads)

    def loss(
        self, found: Found, target: Tensor, mask: Tensor | None, with_gradient: bool
    ) -> tuple[Tensor, Tensor | None]:
        memory = self.memory
        return self.native.loss(self.book, memory._buffers, found, target, mask, memory.margin, with_gradient)

    def update(
        self,
        found: Found,
        target: Tensor,
        source: Tensor | None,
        mask: Tensor | None,
        generator: torch.Generator | None,
        keep: bool,
    ) -> tuple[Tensor, Tensor | None]:
        memory, draw = self.memory, partial(self._drawn.random_, generator=generator)
        result = self.native.update(
            *(self.book, memory._buffers, memory._modules["search"].index, found, target, source, mask),
            *(memory.age_noise, draw, keep, torch.get_num_threads()),
        )
        increment_version(memory._buffers.values())
        return result

    def write(
        self, keys: Tensor, values: Tensor, sources: Tensor | None, counts: Tensor | None, keep: bool
    ) -> tuple[Tensor, Tensor | None]:
        memory = self.memory
        result = self.native.write(
            *(self.book, memory._buffers, memory._modules["search"].index, keys, values, sources, counts),
            *(memory.age_noise, self._drawn.random_, keep, torch.get_num_threads()),
        )
        increment_version(memory._buffers.values())
        return result

    def erase(self, slots: Tensor, keep: bool) -> Tensor | None:
        memory, threads = self.memory, torch.get_num_threads()
        index = memory._modules["search"].index
        before = self.native.erase(self.book, memory._buffers, index, slots, keep, threads)
        increment_version(memory._buffers.values())
        return before

    def build(self, index: Index) -> Index:
        """Return an index of the extension that has taken up the slots as they are now."""
        index.rebuild(self.book, self.memory._buffers, torch.get_num_threads())
        return index
