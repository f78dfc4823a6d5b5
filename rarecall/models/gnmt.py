"""GNMT, the network that translates, with or without memory.

The encoder and the decoder are those of `seq2seq`. Here they share one embedding of the words' pieces, which are the
same in both languages: it embeds the source, the target and the memory's answers, and is the weights of the softmax. So
what the memory answers can be said also where it is a piece that was hardly ever seen in training.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rarecall.memory import Memory
from rarecall.models.decoded import Decoded, settings_of
from rarecall.models.seq2seq import Decoder, Encoder


class GNMT(nn.Module):
    """Reads a sentence and writes one of any length.

    With a memory, the attention vector of each step is the query and the right piece the value.

    Args:
        symbols: pieces of words, of both languages.
        start, end: the pieces that stand before the first and after the last.
        units: in a layer of LSTMs, in an embedding, and numbers in a key of the memory.
        layers: of the encoder, and of the decoder.
        dropout: of what goes into a layer.
        memory: of `units` numbers a key, or None.
        shortcut: add the embedded source to the encoder's output. GNMT does not. A small network learns sooner where to
            look by it; and what the attention finds, by which the memory is asked, holds the words themselves.
        ask: learn what to ask the memory, from what the attention found, what it was asked, and the last layer's output
            (see `Decoder`). The paper asks by what the attention found alone.
        trust: mix what the memory says into the output, as far as it is trusted (see `Trust`). The paper joins the
            answer, embedded, with the last layer's output by a linear layer.

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
    ) -> None:
        super().__init__()
        self.symbols, self.start, self.end = symbols, start, end
        self.units, self.layers, self.dropout = units, layers, dropout
        self.shortcut, self.ask, self.trust = shortcut, ask, trust
        embedding = nn.Embedding(symbols, units)
        # Small enough for a softmax, whose weights these are as well.
        nn.init.normal_(embedding.weight, std=units**-0.5)
        self.encoder = Encoder(symbols, units, layers, dropout=dropout, embedding=embedding, shortcut=shortcut)
        self.decoder = Decoder(
            *(symbols, units, layers, memory),
            dropout=dropout,
            embedding=embedding,
            start=start,
            ask=ask,
            trust=trust,
        )
        nn.init.zeros_(self.decoder.output.bias)
        nn.init.orthogonal_(self.decoder.attention.match.weight)
        if self.decoder.join is not None:
            # At first the answer is not listened to: a network trained without a memory goes on as it was.
            with torch.no_grad():
                self.decoder.join.weight.copy_(torch.eye(units, 2 * units))
                self.decoder.join.bias.zero_()

    @property
    def memory(self) -> Memory | None:
        """What it remembers with."""
        return self.decoder.memory

    def settings(self) -> dict[str, object]:
        """What makes a network of the same shapes: `GNMT(**settings)`, its memory made of its settings first."""
        names = ("symbols", "start", "end", "units", "layers", "dropout", "shortcut", "ask", "trust")
        return {name: getattr(self, name) for name in names} | {"memory": settings_of(self.memory)}

    def forward(
        self, source: Tensor, target: Tensor, exclude: Tensor | None = None, among: Tensor | None = None
    ) -> Decoded:
        """Decodes with the right output given, all places at once. `beam.search` decodes without.

        Args:
            source: (batch, length) int64, the last of each the end.
            target: (batch, time) int64, the same; anything after the end.
            exclude: (batch,) int64, the source that each sentence must not be answered from.
            among: (n,) int64, the pieces that logits are wanted of, (batch, time, n); all by default.
        """
        encoded = self.encoder(source)
        before = torch.cat((torch.full_like(target[:, :1], self.start), target[:, :-1]), 1)
        steps = self.decoder(before, encoded, self.decoder.begin(encoded))
        sources = None if exclude is None else exclude[:, None].expand_as(before)
        return Decoded(*self.decoder.speak(steps.states, steps.query, sources, among))
