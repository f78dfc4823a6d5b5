"""What the networks that write sequences have in common."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from rarecall.memory import Memory
from rarecall.recall import Recall


@dataclass(frozen=True, eq=False)
class Decoded:
    """A batch of sequences, symbol by symbol.

    Attributes:
        logits: (batch, length, symbols).
        recall: (batch, length), what the memory was asked and answered before each symbol, or None without a memory.
    """

    logits: Tensor
    recall: Recall | None

    @property
    def output(self) -> Tensor:
        """(batch, length) int64: the likeliest symbol at each place."""
        return self.logits.argmax(-1)


def settings_of(memory: Memory | None) -> dict[str, int | float] | None:
    """What makes a memory of the same shape and rules, with exact search: `Memory(**settings)`; None of None."""
    if memory is None:
        return None
    return {
        "key_size": memory.key_size,
        "capacity": memory.capacity,
        "k": memory.k,
        "margin": memory.margin,
        "inverse_temperature": memory.inverse_temperature,
        "age_noise": memory.age_noise,
    }
