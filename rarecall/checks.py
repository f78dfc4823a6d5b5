"""Bad input raises before anything is changed, and says what came, what was expected and what to do."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

# How far the length of a key may be from 1: float32 rounds by less than 1e-6, half precision by less than 1e-3.
LENGTH_TOLERANCE = 2e-3
LATEST = 2**52  # updates: ages are compared as float64, which holds these exactly


def check_query(query: Tensor, key_size: int) -> None:
    """Expect numbers of a floating type, (..., key_size)."""
    if not query.is_floating_point():
        raise TypeError(f"Got a query of {query.dtype}; expected a floating type. Convert it: query.float().")
    shape = query.shape
    if not shape or shape[-1] != key_size:
        raise ValueError(
            f"Got a query of shape {tuple(shape)}; expected (..., {key_size}): its last dimension is the "
            "memory's key_size."
        )


def check_finite(bad: int) -> None:
    """Expect no nan and no infinity in queries or keys; bad: how many numbers are."""
    if bad:
        raise ValueError(
            f"Got vectors with {bad} numbers that are nan or infinite; expected finite ones. Look for the layer that "
            "made them."
        )


def check_ids(name: str, ids: Tensor, shape: torch.Size, at_least: int) -> None:
    """Expect integers of this shape, none less than `at_least`."""
    dtype = ids.dtype
    if dtype != torch.int64 and (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool):
        raise TypeError(f"Got {name} of {dtype}; expected integers.")
    if ids.shape != shape:
        raise ValueError(
            f"Got {name} of shape {tuple(ids.shape)}; expected {tuple(shape)}, one for each query: the query's shape "
            "without its last dimension."
        )
    if ids.numel() and int(ids.min()) < at_least:
        raise ValueError(f"Got {name} with {int(ids.min())} in it; expected {at_least} or greater.")


def check_mask(mask: Tensor, shape: torch.Size) -> None:
    """Expect booleans of this shape."""
    if mask.dtype != torch.bool or mask.shape != shape:
        raise ValueError(
            f"Got a mask of {mask.dtype} and shape {tuple(mask.shape)}; expected torch.bool and {tuple(shape)}, True "
            "where a query takes part."
        )


def check_room(missed: int, capacity: int, zeros: int) -> None:
    """Expect no zero vectors, and room for the examples that need a slot of their own."""
    if zeros:
        raise ValueError(
            f"Got {zeros} zero vectors to store; a zero vector has no direction. Leave them out, in an update by mask=."
        )
    if missed > capacity:
        raise ValueError(
            f"Got {missed} examples that need a slot of their own, but the memory has {capacity} slots. Make smaller "
            "batches, or a memory of greater capacity."
        )


class OutOfStep(Exception):
    """Buffers were edited by hand, loaded, copied or moved: the memory takes them up, and goes on."""


def refuse_out_of_step() -> None:
    """Raise where a backend or a search is not of the buffers as they are now."""
    raise OutOfStep


def refuse_edited_recall() -> None:
    """Raise where the tensors of a recall were changed since the memory made it."""
    raise ValueError(
        "This recall was edited: it names slots that the memory does not have, or values that they do not hold. Ask "
        "again: memory(query), and edit a clone of its tensors."
    )


def refuse_candidates(found: int, k: int, slot: int, capacity: int) -> None:
    """Raise where a search found too many slots for a query, or slots that are not there."""
    if found > k:
        raise ValueError(f"The search found {found} slots for each query; expected at most k = {k}.")
    raise ValueError(f"The search found slot {slot}; the memory has slots 0 to {capacity - 1}, and -1 stands for none.")


def warn_of_drift() -> None:
    """Warn where a memory of one process is used in a network that several ranks train."""
    network = DistributedDataParallel._active_ddp_module
    if network is not None and network.process_group.size() > 1:
        what = (
            "rank 0's slots are copied over the others'" if network.broadcast_buffers else "their memories drift apart"
        )
        warnings.warn(
            f"A memory inside DistributedDataParallel is each rank's own, and {what}: most of what they learn is lost. "
            "Make it one memory: rarecall.distributed.shard(memory, mesh), or replicate(memory, mesh).",
            stacklevel=2,
        )


def check_slots(slots: Mapping[str, Tensor], what: str) -> None:
    """Expect what a memory may hold in its slots.

    Args:
        slots: keys (capacity, key_size), values, sources, counts and times (capacity,), and now ().
        what: what to call them in an error, such as the name of a file.
    """
    values, times, now = slots["values"], slots["times"], slots["now"]
    if not 0 <= int(now) <= LATEST:
        raise ValueError(f"{what} has now={int(now)}; expected 0 to {LATEST} updates.")
    filled = values >= 0
    lengths = torch.linalg.vector_norm(slots["keys"], dim=1)
    wrong: dict[str, Any] = {
        "a value below -1": values < -1,
        "a source below -1": slots["sources"] < -1,
        "a time after now, or none in a filled slot": (times > now) | (filled != (times >= 0)) | (times < -1),
        "a count below 1 in a filled slot, or another than 0 in an empty one": (slots["counts"] > 0) != filled,
        "a negative count": slots["counts"] < 0,
        "a key of another length than 1": filled & ~((lengths - 1).abs() <= LENGTH_TOLERANCE),
    }
    for problem, where in wrong.items():
        if where.any():
            slot = int(where.nonzero()[0])
            raise ValueError(
                f"{what} has {problem}: slot {slot} has the value {int(values[slot])}, the source "
                f"{int(slots['sources'][slot])}, the count {int(slots['counts'][slot])}, the time {int(times[slot])} "
                f"and a key of length {float(lengths[slot]):.4g}, at update {int(now)}. A filled slot has a key of "
                "length 1, a value and a time of 0 or more and a count of 1 or more; an empty one has -1, -1 and 0."
            )
