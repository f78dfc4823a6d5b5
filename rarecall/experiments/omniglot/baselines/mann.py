"""MANN (Santoro et al. 2016): an LSTM that reads and writes a memory with attention. No convolutions.

An episode is a sequence of drawings. With each comes the label of the one before it, so that the network has to keep
what it saw until the label arrives, bind both, and find them again when the class comes again. Labels are dealt anew in
every episode. All is differentiable, through the whole sequence; the memory is emptied after each. The network answers
with one of as many labels as it was trained with.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rarecall.experiments.omniglot.recipe import Recipe

SIDE = 20  # pixels; the drawings are shrunk, as in the paper of the MANN


@dataclass(frozen=True)
class MannState:
    """What goes from step to step.

    Attributes:
        hidden, cell: (n, controller) of the LSTM.
        read: (n, heads * width), what was read.
        memory: (n, slots, width).
        used: (n, slots), how much and how recently each slot was used.
        reading: (n, heads, slots), where the heads read.
    """

    hidden: Tensor
    cell: Tensor
    read: Tensor
    memory: Tensor
    used: Tensor
    reading: Tensor

    def repeat(self, times: int) -> MannState:
        """Of one episode, so many of the same."""
        return MannState(*(getattr(self, name).expand(times, *getattr(self, name).shape[1:]) for name in _FIELDS))


_FIELDS = ("hidden", "cell", "read", "memory", "used", "reading")


class MannNet(nn.Module):
    """A step: drawings (n, 400) and the labels before them (n, labels) -> logits (n, labels) and the next state."""

    def __init__(
        self, labels: int = 5, controller: int = 200, slots: int = 128, width: int = 40, heads: int = 4
    ) -> None:
        super().__init__()
        self.labels, self.slots, self.width, self.heads = labels, slots, width, heads
        self.controller = nn.LSTMCell(SIDE * SIDE + labels + heads * width, controller)
        self.keys = nn.Linear(controller, heads * width)
        self.gates = nn.Linear(controller, heads)
        self.label = nn.Linear(controller + heads * width, labels)

    def start(self, n: int) -> MannState:
        """An empty memory, of which nothing was read."""
        size = self.controller.hidden_size
        memory = torch.full((n, self.slots, self.width), 1e-6)
        reading = torch.zeros(n, self.heads, self.slots)
        reading[:, :, 0] = 1.0
        empty = torch.zeros(n, size)
        return MannState(empty, empty, torch.zeros(n, self.heads * self.width), memory, reading.sum(1), reading)

    def forward(self, drawings: Tensor, before: Tensor, state: MannState) -> tuple[Tensor, MannState]:
        hidden, cell = self.controller(torch.cat([drawings, before, state.read], 1), (state.hidden, state.cell))
        keys = self.keys(hidden).tanh().unflatten(1, (self.heads, self.width))
        gates = self.gates(hidden).sigmoid().unsqueeze(2)
        # Each head writes where it read last, or to the least used slot, which is wiped first.
        least = state.used.topk(self.heads, dim=1, largest=False).indices
        unused = F.one_hot(least, self.slots).to(keys.dtype)  # (n, heads, slots), one slot each
        writing = gates * state.reading + (1 - gates) * unused
        memory = state.memory * (1 - unused[:, 0]).unsqueeze(2) + writing.transpose(1, 2) @ keys
        similarity = F.normalize(keys, dim=2) @ F.normalize(memory, dim=2).transpose(1, 2)
        reading = (10.0 * similarity).softmax(2)
        read = (reading @ memory).flatten(1)
        used = 0.95 * state.used + reading.sum(1) + writing.sum(1)
        logits = self.label(torch.cat([hidden, read], 1))
        return logits, MannState(hidden, cell, read, memory, used.detach(), reading)

    def encode(self, drawings: Tensor) -> Tensor:
        """(n, 1, 28, 28) -> (n, 400)."""
        return F.interpolate(drawings, size=(SIDE, SIDE), mode="area").flatten(1)


class Mann(Recipe):
    """Sixteen episodes a step, each of five classes and ten drawings of each in random order."""

    labels, episodes = 5, 16
    ways, shows = 5 * 16, 10
    steps = 10_000
    learning_rate = 1e-3
    clip = 10.0

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.network: MannNet = MannNet(self.labels)

    def loss(
        self, drawings: Tensor, target: Tensor, source: Tensor, progress: float
    ) -> tuple[Tensor, dict[str, float]]:
        length = self.labels * self.shows
        inputs = self.network.encode(drawings).unflatten(0, (-1, length))  # (episodes, length, 400)
        episodes = len(inputs)
        labels = torch.rand(episodes, self.labels).argsort(1).repeat_interleave(self.shows, 1)  # dealt anew
        order = torch.rand(episodes, length).argsort(1)
        inputs = inputs.gather(1, order.unsqueeze(2).expand_as(inputs))
        labels = labels.gather(1, order)
        given = F.one_hot(labels, self.labels).to(inputs.dtype)
        state, before = self.network.start(episodes), torch.zeros(episodes, self.labels)
        all_logits = []
        for step in range(length):
            logits, state = self.network(inputs[:, step], before, state)
            before = given[:, step]
            all_logits.append(logits)
        logits = torch.stack(all_logits, 1)  # (episodes, length, labels)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        earlier = given.cumsum(1).gather(2, labels.unsqueeze(2)).squeeze(2) - 1  # drawings of the class seen before
        right = (logits.argmax(2) == labels).float()
        return loss, {
            "second_time": right[earlier == 1].mean().item(),
            "sixth_time": right[earlier == 5].mean().item(),
        }

    def learner(self, network: nn.Module) -> MannLearner:
        assert isinstance(network, MannNet)
        return MannLearner(network)


class MannLearner:
    """A `Learner`: what is shown, round by round, is the start of a sequence, which each drawing asked ends."""

    def __init__(self, network: MannNet) -> None:
        self.network, self.most_ways = network.eval(), network.labels

    @torch.no_grad()
    def encode(self, drawings: Tensor) -> Tensor:
        return self.network.encode(drawings)

    @torch.no_grad()
    def answer(self, shown: Tensor, asked: Tensor) -> Tensor:
        ways, shots, _ = shown.shape
        if ways > self.network.labels:
            raise ValueError(f"This MANN knows {self.network.labels} labels; {ways}-way needs one trained with more.")
        state, before = self.network.start(1), torch.zeros(1, self.network.labels)
        for shot in range(shots):
            for way in range(ways):
                _, state = self.network(shown[way, shot][None], before, state)
                before = F.one_hot(torch.tensor([way]), self.network.labels).to(shown.dtype)
        logits, _ = self.network(asked, before.expand(len(asked), -1), state.repeat(len(asked)))
        return logits[:, :ways].argmax(1)
