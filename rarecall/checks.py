"""Bad input raises before anything is changed, and says what came, what was expected and what to do."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel


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
