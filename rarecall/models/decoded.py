"""What the sequence-to-sequence networks share."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from rarecall.memory import Memory
from rarecall.recall import Recall


@dataclass(frozen=True, eq=False)
class Decoded:
    """Output of a network for a batch of sequences.

    Attributes:
        logits: (batch, length, symbols).
        recall: recall of shape (batch, length), one per symbol; None without a memory.
    """

    logits: Tensor
    recall: Recall | None

    @property
    def output(self) -> Tensor:
        """The most likely symbol at each position, (batch, length) int64."""
        return self.logits.argmax(-1)


def settings_of(memory: Memory | None) -> dict[str, int | float] | None:
    """Return the arguments that create such a memory with exact search, `Memory(**settings)`; None for None."""
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


def hide(embedded: Tensor, hidden: Tensor | None) -> Tensor:
    """Set the embeddings of symbols, (..., d), to 0 where `hidden`, (...,) bool, is set."""
    return embedded if hidden is None else embedded.masked_fill(hidden[..., None], 0.0)
