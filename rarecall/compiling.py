"""How a memory works in code that torch compiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


@torch.compiler.disable
def run_eagerly(method: Callable[..., Any], *args: Any) -> Any:
    """Call a method of a memory, or of its recall, from compiled code, without compiling it.

    The number of slots and misses depends on the data, which a compiled graph cannot hold: a compiled training step
    breaks here, runs the memory as it is, and goes on compiled. Gradients flow through as ever. Where nothing is
    compiled, a memory is spared what this costs.
    """
    return method(*args)
