"""MANN (Santoro et al. 2016): an LSTM that reads and writes a memory with attention. No convolutions.

An episode is a sequence of drawings. With each comes the label of the one before it, so that the network has to keep
what it saw until the label arrives, bind both, and find them again when the class comes again. Labels are dealt anew in
every episode. All is differentiable, through the whole sequence; the memory is emptied after each. The network answers
with one of as many labels as it was trained with.

What a head writes is a vector of its own, beside the key it reads by, as in a Neural Turing Machine; the paper has one
for both. How the network starts is ours: see `MannNet.divide_the_work`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments.omniglot.recipe import Recipe

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
    """A step: what `see` made of the drawings and labels, (n, 4 * controller) -> logits (n, labels), the next state.

    Args:
        labels: how many there are.
        controller: units of the LSTM.
        slots, width: of the memory.
        heads: an even number of them; each reads and writes.
    """

    def __init__(
        self, labels: int = 5, controller: int = 200, slots: int = 128, width: int = 40, heads: int = 4
    ) -> None:
        super().__init__()
        if heads % 2:
            raise ValueError(f"MannNet got {heads} heads; expected an even number, which share the work.")
        self.labels, self.size, self.slots, self.width, self.heads = labels, controller, slots, width, heads
        # Of the LSTM: its gates for input, forgetting and output, and the candidates, in this order.
        self.inputs = nn.Linear(SIDE * SIDE + labels, 4 * controller)
        self.recurrent = nn.Linear(controller + heads * width, 4 * controller, bias=False)
        self.keys = nn.Linear(controller, heads * width)
        self.contents = nn.Linear(controller, heads * width)
        self.gates = nn.Linear(controller, heads)
        self.label = nn.Linear(controller + heads * width, labels)
        self.divide_the_work()

    @torch.no_grad()
    def divide_the_work(self) -> None:
        """How the network starts: as a memory of drawings and labels, though one of unlearned features.

        Some units of the LSTM see the drawing, the others the label. Half of the heads write the key of a drawing to an
        unused slot; the other half, which read by the same keys, and so where the drawing has just been written, add
        its label there a step later. All of it is free to change. From an even start, that this is what a memory is
        for has to be found first; Santoro et al. trained for 100,000 episodes.
        """
        drawing, half = self.size * 3 // 4, self.heads // 2
        weight = self.inputs.weight.unflatten(0, (4, self.size))
        weight[:, :drawing, SIDE * SIDE :] = 0.0
        weight[:, drawing:, : SIDE * SIDE] *= 0.1
        weight[3, drawing:, SIDE * SIDE :].normal_()
        self.inputs.bias.unflatten(0, (4, self.size)).copy_(torch.tensor([[1.0], [-1.0], [1.0], [0.0]]))
        self.recurrent.weight *= 0.3
        of_drawing, of_label = 0.15 * torch.randn(2, half * self.width, self.size)
        of_drawing[:, drawing:] = 0.0
        of_label[:, :drawing] = 0.0
        self.keys.weight.copy_(torch.cat([of_drawing, of_drawing]))
        self.contents.weight.copy_(torch.cat([of_drawing, of_label]))
        self.keys.bias.zero_()
        self.contents.bias.zero_()
        self.gates.bias.copy_(torch.tensor([-3.0] * half + [3.0] * half))

    def start(self, n: int) -> MannState:
        """An empty memory, of which nothing was read."""
        memory = torch.full((n, self.slots, self.width), 1e-6)
        reading = torch.zeros(n, self.heads, self.slots)
        reading[:, :, 0] = 1.0
        empty = torch.zeros(n, self.size)
        return MannState(empty, empty, torch.zeros(n, self.heads * self.width), memory, reading.sum(1), reading)

    def see(self, drawings: Tensor, before: Tensor) -> Tensor:
        """(..., 400) and the labels before, (..., labels) -> (..., 4 * controller): all that needs no state."""
        return self.inputs(torch.cat([drawings, before], -1))

    def forward(self, seen: Tensor, state: MannState) -> tuple[Tensor, MannState]:
        gates = torch.addmm(seen, torch.cat([state.hidden, state.read], 1), self.recurrent.weight.T)
        enter, keep, leave = gates[:, : 3 * self.size].sigmoid().chunk(3, 1)
        cell = keep * state.cell + enter * gates[:, 3 * self.size :].tanh()
        hidden = leave * cell.tanh()
        keys = self.keys(hidden).tanh().unflatten(1, (self.heads, self.width))
        contents = self.contents(hidden).tanh().unflatten(1, (self.heads, self.width))
        # Each head writes where it read last, or to the least used slot, which is wiped first.
        least = state.used.topk(self.heads, dim=1, largest=False).indices
        unused = torch.zeros_like(state.reading).scatter_(2, least.unsqueeze(2), 1.0)  # one slot for each head
        writing = torch.lerp(unused, state.reading, self.gates(hidden).sigmoid().unsqueeze(2))  # (n, heads, slots)
        wiped = state.memory * (1 - unused[:, 0]).unsqueeze(2)
        memory = torch.baddbmm(wiped, writing.transpose(1, 2), contents)
        # By cosine; the memory is divided by its lengths last, where there are fewer numbers to divide.
        lengths = (memory.square().sum(2) + 1e-8).sqrt()
        similarity = F.normalize(keys, dim=2) @ memory.transpose(1, 2) / lengths.unsqueeze(1)
        reading = (10.0 * similarity).softmax(2)
        read = (reading @ memory).flatten(1)
        used = (0.95 * state.used + reading.sum(1) + writing.sum(1)).detach()
        logits = self.label(torch.cat([hidden, read], 1))
        return logits, MannState(hidden, cell, read, memory, used, reading)

    def encode(self, drawings: Tensor) -> Tensor:
        """(n, 1, 28, 28) -> (n, 400) of mean 0 and spread 1, so that ink weighs as much in a thin drawing."""
        shrunk = F.interpolate(drawings, size=(SIDE, SIDE), mode="area").flatten(1)
        return F.layer_norm(shrunk, (SIDE * SIDE,))


class Mann(Recipe):
    """Episodes of five classes, the drawings in random order: at first three of each, then six."""

    labels, episodes = 5, 32
    ways, shows = 5 * 32, 6
    shows_at_first, grows_at = 3, 0.6
    steps = 3_000
    learning_rate = 2e-3
    clip = 10.0

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.network: MannNet = MannNet(self.labels)

    def active(self, progress: float) -> tuple[int, int]:
        return self.ways, self.shows_at_first if progress < self.grows_at else self.shows

    def loss(
        self, drawings: Tensor, target: Tensor, source: Tensor, progress: float
    ) -> tuple[Tensor, dict[str, float]]:
        _, shows = self.active(progress)
        length = self.labels * shows
        inputs = self.network.encode(drawings).unflatten(0, (-1, length))  # (episodes, length, 400)
        episodes = len(inputs)
        labels = torch.rand(episodes, self.labels).argsort(1).repeat_interleave(shows, 1)  # dealt anew
        order = torch.rand(episodes, length).argsort(1)
        inputs = inputs.gather(1, order.unsqueeze(2).expand_as(inputs))
        labels = labels.gather(1, order)
        given = F.one_hot(labels, self.labels).to(inputs.dtype)
        state, before = self.network.start(episodes), F.pad(given[:, :-1], (0, 0, 1, 0))
        all_logits = []
        for seen in self.network.see(inputs, before).unbind(1):
            logits, state = self.network(seen, state)
            all_logits.append(logits)
        logits = torch.stack(all_logits, 1)  # (episodes, length, labels)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        earlier = given.cumsum(1).gather(2, labels.unsqueeze(2)).squeeze(2) - 1  # drawings of the class seen before
        right = (logits.argmax(2) == labels).float()
        return loss, {
            "second_time": right[earlier == 1].mean().item(),
            "last_time": right[earlier == shows - 1].mean().item(),
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
                _, state = self.network(self.network.see(shown[way, shot][None], before), state)
                before = F.one_hot(torch.tensor([way]), self.network.labels).to(shown.dtype)
        seen = self.network.see(asked, before.expand(len(asked), -1))
        logits, _ = self.network(seen, state.repeat(len(asked)))
        return logits[:, :ways].argmax(1)
