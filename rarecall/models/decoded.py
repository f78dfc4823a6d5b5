"""What a network that writes sequences gave back."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

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
