"""The search protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from rarecall.memory import Memory


class Search(nn.Module):
    """How a memory finds the neighbours of a query.

    A search is a module, so that what it keeps in buffers is saved, copied and moved with the memory. It reads the
    memory that it is given at each call, `keys`, `values` (-1 in an empty slot) and `sources`, of which only the first
    `memory.used` slots may be filled. Nothing changes while `forward` runs; `changed`, `rebuild`, `restore` run alone.

    Attributes:
        native_index: what the C++ extension searches and keeps in step by itself; None: `forward` and `changed` do it.
        followed: the version of the memory that the search has followed to.
    """

    native_index: Any
    followed: int | None

    def __init__(self) -> None:
        super().__init__()
        self.native_index = self.followed = None

    def forward(self, memory: Memory, query: Tensor, k: int, exclude: Tensor | None) -> Tensor:
        """Return the slots nearest to each of at least one query, in a memory of at least one filled slot.

        The memory scores and sorts them, and drops empty and excluded ones: a search may offer others instead.

        Args:
            query: (n, key_size) normalised, without gradient.
            k: how many slots to find at the most.
            exclude: (n,) int64, the source whose slots the query must not find (-1: none), or None.

        Returns:
            (n, at most k) int64: distinct slots in any order, -1 where fewer were found.
        """
        raise NotImplementedError

    def changed(self, memory: Memory, slots: Tensor) -> None:
        """Called after the keys in `slots` ((n,) int64, ascending, distinct) were written, moved or emptied."""

    def rebuild(self, memory: Memory) -> None:
        """Called when any key may have changed, as by hand: take up all slots as they are now."""

    def restore(self, memory: Memory) -> None:
        """Called when memory and search were loaded, copied or moved together: the search's buffers fit the slots."""
        self.rebuild(memory)

    def settings(self) -> dict[str, Any]:
        """Return what `__init__` takes besides `key_size` and `capacity`, to make an equal search from a file."""
        return {}

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.settings().items())

    def find(self, memory: Memory, query: Tensor, k: int, exclude: Tensor | None) -> Tensor:
        """Return what `forward` finds; it is not asked where there is nothing to find."""
        if not len(query) or not len(memory):
            return memory.values.new_empty((len(query), 0))
        with torch.autocast(query.device.type, enabled=False):
            return self(memory, query, k, exclude)

    def __getstate__(self) -> dict[str, Any]:
        # An index is not copied: it is made anew from what the copy has in buffers. Processes share none of these.
        buffers = {name: None if tensor is None else tensor.clone() for name, tensor in self._buffers.items()}
        return super().__getstate__() | {"native_index": None, "followed": None, "_buffers": buffers}

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self.native_index = self.followed = None

    def _apply(self, fn: Any, recurse: bool = True) -> Search:
        super()._apply(fn, recurse)
        self.native_index = self.followed = None
        return self
