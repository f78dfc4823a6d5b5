"""GNMT (Wu et al. 2016), a translation network, with or without memory.

The encoder and the decoder are those of `seq2seq`. One embedding of word pieces is shared by both languages: it embeds
the source, the target and the memory's answers, and its weights are those of the softmax. So the network can output an
answer of the memory even if this piece was very rare in training.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rarecall.memory import Memory
from rarecall.models.decoded import Decoded, settings_of
from rarecall.models.seq2seq import Decoder, Encoder


class GNMT(nn.Module):
    """Map a sentence to a sentence of any length.

    With a memory, the attention vector of each step is the query and the correct piece is the value.

    Args:
        symbols: number of word pieces, of both languages together.
        start, end: pieces before the first and after the last piece of a sentence.
        units: units of an LSTM layer, embedding dimension, and key dimension of the memory.
        layers: layers of the encoder and of the decoder.
        dropout: dropout of the layers' inputs.
        memory: a memory with `key_size=units`, or None.
        shortcut: add the embedded source to the encoder's output. GNMT does not. With it a small network learns to
            attend sooner, and the attention vector, which is the query, contains the source words themselves.
        ask: learn the query from the attention's output, the attention's input and the last layer's output (see
            `Decoder`). In the paper the query is the attention's output.
        trust: mix the memory's distribution into the output with learned weights (see `Trust`). In the paper a linear
            layer joins the embedded answer with the last layer's output.
        reattend: let the decoder's last layer query the input once more (see `Decoder`). GNMT does not.

    Example:
        >>> network = GNMT(symbols=100, start=1, end=2, units=32, layers=3, memory=Memory(key_size=32, capacity=1000))
        >>> source, target = torch.randint(3, 100, (8, 13)), torch.randint(3, 100, (8, 11))
        >>> decoded = network(source, target)
        >>> decoded.logits.shape, decoded.recall.value.shape
        (torch.Size([8, 11, 100]), torch.Size([8, 11]))
    """

    def __init__(
        self,
        symbols: int,
        start: int,
        end: int,
        units: int = 1024,
        layers: int = 8,
        dropout: float = 0.2,
        memory: Memory | None = None,
        shortcut: bool = False,
        ask: bool = False,
        trust: bool = False,
        reattend: bool = False,
    ) -> None:
        super().__init__()
        self.symbols, self.start, self.end = symbols, start, end
        self.units, self.layers, self.dropout = units, layers, dropout
        self.shortcut, self.ask, self.trust, self.reattend = shortcut, ask, trust, reattend
        embedding = nn.Embedding(symbols, units)
        # Small, since these are also the weights of the softmax.
        nn.init.normal_(embedding.weight, std=units**-0.5)
        self.encoder = Encoder(symbols, units, layers, dropout=dropout, embedding=embedding, shortcut=shortcut)
        self.decoder = Decoder(
            *(symbols, units, layers, memory),
            dropout=dropout,
            embedding=embedding,
            start=start,
            ask=ask,
            trust=trust,
            reattend=reattend,
        )
        nn.init.zeros_(self.decoder.output.bias)
        for attention in (self.decoder.attention, self.decoder.reattention):
            if attention is not None:
                nn.init.orthogonal_(attention.match.weight)
        if self.decoder.join is not None:
            # Ignore the answer at first, so that a network trained without a memory keeps its output.
            with torch.no_grad():
                self.decoder.join.weight.copy_(torch.eye(units, 2 * units))
                self.decoder.join.bias.zero_()

    @property
    def memory(self) -> Memory | None:
        """The memory, or None."""
        return self.decoder.memory

    def settings(self) -> dict[str, object]:
        """Return the arguments that create such a network; "memory" holds the arguments of its memory, or None."""
        names = ("symbols", "start", "end", "units", "layers", "dropout", "shortcut", "ask", "trust", "reattend")
        return {name: getattr(self, name) for name in names} | {"memory": settings_of(self.memory)}

    def forward(
        self, source: Tensor, target: Tensor, exclude: Tensor | None = None, among: Tensor | None = None
    ) -> Decoded:
        """Decode all positions at once, with teacher forcing. `beam.search` decodes without a target.

        Args:
            source: (batch, length) int64, ending with the end piece.
            target: (batch, time) int64, ending with the end piece; anything may follow.
            exclude: (batch,) int64, source to exclude from the recall of each sentence.
            among: (n,) int64, pieces to compute logits for, (batch, time, n) (default: all).
        """
        encoded = self.encoder(source)
        before = torch.cat((torch.full_like(target[:, :1], self.start), target[:, :-1]), 1)
        steps = self.decoder(before, encoded, self.decoder.begin(encoded))
        sources = None if exclude is None else exclude[:, None].expand_as(before)
        return Decoded(*self.decoder.speak(steps.states, steps.read, sources, among))
