"""The Extended Neural GPU ("Can Active Memory Replace Attention?", Kaiser and Bengio, 2016), with or without memory.

The embedded input is the first column of an image of width x length x channels. A stack of convolutional gated
recurrent units (CGRU) transforms the whole image, once per input symbol. Then a second stack does, once per output
symbol; it also sees an output tape, and symbol k is read at position k after its k-th step. With a memory (figure 3 of
"Learning to Remember Rare Events"), the state at position k before that step is the query, and the answer is added to
the tape there.

    s_0 = input, then zeros;  s_t = CGRU(s_{t-1})                     t = 1..n
    d_0 = s_n;                d_k = CGRU_d(d_{k-1}, p_{k-1})          k = 1..n
    p_{k-1}[k] = the memory's answer to d_{k-1}[k];  o_k is read from d_k[k];  p_k[k] = o_k
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rarecall.layers import RecallEmbedding
from rarecall.memory import Memory
from rarecall.models.decoded import Decoded, hide, settings_of
from rarecall.recall import Recall


class CGRU(nn.Module):
    """A convolutional gated recurrent unit: u * s + (1 - u) * tanh(U * (r . s) + B), with gates u and r.

    The two gates are one matrix product over the 3 x 3 neighbourhood (3 x 1 in an image of width 1) of each position.
    On a CPU that is several times faster than convolutions with so few channels.

    Shape:
        (batch, length, width, channels) -> the same
    """

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        window = channels * (3 if width == 1 else 9)
        self.gates = nn.Linear(window, 2 * channels)
        self.candidate = nn.Linear(window, channels)
        for layer in (self.gates, self.candidate):
            nn.init.xavier_uniform_(layer.weight)
        # Update gates near 1 let gradients flow through many steps.
        nn.init.ones_(self.gates.bias)
        nn.init.zeros_(self.candidate.bias)

    def forward(self, state: Tensor, tape: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Run one step.

        Args:
            state: (batch, length, width, channels), the image.
            tape: contribution of the convolved output tape to the gates, (batch, length, width, 2 * channels), and to
                the candidate, (batch, length, width, channels), including biases (default: the biases alone).
        """
        to_gates, to_candidate = (self.gates.bias, self.candidate.bias) if tape is None else tape
        gates = F.hardsigmoid(_product(to_gates, windows(state), self.gates.weight))
        update, reset = gates.chunk(2, -1)
        candidate = torch.tanh(_product(to_candidate, windows(reset * state), self.candidate.weight))
        return torch.lerp(candidate, state, update)


