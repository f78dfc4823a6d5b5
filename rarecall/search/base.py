"""The search protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rarecall import native_rules
from rarecall.native import loaded

if TYPE_CHECKING:
    from rarecall._native import Found
    from rarecall.memory import Memory


class Search(nn.Module):
    """How a memory finds the neighbours of a query.

    A search is a module, so that what it keeps in buffers is saved, copied and moved with the memory. The memory hands
    itself over at each call: a search reads `memory.keys`, `memory.values` (-1 in an empty slot) and `memory.sources`,
    of which only the first `memory.used` slots were ever written, and changes nothing in it.
    """

    def forward(self, memory: Memory, query: Tensor, k: int, exclude: Tensor | None) -> Tensor:
        """The slots nearest to each query.

        It is asked for at least one query in a memory of at least one filled slot. The memory scores and sorts what it
        gets, and drops empty and excluded slots from it; a search that knows about `exclude` offers others instead.

        Args:
            query: (n, key_size) normalised, without gradient.
            k: how many slots to find at the most.
            exclude: (n,) int64, the source whose slots the query must not find (-1: none), or None.

        Returns:
            (n, at most k) int64: distinct slots in any order, -1 where fewer were found.
        """
        raise NotImplementedError

    def found(self, memory: Memory, query: Tensor, exclude: Tensor | None) -> Found:
        """The neighbours of each query, where the extension works on the memory: what `forward` finds, sorted.

        Args:
            query: (n, key_size) float32, as it was asked, contiguous, without gradient.
            exclude: (n,) int64, contiguous, or None.
        """
        found = loaded().ask(memory.key_size, memory.k, query, exclude)
        native_rules.recall(found, self.slots(memory, found.query, exclude), memory)
        return found

    def slots(self, memory: Memory, query: Tensor, exclude: Tensor | None) -> Tensor:
        """What `forward` finds, in full precision; it is not asked where there is nothing to find."""
        if not query.shape[0] or not len(memory):
            return memory.values.new_empty((len(query), 0))
        if torch.is_autocast_enabled(query.device.type):
            with torch.autocast(query.device.type, enabled=False):
                return self(memory, query, memory.k, exclude)
        return self(memory, query, memory.k, exclude)

    def changed(self, memory: Memory, slots: Tensor) -> None:
        """Is called when the keys in `slots` ((n,) int64, distinct) were written, moved or emptied."""

    def updated(self, memory: Memory, slots: Tensor) -> None:
        """Is called instead after an update: each key in `slots` is a query now, or has moved towards one.

        It is a query that this search was asked for after the last change.
        """
        self.changed(memory, slots)

    def loaded(self, memory: Memory) -> None:
        """Is called when the memory's state was loaded; a search that keeps more than buffers makes it anew here."""

    def settings(self) -> dict[str, Any]:
        """What `__init__` takes besides `key_size` and `capacity`, to make an equal search when a file is loaded."""
        return {}
