"""Approximate search that follows the keys, and chooses by itself how much to read."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from torch import Tensor

from rarecall import backend
from rarecall.search.base import Search
from rarecall.search.exact import ExactSearch

if TYPE_CHECKING:
    from rarecall.memory import Memory

SMALL = 8192  # keys: up to this many, reading them all is as fast as reading lists
MANY = 2**20  # keys: from this many on, lists are shorter, and a query meets only those of the nearest regions


class AutoSearch(ExactSearch):
    """Reads inverted lists of keys: as many as find the nearest key with the wanted probability.

    A query reads the lists with the nearest centroids. A key that changes moves to another list, centroids are always
    the means of their keys, and lists are split and dissolved as they grow long or short: nothing is ever trained.
    How many lists a query reads is learned from queries of updates that are also searched for in all keys; where it
    would be too many, the search is exact, as it is up to 8192 keys, on a GPU and without the C++ extension.

    Lists hold two bytes of each number of a key: similarities are true to about 1e-5.

    Args:
        key_size: the key dimension.
        capacity: number of slots.
        target_recall: the share of queries whose nearest neighbour is found, 0 to 1 (exclusive).
    """

    def __init__(self, key_size: int, capacity: int, *, target_recall: float = 0.95) -> None:
        super().__init__(key_size, capacity)
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

    def rebuild(self, memory: Memory) -> None:
        self._exported = {}
        super().rebuild(memory)

    def restore(self, memory: Memory) -> None:
        super().rebuild(memory)
        if self.native_index is not None:
            self._exported = {}

    def new_index(self, extension: Any, memory: Memory) -> Any:
        index = extension.AutoIndex(memory.key_size, memory.capacity, self.target_recall, SMALL, MANY)
        if self._exported:
            with suppress(ValueError, KeyError):  # a state that cannot be: the lists are made anew
                index.restore(self._exported)
        return index

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