class NeuralGPU(nn.Module):
    """Map a sequence to a sequence of the same length.

    Args:
        symbols: number of symbols of the input and of the output.
        channels: channels of the image, and key dimension of the memory.
        width: width of the image (not specified in the paper); the cost of a step grows faster than linearly with it.
        layers: CGRUs per step of the encoder and of the decoder.
        memory: a memory with `key_size=channels`, or None.

    Example:
        >>> network = NeuralGPU(symbols=6, channels=32, memory=Memory(key_size=32, capacity=1000))
        >>> network(torch.zeros(8, 13, dtype=torch.int64)).logits.shape
        torch.Size([8, 13, 6])
    """

    def __init__(
        self, symbols: int, channels: int = 32, width: int = 1, layers: int = 2, memory: Memory | None = None
    ) -> None:
        super().__init__()
        if memory is not None and memory.key_size != channels:
            raise ValueError(
                f"NeuralGPU got a memory of key_size {memory.key_size}; its queries are the {channels} channels of a "
                f"position. Create the memory with key_size={channels}."
            )
        self.symbols, self.channels, self.width, self.layers = symbols, channels, width, layers
        self.embedding = nn.Embedding(symbols, channels)
        self.encoder = nn.ModuleList(CGRU(channels, width) for _ in range(layers))
        self.decoder = nn.ModuleList(CGRU(channels, width) for _ in range(layers))
        # Contribution of a symbol on the tape to the gates and candidates of each CGRU, at 3 (x 2) positions around it.
        self.around = (3, min(width, 2))
        self.tape = nn.Linear(channels, layers * 3 * channels * self.around[0] * self.around[1], bias=False)
        nn.init.normal_(self.tape.weight, std=(3 * channels) ** -0.5)
        self.written = nn.Embedding(symbols, channels)
        self.output = nn.Linear(channels, symbols)
        self.memory = memory
        self.answer = None if memory is None else RecallEmbedding(symbols, channels)

    def settings(self) -> dict[str, object]:
        """Return the arguments that create such a network; "memory" holds the arguments of its memory, or None."""
        names = ("symbols", "channels", "width", "layers")
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
        state = self.encode(input, hidden)
        batch, length = input.shape
        tape = self.blank_tape().expand(batch, length, self.width, -1)
        logits, recalls = [], []
        for place in range(length):
            now = tape
            if self.memory is not None and self.answer is not None:
                recall = self.memory(state[:, place, 0], exclude=exclude)
                recalls.append(recall)
                now = self.put(tape, place, self.answer(recall))
            for cell, added in zip(self.decoder, now.chunk(self.layers, -1), strict=True):
                state = cell(state, added.split((2 * self.channels, self.channels), -1))
            logits.append(self.output(state[:, place, 0]))
            symbol = logits[-1].detach().argmax(-1)
            if target is not None:
                symbol = target[:, place] if forced is None else torch.where(forced, target[:, place], symbol)
            tape = self.put(tape, place, self.written(symbol))
        return Decoded(torch.stack(logits, 1), Recall.stack(recalls, 1) if recalls else None)

    def encode(self, input: Tensor, hidden: Tensor | None = None) -> Tensor:
        """Return s_n, (batch, length, width, channels), for an input of (batch, length) int64."""
        if input.dim() != 2 or input.is_floating_point():
            raise ValueError(
                f"NeuralGPU got input of shape {tuple(input.shape)} and type {input.dtype}; expected "
                "(batch, length) of int64."
            )
        embedded = hide(self.embedding(input), hidden)
        state = F.pad(embedded.unsqueeze(2), (0, 0, 0, self.width - 1))
        for _ in range(input.shape[1]):
            for cell in self.encoder:
                state = cell(state)
        return state

    def blank_tape(self) -> Tensor:
        """Return the biases of the decoder's gates and candidates, (layers * 3 * channels,), layer by layer."""
        cells = [cell for cell in self.decoder if isinstance(cell, CGRU)]
        return torch.cat([bias for cell in cells for bias in (cell.gates.bias, cell.candidate.bias)])

    def put(self, tape: Tensor, place: int, written: Tensor) -> Tensor:
        """Return the convolved tape after adding (batch, channels) at a position of its first column.

        The tape changes at one position, so its convolution is only updated around it.
        """
        length = tape.shape[1]
        added = self.tape(written).view(-1, *self.around, tape.shape[-1])  # (batch, 3, 1 or 2, layers * 3 * channels)
        first, last = max(place - 1, 0), min(place + 2, length)
        added = added[:, first - place + 1 : last - place + 1]
        return tape + F.pad(added, (0, 0, 0, self.width - self.around[1], first, length - last))


def windows(image: Tensor) -> Tensor:
    """Gather zero-padded neighbourhoods, (batch, length, width, channels) -> (..., 3 or 9 x channels)."""
    padded = F.pad(image, (0, 0, 0, 0, 1, 1))
    image = torch.cat((padded[:, :-2], padded[:, 1:-1], padded[:, 2:]), -1)
    if image.shape[2] == 1:
        return image
    padded = F.pad(image, (0, 0, 1, 1))
    return torch.cat((padded[:, :, :-2], padded[:, :, 1:-1], padded[:, :, 2:]), -1)


def _product(added: Tensor, image: Tensor, weight: Tensor) -> Tensor:
    """Return added + image @ weight.T, (..., outputs), in one call; of the image's dtype also under autocast."""
    if added.dim() > 1:
        added = added.reshape(-1, added.shape[-1])
    return torch.addmm(added, image.flatten(0, -2), weight.t()).view(*image.shape[:-1], -1).to(image.dtype)
