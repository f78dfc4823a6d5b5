"""The optional C++ extension: found or not, and said once."""

from __future__ import annotations

import functools
import logging
from types import ModuleType

from torch import Tensor


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


def pointer(tensor: Tensor, *shape: int) -> int:
    """What the extension takes for a tensor: where its numbers are. It must be contiguous, of this shape."""
    if tensor.shape != shape or not tensor.is_contiguous() or tensor.device.type != "cpu":
        raise ValueError(
            f"Got a tensor of shape {tuple(tensor.shape)} and strides {tensor.stride()} on {tensor.device}; expected "
            f"{shape}, contiguous, on the CPU."
        )
    return tensor.data_ptr()
