"""Sequence to sequence with attention (LSTMs, as in GNMT), with or without memory.

The bottom layer of the decoder reads the output so far and asks the attention; what the attention found, a_t, goes into
all layers above. With a memory (figure 2 of "Learning to Remember Rare Events"), a_t is the query, and the embedded
answer is joined with the output of the last layer before the softmax. The memory is asked beside the LSTMs and not
within their recurrence, so with the right output given, all places of all sequences are asked at once.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rarecall.layers import RecallEmbedding, Trust
from rarecall.memory import Memory
from rarecall.models.decoded import Decoded, settings_of
from rarecall.recall import Recall

# The hidden state and the cell of an LSTM, (1, batch, units) each.
Carried = tuple[Tensor, Tensor]


class Encoded(NamedTuple):
    """What the encoder made of the input.

    Attributes:
        states: (batch, length, units), the output of its last layer.
        last: the last layer's state after the last symbol; the decoder begins with it.
    """

    states: Tensor
    last: Carried


class Steps(NamedTuple):
    """What the decoder made of one symbol or more.

    Attributes:
        states: (batch, time, units), the output of its last layer.
        query: (batch, time, units), what the memory is asked with.
        attended: (batch, time, length), where it looked: each step's weights of the input's places.
        carried: by each layer, to the step after.
    """

    states: Tensor
    query: Tensor
    attended: Tensor
    carried: list[Carried]


class Encoder(nn.Module):
    """LSTMs over the input, the bottom one in both directions, with residual connections from the third layer on.

    All sequences of a batch have the same length, so that nothing has to be padded or masked.

    Args:
        symbols: of the input.
        units: in a layer; the two directions of the bottom layer have half of them each.
        layers: at least 2.
        dropout: of what goes into a layer.
        embedding: of (symbols, units), to share it; one of its own by default. One that is shared is the softmax's
            weights as well, and as short as they have to be; what is read from it is made sqrt(units) times as long.
        shortcut: add the embedded input to the last layer's output.
    """

    def __init__(
        self,
        symbols: int,
        units: int,
        layers: int,
        *,
        dropout: float = 0.0,
        embedding: nn.Embedding | None = None,
        shortcut: bool = False,
    ) -> None:
        super().__init__()
        if layers < 2 or units % 2:
            raise ValueError(f"Encoder got {layers} layers of {units} units; expected 2 or more, of an even number.")
        self.embedding = nn.Embedding(symbols, units) if embedding is None else embedding
        self.scale = 1.0 if embedding is None else units**0.5
        self.bottom = nn.LSTM(units, units // 2, bidirectional=True, batch_first=True)
        self.above = nn.ModuleList(nn.LSTM(units, units, batch_first=True) for _ in range(layers - 1))
        self.dropout = nn.Dropout(dropout)
        self.shortcut = shortcut

    def forward(self, input: Tensor) -> Encoded:
        """(batch, length) int64."""
        embedded = self.embedding(input) * self.scale
        states, last = self.bottom(self.dropout(embedded))
        for number, layer in enumerate(self.above, 2):
            below = states
            states, last = layer(self.dropout(below))
            states = states + below if number > 2 else states
        return Encoded(states + embedded if self.shortcut else states, last)


class Attention(nn.Module):
    """A mean of the encoder's states, weighted by how well each fits a question: softmax(question W states').

    Shape:
        (batch, time, units) questions -> (batch, time, units) found, (batch, time, length) weights
    """

    def __init__(self, units: int) -> None:
        super().__init__()
        self.match = nn.Linear(units, units, bias=False)

    def forward(self, questions: Tensor, encoded: Encoded) -> tuple[Tensor, Tensor]:
        fits = self.match(questions) @ encoded.states.transpose(1, 2)  # (batch, time, length)
        weights = (fits / questions.shape[-1] ** 0.5).softmax(-1)
        return weights @ encoded.states, weights


class Decoder(nn.Module):
    """LSTMs over the output so far, attention, and memory where there is one; residual connections as in the encoder.

    Args:
        symbols: of the output.
        units: in a layer, and numbers in a key of the memory.
        layers: at least 2.
        memory: of `units` numbers a key, or None.
        dropout: of what goes into a layer, the output included.
        embedding: of (symbols, units), to share it: it also embeds the memory's answers, and is the output's weights.
        start: the symbol that stands before the first; one of its own by default, which a shared embedding lacks.
        ask: learn what to ask the memory: a linear layer of what the attention found, what it was asked, and the last
            layer's output, each of length 1, which begins as their sum. Without, it is asked by what the attention
            found, as in the paper.
        trust: mix what the memory says into the output, as far as it is trusted (see `Trust`). Without, its answer is
            embedded and joined with the last layer's output by a linear layer, as in the paper.
    """

    def __init__(
        self,
        symbols: int,
        units: int,
        layers: int,
        memory: Memory | None,
        *,
        dropout: float = 0.0,
        embedding: nn.Embedding | None = None,
        start: int | None = None,
        ask: bool = False,
        trust: bool = False,
    ) -> None:
        super().__init__()
        if memory is not None and memory.key_size != units:
            raise ValueError(
                f"Decoder got a memory of key_size {memory.key_size}; its queries are the {units} numbers that the "
                f"attention finds. Make the memory with key_size={units}."
            )
        self.start = symbols if start is None else start
        self.embedding = nn.Embedding(symbols + (start is None), units) if embedding is None else embedding
        self.scale = 1.0 if embedding is None else units**0.5
        self.bottom = nn.LSTM(units, units, batch_first=True)
        self.attention = Attention(units)
        self.above = nn.ModuleList(nn.LSTM(2 * units, units, batch_first=True) for _ in range(layers - 1))
        self.memory = memory
        self.ask = nn.Linear(3 * units, units, bias=False) if memory is not None and ask else None
        if self.ask is not None:
            with torch.no_grad():
                self.ask.weight.copy_(torch.eye(units).repeat(1, 3))
        listens = memory is not None and not trust
        self.answer = RecallEmbedding(symbols, units, embedding) if listens else None
        self.join = nn.Linear(2 * units, units) if listens else None
        self.trust = Trust() if memory is not None and trust else None
        self.output = nn.Linear(units, symbols)
        if embedding is not None:
            self.output.weight = embedding.weight
        self.dropout = nn.Dropout(dropout)

    def begin(self, encoded: Encoded) -> list[Carried]:
        """What each layer carries before the first symbol."""
        nothing = (torch.zeros_like(encoded.last[0]), torch.zeros_like(encoded.last[1]))
        return [encoded.last, *[nothing] * len(self.above)]

    def forward(self, before: Tensor, encoded: Encoded, carried: list[Carried]) -> Steps:
        """Any number of steps at once; their `states` and `query` are for `speak`.

        Args:
            before: (batch, time) int64, the symbols before those to be written.
            encoded: the input.
            carried: by each layer, from the step before.
        """
        states, now = self.bottom(self.dropout(self.embedding(before) * self.scale), carried[0])
        after = [now]
        found, attended = self.attention(states, encoded)
        asked = states
        for number, (layer, carry) in enumerate(zip(self.above, carried[1:], strict=True), 2):
            below = states
            states, now = layer(self.dropout(torch.cat((below, found), -1)), carry)
            states = states + below if number > 2 else states
            after.append(now)
        query = found
        if self.ask is not None:
            query = self.ask(torch.cat([F.normalize(of, dim=-1) for of in (found, asked, states)], -1))
        return Steps(states, query, attended, after)

    def speak(
        self, states: Tensor, query: Tensor, exclude: Tensor | None = None, among: Tensor | None = None
    ) -> tuple[Tensor, Recall | None]:
        """The last layer's output, with what the memory answers, as logits.

        With `trust`, those of all symbols are the logarithms of what network and memory say together; those of some
        symbols are the network's alone, since the memory may say others.

        Args:
            states, query: (..., units).
            exclude: (...,) int64, the source that each query must not be answered from.
            among: (n,) int64, the symbols that logits are wanted of; all by default.

        Returns:
            (..., symbols) or (..., n) logits, and the recall of (...,).
        """
        states = self.dropout(states)
        recall = None if self.memory is None else self.memory(query, exclude=exclude)
        if recall is not None and self.answer is not None and self.join is not None:
            states = self.join(torch.cat((states, self.answer(recall)), -1))
        if among is not None:
            return F.linear(states, self.output.weight[among], self.output.bias[among]), recall
        logits = self.output(states)
        if recall is not None and self.trust is not None:
            logits = self.trust.mix(logits, recall)
        return logits, recall


class Seq2Seq(nn.Module):
    """Reads a sequence and writes one of the same length.

    Args:
        symbols: of the input and of the output.
        units: in a layer of LSTMs, and numbers in a key of the memory.
        layers: of the encoder, and of the decoder.
        memory: of `units` numbers a key, or None.

    Example:
        >>> network = Seq2Seq(symbols=6, units=64, memory=Memory(key_size=64, capacity=1000))
        >>> network(torch.zeros(8, 13, dtype=torch.int64)).logits.shape
        torch.Size([8, 13, 6])
    """

    def __init__(self, symbols: int, units: int = 256, layers: int = 2, memory: Memory | None = None) -> None:
        super().__init__()
        self.symbols, self.units, self.layers = symbols, units, layers
        self.encoder = Encoder(symbols, units, layers)
        self.decoder = Decoder(symbols, units, layers, memory)

    @property
    def memory(self) -> Memory | None:
        """What it remembers with."""
        return self.decoder.memory

    def settings(self) -> dict[str, object]:
        """What makes a network of the same shapes: `Seq2Seq(**settings)`, its memory made of its settings first."""
        names = ("symbols", "units", "layers")
        return {name: getattr(self, name) for name in names} | {"memory": settings_of(self.memory)}

    def forward(
        self,
        input: Tensor,
        target: Tensor | None = None,
        forced: Tensor | None = None,
        exclude: Tensor | None = None,
    ) -> Decoded:
        """Decodes.

        Args:
            input: (batch, length) int64.
            target: (batch, length) int64, the right output, or None to go on from its own output.
            forced: (batch,) bool, the sequences that go on from the target; all of them by default.
            exclude: (batch,) int64, the source that each sequence must not be answered from.
        """
        if input.dim() != 2 or input.is_floating_point():
            raise ValueError(
                f"Seq2Seq got input of shape {tuple(input.shape)} and type {input.dtype}; expected (batch, length) of "
                "int64."
            )
        encoded = self.encoder(input)
        carried = self.decoder.begin(encoded)
        before = torch.full_like(input[:, :1], self.decoder.start)
        if target is not None and (forced is None or bool(forced.all())):
            # With the right output given, no step waits for the one before it.
            before = torch.cat((before, target[:, :-1]), 1)
            states, query, *_ = self.decoder(before, encoded, carried)
            sources = None if exclude is None else exclude[:, None].expand_as(before)
            return Decoded(*self.decoder.speak(states, query, sources))
        spoken, recalls = [], []
        for place in range(input.shape[1]):
            states, query, _, carried = self.decoder(before, encoded, carried)
            logits, recall = self.decoder.speak(states[:, 0], query[:, 0], exclude)
            spoken.append(logits)
            if recall is not None:
                recalls.append(recall)
            symbol = logits.detach().argmax(-1)
            if target is not None and forced is not None:
                symbol = torch.where(forced, target[:, place], symbol)
            before = symbol[:, None]
        return Decoded(torch.stack(spoken, 1), Recall.stack(recalls, 1) if recalls else None)
