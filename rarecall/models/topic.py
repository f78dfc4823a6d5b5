"""What a sentence is about, as a part of a memory's key."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Topic(nn.Module):
    """Map a sentence to a vector that is near those of sentences that share rare pieces with it.

    It is a random projection with signs (Achlioptas 2003) of the sentence's tf-idf vector, so the cosine of two topics
    is about that of the two tf-idf vectors. Nothing is learned but how many sentences of a text have each piece.

    Args:
        symbols: number of pieces.
        size: dimension of the vector. The cosine of unrelated sentences is off by about size ** -0.5.

    Shape:
        (batch, length) int64 -> (batch, size), of length 1

    Example:
        >>> topic = Topic(symbols=100, size=32)
        >>> topic.fit(torch.randint(100, (1000,)), torch.arange(0, 1001, 10))
        >>> topic(torch.randint(100, (8, 13))).shape
        torch.Size([8, 32])
    """

    signs: Tensor
    rarity: Tensor

    def __init__(self, symbols: int, size: int) -> None:
        super().__init__()
        # numpy promises the same numbers from this generator in all versions, so files need not hold them.
        signs = np.random.RandomState(0).randint(0, 2, (symbols, size))
        self.register_buffer("signs", torch.from_numpy(2.0 * signs - 1).float(), persistent=False)
        self.register_buffer("rarity", torch.ones(symbols))

    def fit(self, pieces: Tensor, starts: Tensor) -> None:
        """Count in how many sentences of a text each piece occurs.

        Args:
            pieces: (total number of pieces,) integers.
            starts: (n + 1,) int64: sentence i is pieces[starts[i]:starts[i + 1]].
        """
        symbols, count = len(self.rarity), len(starts) - 1
        sentence = torch.repeat_interleave(torch.arange(count), starts.diff())
        having = (sentence * symbols + pieces).unique() % symbols
        frequency = torch.bincount(having, minlength=symbols)
        self.rarity.copy_(((count + 1) / (frequency + 1)).log())

    def forward(self, sentences: Tensor) -> Tensor:
        return F.normalize(
            F.embedding_bag(sentences, self.signs, per_sample_weights=self.rarity[sentences], mode="sum")
        )
