"""Approximate search that follows the keys, and chooses by itself how much to read."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from torch import Tensor

from rarecall import backend
from rarecall.search.base import Search
from rarecall.search.exact import LONGEST_KEY, multiply

if TYPE_CHECKING:
    from rarecall.memory import Memory

SMALL = 8192  # keys: up to this many, reading them all is as fast as reading lists
MANY = 2**20  # keys: from this many on, lists are shorter, and a query meets only those of the nearest regions


class AutoSearch(Search):
    """Reads inverted lists of keys: as many as find the nearest key with the wanted probability.

    Similar keys stand in a list. A query compares itself with the lists' centroids and reads the nearest lists. A key
    that changes moves to the list of the nearest centroid, centroids are the means of their keys at all times, and
    lists are split and dissolved as they grow long or short: nothing is ever trained, and a change costs the same at
    any time.

    How many lists a query reads is learned: now and then, at an update, one of its queries is searched for in all keys,
    and it is noted what it would have had to read to find the nearest key. Where that is too much, the search is exact.

    Lists hold two bytes of each number of a key: similarities are true to about 1e-5. A memory of up to 8192 keys, one
    on a GPU, and one without the C++ extension is searched exactly.

    Args:
        key_size: the key dimension.
        capacity: number of slots.
        target_recall: the share of queries whose nearest neighbour is found, 0 to 1 (exclusive).
    """

    def __init__(self, key_size: int, capacity: int, *, target_recall: float = 0.95) -> None:
        super().__init__()
        if not 0 < target_recall < 1:
            raise ValueError(
                f"AutoSearch got target_recall={target_recall}; expected more than 0 and less than 1. For 1, take "
                'search="exact".'
            )
        self.target_recall = target_recall
        # Where each key is and what was learned, of a memory that was loaded, copied or moved and has no index yet.
        self._exported: dict[str, Tensor] = {}

    def settings(self) -> dict[str, float]:
        return {"target_recall": self.target_recall}

    def forward(self, memory: Memory, query: Tensor, k: int, exclude: Tensor | None) -> Tensor:
        return multiply(memory, query, k, exclude)

    def rebuild(self, memory: Memory) -> None:
        self._exported = {}
        self.restore(memory)

    def restore(self, memory: Memory) -> None:
        native, self.native_index = memory.native, None
        if native is None or memory.key_size > LONGEST_KEY:
            return
        index = native.native.AutoIndex(memory.key_size, memory.capacity, self.target_recall, SMALL, MANY)
        if self._exported:
            with suppress(ValueError, KeyError):  # a state that cannot be: the lists are made anew
                index.restore(self._exported)
        self.native_index, self._exported = native.build(index), {}

    def _state(self) -> dict[str, Tensor]:
        extension = backend.extension()
        if self.native_index is None and not self._exported and extension is not None:
            return extension.AutoIndex(1, 1, self.target_recall, SMALL, MANY).export_state()  # of a memory without keys
        return self._exported if self.native_index is None else self.native_index.export_state()

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_exported": {name: tensor.clone() for name, tensor in self._state().items()}}

    def _apply(self, fn: Any, recurse: bool = True) -> Search:
        self._exported = self._state()
        return super()._apply(fn, recurse)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        for name, tensor in self._state().items():
            destination[prefix + name] = tensor

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        given = {name[len(prefix) :]: tensor for name, tensor in state_dict.items() if name.startswith(prefix)}
        unexpected_keys = args[3]
        if not all(isinstance(tensor, Tensor) and tensor.device.type == "cpu" for tensor in given.values()):
            unexpected_keys.extend(given)
            return
        self._exported = {name: tensor.detach().clone() for name, tensor in given.items()}
        self.native_index = self.followed = None
