"""Who does a memory's arithmetic: torch, on any device and type, or the C++ extension, of float32 on a CPU.

A backend works on the buffers of one memory; `Memory` checks what comes, locks, and knows the order of events. Both
have the same operations, which `TorchBackend` describes: recall, loss, update, write and put; and two numbers: no slot
from `used` on is filled, and `filled` slots are.
"""

from __future__ import annotations

import functools
import logging
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

if TYPE_CHECKING:
    from rarecall.backend.native_backend import NativeBackend
    from rarecall.backend.torch_backend import TorchBackend
    from rarecall.memory import Memory

    Backend: TypeAlias = TorchBackend | NativeBackend

# What an update's noise is drawn from: a generator, the global one (None), or the drawn number itself.
Seed: TypeAlias = torch.Generator | int | None
# What changed: the slots touched, ascending, and their keys before, both only where they are asked for; and the values
# of filled slots that were written over.
Change: TypeAlias = tuple[Any, Any, list[int]]


@functools.cache
def extension() -> ModuleType | None:
    """Return the extension, or None where it was not built; one line of the log then says so, once."""
    try:
        import rarecall._native as native
    except ImportError as error:
        logging.getLogger("rarecall").warning(
            "rarecall runs without its C++ extension (%s): search is slower. To build it, install a C++ compiler "
            "and run: pip install --force-reinstall --no-deps rarecall",
            error,
        )
        return None
    return native


def draw(generator: Seed) -> Tensor:
    """Return the number that an update's noise follows from, () int64 on the CPU."""
    if isinstance(generator, int):
        return torch.tensor(generator)
    device = "cpu" if generator is None else generator.device
    return torch.empty((), dtype=torch.int64, device=device).random_(generator=generator).cpu()


def choose(memory: Memory) -> Backend:
    """Return the backend for a memory where it is now."""
    from rarecall.backend.native_backend import NativeBackend
    from rarecall.backend.torch_backend import TorchBackend

    native = memory.keys.device.type == "cpu" and memory.keys.dtype == torch.float32 and extension() is not None
    return NativeBackend(memory) if native else TorchBackend(memory)
