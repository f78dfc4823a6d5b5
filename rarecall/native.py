"""The optional C++ extension: found or not, and said once."""

from __future__ import annotations

import functools
import logging
import struct
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from rarecall._native import Slots
    from rarecall.memory import Memory


@functools.cache
def extension() -> ModuleType | None:
    """The extension, or None where it was not built; then one line of the log says so, once."""
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


def tensors_of(memory: Memory) -> tuple[Tensor, Tensor, Tensor]:
    """Keys, values and sources. As the memory's attributes they are ten times as slow: nn.Module takes its time."""
    buffers: dict[str, Any] = memory._buffers
    return buffers["keys"], buffers["values"], buffers["sources"]


def search_of(memory: Memory) -> Any:
    """Its search, as fast."""
    return memory._modules["search"]


def clock_of(memory: Memory) -> Any:
    """Its clock, as fast."""
    return memory._modules["clock"]


def slots_of(memory: Memory) -> Slots | None:
    """What the extension takes for a memory's slots, with their version as it is now.

    None where it cannot work on them: where it was not built, or the keys are not float32 on the CPU. What was found
    out is kept, since every step asks several times; a tensor put in the place of another is noticed.
    """
    known = memory.known_slots
    if known is None or not known.current(memory._buffers):
        memory.known_slots = known = _slots_of(memory)
    return known


def _slots_of(memory: Memory) -> Slots | None:
    tensors = tensors_of(memory)
    native = extension()
    if native is None or tensors[0].device.type != "cpu" or tensors[0].dtype != torch.float32:
        return None
    capacity = memory.capacity
    shapes = (capacity, memory.key_size), (capacity,), (capacity,)
    for tensor, dtype, shape in zip(tensors, (torch.float32, torch.int64, torch.int64), shapes, strict=True):
        if tensor.dtype != dtype or tensor.shape != shape or not tensor.is_contiguous() or not tensor.is_cpu:
            raise ValueError(
                f"Got a memory with {tensor.dtype} of shape {tuple(tensor.shape)} and strides {tensor.stride()} on "
                f"{tensor.device}; expected {dtype} of shape {shape}, contiguous, on the CPU."
            )
    slots: Slots = native.Slots(memory.key_size, *tensors)
    return slots


def usable(memory: Memory) -> bool:
    """Whether the extension can work on this memory: it was built, and the keys are float32 on the CPU."""
    return slots_of(memory) is not None


def known_slots_of(memory: Memory) -> Slots:
    """What `slots_of` told last, where the extension is known to work on them."""
    slots = memory.known_slots or slots_of(memory)
    if slots is None:
        raise RuntimeError("The C++ extension cannot work on this memory; ask usable(memory) first.")
    return slots


def loaded() -> ModuleType:
    """The extension, where it is known to be there."""
    native = extension()
    if native is None:
        raise RuntimeError("The C++ extension is missing; ask extension() first.")
    return native


def packed(*fields: int) -> bytes:
    """A struct of the extension: numbers of 64 bits, a tensor as its data_ptr(). Whoever packs it keeps the tensors."""
    return struct.pack(f"{len(fields)}Q", *fields)
