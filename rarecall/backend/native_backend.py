"""The rules by the C++ extension: one call for each operation. See `TorchBackend` for what they do."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rarecall import backend

if TYPE_CHECKING:
    from rarecall.memory import Memory


class NativeBackend:
    """Keeps no pointer into the memory: every call hands over its buffers."""

    def __init__(self, memory: Memory) -> None:
        native: Any = backend.extension()
        self.memory, self.native = memory, native
        self.book = native.Book()  # what follows from values and times
        self.are_ids = native.are_ids
        with torch.inference_mode(False):
            self._drawn = torch.empty((), dtype=torch.int64)

    @property
    def used(self) -> int:
        return self.book.used

    @property
    def filled(self) -> int:
        return self.book.filled

    def is_in_step(self) -> bool:
        return self.book.is_of(self.memory._buffers)

    def rebuild(self) -> None:
        self.book.rebuild(self.memory._buffers)

    def build(self, index: Any) -> Any:
        """Return an index of the extension that has taken up the slots as they are now."""
        index.rebuild(self.book, self.memory._buffers, torch.get_num_threads())
        return index

    def recall(self, query: Tensor, exclude: Tensor | None, k: int | None = None) -> Any:
        memory, search = self.memory, self.memory._modules["search"]
        buffers, temperature, threads = memory._buffers, memory.inverse_temperature, torch.get_num_threads()
        k = memory.k if k is None else k
        if search.native_index is not None:
            return self.native.recall(self.book, buffers, search.native_index, query, exclude, k, temperature, threads)
        found = self.native.ask(query, exclude, memory.key_size, k)
        candidates = search.find(memory, found.query, k, exclude)
        self.native.rank(self.book, buffers, found, candidates.contiguous(), temperature, threads)
        return found

    def found(self, tensors: dict[str, Tensor], exclude: Tensor | None) -> Any:
        named = {name: tensor.contiguous() for name, tensor in tensors.items()}
        k = tensors["slots"].shape[1] if "slots" in tensors else self.memory.k
        return self.native.found_of(named if exclude is None else named | {"exclude": exclude}, self.memory.key_size, k)

    def merge(self, query: Tensor, inverse_lengths: Tensor, scored: tuple[Tensor, ...], exclude: Tensor | None) -> Any:
        found = self.found({"query": query, "inverse_lengths": inverse_lengths}, exclude)
        self.native.merge(found, *(tensor.contiguous() for tensor in scored), self.memory.inverse_temperature)
        return found

    def recall_gradient(
        self, found: Any, keys: Tensor, changed: tuple[Tensor, Tensor], of: tuple[Tensor | None, ...]
    ) -> Tensor:
        of = tuple(None if each is None else each.contiguous() for each in of)
        temperature, threads = self.memory.inverse_temperature, torch.get_num_threads()
        return self.native.recall_gradient(keys, *changed, found, *of, temperature, threads)

    def loss(self, found: Any, target: Tensor, mask: Tensor | None, with_gradient: bool) -> tuple[Tensor, Any]:
        memory = self.memory
        return self.native.loss(self.book, memory._buffers, found, target, mask, memory.margin, with_gradient)

    def mean(self, losses: Tensor, gradient: Tensor | None) -> tuple[Tensor, Tensor | None]:
        count = (losses >= 0).sum().clamp(min=1)
        total = losses.clamp(min=0).double().cumsum(0)[-1:].sum()  # one after the other, as the extension adds them
        return (total / count).float(), None if gradient is None else gradient * (1 / count.float())

    def dots(self, query: Tensor, keys: Tensor) -> Tensor:
        return self.native.dots(query.contiguous(), keys.contiguous(), self.memory.key_size)

    def read(self, found: Any, classes: tuple[Tensor, Tensor, Tensor] | None, **options: Any) -> tuple[Tensor, ...]:
        return self.native.read(found, classes, **options, threads=torch.get_num_threads())

    def newest(self, values: Tensor, exclude: Tensor | None) -> Tensor:
        return self.native.newest(self.book, self.memory._buffers, values, exclude)

    def update(
        self,
        found: Any,
        target: Tensor,
        source: Tensor | None,
        mask: Tensor | None,
        generator: backend.Seed,
        keep: bool,
    ) -> backend.Change:
        draw = self._drawn.random_ if generator is None else partial(backend.draw, generator)
        by_count, age_noise = self.memory.averaging == "count", self.memory.age_noise
        return self._change(self.native.update, found, target, source, mask, by_count, age_noise, draw, keep)

    def offers(self, confirmed: Tensor, count: int, seed: int) -> Tensor:
        memory = self.memory
        return self.native.offers(self.book, memory._buffers, confirmed, count, memory.age_noise, backend.draw(seed))

    def write(
        self,
        keys: Tensor,
        values: Tensor,
        sources: Tensor | None,
        counts: Tensor | None,
        generator: backend.Seed,
        keep: bool,
    ) -> backend.Change:
        draw = self._drawn.random_ if generator is None else partial(backend.draw, generator)
        return self._change(self.native.write, keys, values, sources, counts, self.memory.age_noise, draw, keep)

    def put(self, slots: Tensor, now: int, rows: dict[str, Tensor], keep: bool) -> backend.Change:
        return self._change(self.native.put, slots, now, rows, keep)

    def _change(self, change: Any, *args: Any) -> Any:
        buffers, index = self.memory._buffers, self.memory._modules["search"].native_index
        return change(self.book, buffers, index, *args, torch.get_num_threads())
