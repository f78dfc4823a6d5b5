"""The optional C++ extension: found or not, and said once."""

from __future__ import annotations

import functools
import logging
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
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


class Slots(NamedTuple):
    """The tensors of a memory's slots, and what the extension takes for them."""

    keys: Tensor
    values: Tensor
    sources: Tensor
    where: tuple[int, int, int]
    fields: tuple[int, int, int, int] | None


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


def slots_of(memory: Memory) -> tuple[int, int, int, int] | None:
    """What the extension takes for a memory's slots (keys, values, sources, key_size).

    None where it cannot work on them: where it was not built, or the keys are not float32 on the CPU. What was found
    out is kept, since every step asks several times; a tensor put in the place of another is noticed.
    """
    keys, values, sources = tensors_of(memory)
    where = keys.data_ptr(), values.data_ptr(), sources.data_ptr()
    if memory.known_slots is not None:
        known_keys, known_values, known_sources, known_where, fields = memory.known_slots
        if known_keys is keys and known_values is values and known_sources is sources and known_where == where:
            return fields
    fields = None
    if keys.device.type == "cpu" and keys.dtype == torch.float32 and extension() is not None:
        capacity, key_size = memory.capacity, memory.key_size
        fields = pointer(keys, capacity, key_size), pointer(values, capacity), pointer(sources, capacity), key_size
    memory.known_slots = Slots(keys, values, sources, where, fields)
    return fields


def usable(memory: Memory) -> bool:
    """Whether the extension can work on this memory: it was built, and the keys are float32 on the CPU."""
    return slots_of(memory) is not None


def fields_of(memory: Memory) -> tuple[int, int, int, int]:
    """What `slots_of` found when `usable` was asked last."""
    fields = slots_of(memory) if memory.known_slots is None else memory.known_slots.fields
    if fields is None:
        raise RuntimeError("The C++ extension cannot work on this memory; ask usable(memory) first.")
    return fields


def loaded() -> ModuleType:
    """The extension, where it is known to be there."""
    native = extension()
    if native is None:
        raise RuntimeError("The C++ extension is missing; ask extension() first.")
    return native


def pointer(tensor: Tensor, *shape: int) -> int:
    """What the extension takes for a tensor: where its numbers are. It must be contiguous, of this shape."""
    if tensor.shape != shape or not tensor.is_contiguous() or not tensor.is_cpu:
        raise ValueError(
            f"Got a tensor of shape {tuple(tensor.shape)} and strides {tensor.stride()} on {tensor.device}; expected "
            f"{shape}, contiguous, on the CPU."
        )
    return tensor.data_ptr()
