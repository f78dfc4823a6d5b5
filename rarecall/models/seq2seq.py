"""Sequence to sequence with attention (LSTMs, as in GNMT), with or without memory.

The bottom layer of the decoder reads the output so far and queries the attention; the attention vector a_t is an input
of all layers above. With a memory (figure 2 of "Learning to Remember Rare Events"), a_t is the query, and the embedded
answer is joined with the output of the last layer before the softmax. The memory is not part of the LSTMs' recurrence,
so with teacher forcing all positions of all sequences are recalled at once.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rarecall.layers import RecallEmbedding, Trust
from rarecall.memory import Memory
from rarecall.models.decoded import Decoded, hide, settings_of
from rarecall.recall import Recall

# The hidden and cell state of an LSTM, (1, batch, units) each.
Carried = tuple[Tensor, Tensor]


class Encoded(NamedTuple):
    """Output of the encoder.

    Attributes:
        states: (batch, length, units), output of the last layer.
        last: the last layer's state after the last symbol, which initialises the decoder.
    """

    states: Tensor
    last: Carried


class Steps(NamedTuple):
    """Output of the decoder for one symbol or more.

    Attributes:
        states: (batch, time, units), output of the last layer.
        read: (batch, time, units), what the query to the memory is made of; 3 * units if the query is learned.
        attended: (batch, time, length), attention weights over the input.
        carried: state of each layer after the last step.
    """

    states: Tensor
    read: Tensor
    attended: Tensor
    carried: list[Carried]


class Encoder(nn.Module):
    """LSTMs over the input, the bottom one in both directions, with residual connections from the third layer on.

    All sequences of a batch have the same length, so no padding or mask is needed.

    Args:
        symbols: number of input symbols.
        units: units per layer; each direction of the bottom layer has half of them.
        layers: number of layers, at least 2.
        dropout: dropout of the layers' inputs.
        embedding: embedding of (symbols, units) to share (default: a new one). A shared embedding also holds the
            softmax's weights, which are small, so its output is scaled by sqrt(units).
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
            raise ValueError(
                f"Encoder got {layers} layers of {units} units; expected at least 2 layers and an even number of units."
            )
        self.embedding = nn.Embedding(symbols, units) if embedding is None else embedding
        self.scale = 1.0 if embedding is None else units**0.5
        self.bottom = nn.LSTM(units, units // 2, bidirectional=True, batch_first=True)
        self.above = nn.ModuleList(nn.LSTM(units, units, batch_first=True) for _ in range(layers - 1))
        self.dropout = nn.Dropout(dropout)
        self.shortcut = shortcut

    def forward(self, input: Tensor, hidden: Tensor | None = None) -> Encoded:
        """Encode an input of (batch, length) int64; hidden, (batch, length) bool: symbols that are not seen."""
        embedded = hide(self.embedding(input) * self.scale, hidden)
        states, last = self.bottom(self.dropout(embedded))
        for number, layer in enumerate(self.above, 2):
            below = states
            states, last = layer(self.dropout(below))
            states = states + below if number > 2 else states
        return Encoded(states + embedded if self.shortcut else states, last)


class Attention(nn.Module):
    """Bilinear attention over the encoder's states: softmax(question W states.T / sqrt(units)) states.

    Shape:
        (batch, time, units) questions -> (batch, time, units) attention vectors, (batch, time, length) weights
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
        symbols: number of output symbols.
        units: units per layer, and key dimension of the memory.
        layers: number of layers, at least 2.
        memory: a memory with `key_size=units`, or None.
        dropout: dropout of the inputs of all layers, including the output layer.
        embedding: embedding of (symbols, units) to share; it also embeds the memory's answers and holds the output
            layer's weights.
        start: symbol before the first (default: an additional symbol, which a shared embedding does not have).
        ask: learn the query: a linear layer of the attention's output, the attention's input and the last layer's
            output, each normalised, initialised as their sum. Otherwise the query is the attention's output, as in the
            paper.
        trust: mix the memory's distribution into the output with learned weights (see `Trust`). Otherwise a linear
            layer joins the embedded answer with the last layer's output, as in the paper.
        reattend: the last layer's output queries the input once more, and a linear layer of the answer is added to it.
            The bottom layer asks before it knows what was attended so far; the last layer knows. The linear layer is
            initialised with zeros, so a network trained without it keeps its output.
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
        reattend: bool = False,
    ) -> None:
        super().__init__()
        if memory is not None and memory.key_size != units:
            raise ValueError(
                f"Decoder got a memory of key_size {memory.key_size}; its queries are attention vectors of "
                f"{units} units. Create the memory with key_size={units}."
            )
        self.start = symbols if start is None else start
        self.embedding = nn.Embedding(symbols + (start is None), units) if embedding is None else embedding
        self.scale = 1.0 if embedding is None else units**0.5
        self.bottom = nn.LSTM(units, units, batch_first=True)
        self.attention = Attention(units)
        self.above = nn.ModuleList(nn.LSTM(2 * units, units, batch_first=True) for _ in range(layers - 1))
        self.reattention = Attention(units) if reattend else None
        self.add = nn.Linear(units, units, bias=False) if reattend else None
        if self.add is not None:
            nn.init.zeros_(self.add.weight)
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
        """Return the initial state of each layer."""
        nothing = (torch.zeros_like(encoded.last[0]), torch.zeros_like(encoded.last[1]))
        return [encoded.last, *[nothing] * len(self.above)]

    def forward(self, before: Tensor, encoded: Encoded, carried: list[Carried]) -> Steps:
        """Run any number of steps at once; their `states` and `read` are the arguments of `speak`.

        Args:
            before: (batch, time) int64, the previous symbol at each step.
            encoded: output of the encoder.
            carried: state of each layer before the first step.
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
        if self.reattention is not None and self.add is not None:
            states = states + self.add(self.reattention(states, encoded)[0])
        read = found
        if self.ask is not None:
            read = torch.cat([F.normalize(of, dim=-1) for of in (found, asked, states)], -1)
        return Steps(states, read, attended, after)

    def speak(
        self, states: Tensor, read: Tensor, exclude: Tensor | None = None, among: Tensor | None = None
    ) -> tuple[Tensor, Recall | None]:
        """Query the memory and return the logits.

        With `trust`, the logits of all symbols are log-probabilities of the mixture of network and memory; with
        `among`, they are the network's alone, since the memory may answer with other symbols.

        Args:
            states, read: (..., units) or more, as in `Steps`.
            exclude: (...,) int64, source to exclude from each recall.
            among: (n,) int64, symbols to compute logits for (default: all).

        Returns:
            Logits of (..., symbols) or (..., n), and the recall of shape (...,), or None without a memory.
        """
        states = self.dropout(states)
        query = read if self.ask is None else self.ask(read)
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
    """Map a sequence to a sequence of the same length.

    Args:
        symbols: number of symbols of the input and of the output.
        units: units per LSTM layer, and key dimension of the memory.
        layers: layers of the encoder and of the decoder.
        memory: a memory with `key_size=units`, or None.

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
        """The memory, or None."""
        return self.decoder.memory

    def settings(self) -> dict[str, object]:
        """Return the arguments that create such a network; "memory" holds the arguments of its memory, or None."""
        names = ("symbols", "units", "layers")
        return {name: getattr(self, name) for name in names} | {"memory": settings_of(self.memory)}

    def forward(
        self,
        input: Tensor,
        target: Tensor | None = None,
        forced: Tensor | None = None,
        exclude: Tensor | None = None,
        hidden: Tensor | None = None,
    ) -> Decoded:
        """Decode a batch.

        Args:
            input: (batch, length) int64.
            target: (batch, length) int64, the correct output for teacher forcing; None to use the network's own output.
            forced: (batch,) bool, the sequences with teacher forcing (default: all).
            exclude: (batch,) int64, source to exclude from the recall of each sequence.
            hidden: (batch, length) bool, input symbols that the network does not see.
        """
        if input.dim() != 2 or input.is_floating_point():
            raise ValueError(
                f"Seq2Seq got input of shape {tuple(input.shape)} and type {input.dtype}; expected (batch, length) of "
                "int64."
            )
        encoded = self.encoder(input, hidden)
        carried = self.decoder.begin(encoded)
        before = torch.full_like(input[:, :1], self.decoder.start)
        if target is not None and (forced is None or bool(forced.all())):
            # With teacher forcing, no step depends on the output of the previous one.
            before = torch.cat((before, target[:, :-1]), 1)
            states, read, *_ = self.decoder(before, encoded, carried)
            sources = None if exclude is None else exclude[:, None].expand_as(before)
            return Decoded(*self.decoder.speak(states, read, sources))
        spoken, recalls = [], []
        for place in range(input.shape[1]):
            states, read, _, carried = self.decoder(before, encoded, carried)
            logits, recall = self.decoder.speak(states[:, 0], read[:, 0], exclude)
            spoken.append(logits)
            if recall is not None:
                recalls.append(recall)
            symbol = logits.detach().argmax(-1)
            if target is not None and forced is not None:
                symbol = torch.where(forced, target[:, place], symbol)
            before = symbol[:, None]
        return Decoded(torch.stack(spoken, 1), Recall.stack(recalls, 1) if recalls else None)
