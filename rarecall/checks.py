"""Bad input raises before anything is changed, and says what came, what was expected and what to do."""

from __future__ import annotations

import torch
from torch import Tensor


def check_query(query: Tensor, shape: torch.Size, key_size: int) -> None:
    """Expects numbers of a floating type, (..., key_size); shape: the query's."""
    if not query.is_floating_point():
        raise TypeError(f"Got a query of {query.dtype}; expected a floating type. Convert it: query.float().")
    if not shape or shape[-1] != key_size:
        raise ValueError(
            f"Got a query of shape {tuple(shape)}; expected (..., {key_size}): its last dimension is the "
            "memory's key_size."
        )


def check_finite(bad: int) -> None:
    """Expects that no numbers of a query are nan or infinite; bad: how many are."""
    if bad:
        raise ValueError(
            f"Got a query with {bad} numbers that are nan or infinite; expected finite ones. Look for the layer that "
            "made them."
        )


def check_ids(name: str, ids: Tensor, shape: torch.Size, at_least: int) -> None:
    """Expects integers of this shape, none less than `at_least`."""
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
    """Expects booleans of this shape."""
    if mask.dtype != torch.bool or mask.shape != shape:
        raise ValueError(
            f"Got a mask of {mask.dtype} and shape {tuple(mask.shape)}; expected torch.bool and {tuple(shape)}, True "
            "where a query takes part."
        )


def check_room(missed: int, capacity: int, zeros: int) -> None:
    """Expects that an update has no zero vectors, and room for the queries that need a slot of their own."""
    if zeros:
        raise ValueError(
            f"update got {zeros} zero vectors to store; a zero vector has no direction. Leave them out with mask=."
        )
    if missed > capacity:
        raise ValueError(
            f"update got {missed} queries that need a slot of their own, but the memory has {capacity} slots. Make "
            "smaller batches, or a memory of greater capacity."
        )
