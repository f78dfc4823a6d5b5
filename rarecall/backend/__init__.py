"""Who does a memory's arithmetic: torch, on any device and type, or the C++ extension, of float32 on a CPU."""

from __future__ import annotations

import functools
import logging
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

if TYPE_CHECKING:
    from rarecall.memory import Memory


@functools.cache
def extension() -> ModuleType | None:
    """Return the extension, or None where it was not built; one line of the log then says so, once."""
    try:
        from rarecall import _native
    except ImportError as error:
        logging.getLogger("rarecall").warning(
            "rarecall runs without its C++ extension (%s): search is slower. To build it, install a C++ compiler "
            "and run: pip install --force-reinstall --no-deps rarecall",
            error,
        )
        return None
    return _native


class Found(Protocol):
    """What n queries found, without gradient; tensors are made when they are asked for."""

    @property
    def query(self) -> Tensor:
        """(n, key_size): the queries made of length 1."""

    @property
    def inverse_lengths(self) -> Tensor:
        """(n,): by what each query was multiplied."""

    @property
    def slots(self) -> Tensor:
        """(n, k) int64, nearest first; -1 where there are fewer than k."""

    @property
    def similarities(self) -> Tensor:
        """(n, k); -inf where there is none."""

    @property
    def values(self) -> Tensor:
        """(n, k) int64; -1 where there is none."""

    @property
    def weights(self) -> Tensor:
        """(n, k): softmax of inverse temperature x similarities; 0 where there is none."""


class Backend(Protocol):
    """The rules on the buffers of one memory. `Memory` checks what comes, locks, and knows the order of events.

    Attributes:
        used: no slot from this one on is filled.
        filled: how many slots are.
    """

    used: int
    filled: int

    def __init__(self, memory: Memory) -> None: ...

    def rebuild(self) -> None:
        """Take up the slots as they are now."""

    def recall(self, query: Tensor, exclude: Tensor | None) -> Any:
        """Find the neighbours of queries, (n, key_size); exclude: (n,) int64."""

    def found(self, tensors: dict[str, Tensor], exclude: Tensor | None) -> Any:
        """Return `Found` of tensors named as its attributes."""

    def recall_gradient(
        self, found: Any, keys: Tensor, changed: tuple[Tensor, Tensor], of: tuple[Tensor | None, ...]
    ) -> Tensor:
        """Return the gradient of the queries, (n, key_size).

        Args:
            keys: (capacity, key_size), as they are now.
            changed: slots (m,), ascending, and their keys as they were, (m, key_size).
            of: the gradients of the normalised queries, of similarities and of weights, None for 0.
        """

    def loss(
        self, found: Any, target: Tensor, mask: Tensor | None, with_gradient: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Return the mean margin loss, a scalar, and its gradient by the queries, (n, key_size)."""

    def update(
        self,
        found: Any,
        target: Tensor,
        source: Tensor | None,
        mask: Tensor | None,
        generator: torch.Generator | None,
        keep: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """Confirm and write, in step with the search; return the slots touched, ascending, and, to keep, their old keys."""

    def write(
        self, keys: Tensor, values: Tensor, sources: Tensor | None, counts: Tensor | None, keep: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Write each key to a slot of its own; returns the same."""

    def erase(self, slots: Tensor, keep: bool) -> Tensor | None:
        """Empty filled slots, (n,), ascending; return their keys where they are to be kept."""


def choose(memory: Memory) -> Backend:
    """Return the backend for a memory where it is now."""
    from rarecall.backend.native_backend import NativeBackend
    from rarecall.backend.torch_backend import TorchBackend

    native = memory.keys.device.type == "cpu" and memory.keys.dtype == torch.float32 and extension() is not None
    return NativeBackend(memory) if native else TorchBackend(memory)
