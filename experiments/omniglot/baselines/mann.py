"""MANN (Santoro et al. 2016): an LSTM that reads and writes a memory with attention. No convolutions.

An episode is a sequence of drawings. Each comes with the label of the previous one, so the network has to keep what it
saw until the label arrives, bind both, and retrieve them when the class occurs again. Labels are shuffled in every
episode. The whole sequence is differentiable; the memory is emptied after each. The number of labels is fixed by
training.

Each head writes a vector separate from its read key, as in a Neural Turing Machine; the paper uses one for both. The
initialisation is ours: see `MannNet.divide_the_work`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments.omniglot.recipe import Recipe

SIDE = 20  # pixels; drawings are downscaled, as in the MANN paper


@dataclass(frozen=True)
class MannState:
    """Recurrent state.

    Attributes:
        hidden, cell: (n, controller), state of the LSTM.
        read: (n, heads * width), read vectors.
        memory: (n, slots, width).
        used: (n, slots), decaying usage of each slot.
        reading: (n, heads, slots), read weights.
    """

    hidden: Tensor
    cell: Tensor
    read: Tensor
    memory: Tensor
    used: Tensor
    reading: Tensor

    def repeat(self, times: int) -> MannState:
        """Repeat the state of one episode `times` times."""
        return MannState(*(getattr(self, name).expand(times, *getattr(self, name).shape[1:]) for name in _FIELDS))


_FIELDS = ("hidden", "cell", "read", "memory", "used", "reading")


class MannNet(nn.Module):
    """One step: output of `see` for drawings and labels, (n, 4 * controller) -> logits (n, labels) and next state.

    Args:
        labels: number of labels.
        controller: units of the LSTM.
        slots, width: shape of the memory.
        heads: an even number of heads, each of which reads and writes.
    """

    def __init__(
        self, labels: int = 5, controller: int = 200, slots: int = 128, width: int = 40, heads: int = 4
    ) -> None:
        super().__init__()
        if heads % 2:
            raise ValueError(f"MannNet got {heads} heads; expected an even number.")
        self.labels, self.size, self.slots, self.width, self.heads = labels, controller, slots, width, heads
        # The LSTM's input, forget and output gates and its candidates, in this order.
        self.inputs = nn.Linear(SIDE * SIDE + labels, 4 * controller)
        self.recurrent = nn.Linear(controller + heads * width, 4 * controller, bias=False)
        self.keys = nn.Linear(controller, heads * width)
        self.contents = nn.Linear(controller, heads * width)
        self.gates = nn.Linear(controller, heads)
        self.label = nn.Linear(controller + heads * width, labels)
        self.divide_the_work()

    @torch.no_grad()
    def divide_the_work(self) -> None:
        """Initialise the network as a memory of drawings and labels with random features.

        Some units of the LSTM see the drawing, the others the label. Half of the heads write the key of a drawing to an
        unused slot; the other half read with the same keys, so where the drawing has just been written, and add its
        label there one step later. All weights are trained. From a standard initialisation, the network has to find
        this use of the memory first; Santoro et al. trained for 100,000 episodes.
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
        """Return the initial state for n episodes, with an empty memory."""
        memory = torch.full((n, self.slots, self.width), 1e-6)
        reading = torch.zeros(n, self.heads, self.slots)
        reading[:, :, 0] = 1.0
        empty = torch.zeros(n, self.size)
        return MannState(empty, empty, torch.zeros(n, self.heads * self.width), memory, reading.sum(1), reading)

    def see(self, drawings: Tensor, before: Tensor) -> Tensor:
        """Apply the input layer: drawings (..., 400), previous labels (..., labels) -> (..., 4 * controller)."""
        return self.inputs(torch.cat([drawings, before], -1))

    def forward(self, seen: Tensor, state: MannState) -> tuple[Tensor, MannState]:
        gates = torch.addmm(seen, torch.cat([state.hidden, state.read], 1), self.recurrent.weight.T)
        enter, keep, leave = gates[:, : 3 * self.size].sigmoid().chunk(3, 1)
        cell = keep * state.cell + enter * gates[:, 3 * self.size :].tanh()
        hidden = leave * cell.tanh()
        keys = self.keys(hidden).tanh().unflatten(1, (self.heads, self.width))
        contents = self.contents(hidden).tanh().unflatten(1, (self.heads, self.width))
        # Each head writes where it read last, or to the least used slot, which is erased first.
        least = state.used.topk(self.heads, dim=1, largest=False).indices
        unused = torch.zeros_like(state.reading).scatter_(2, least.unsqueeze(2), 1.0)  # one slot per head
        writing = torch.lerp(unused, state.reading, self.gates(hidden).sigmoid().unsqueeze(2))  # (n, heads, slots)
        wiped = state.memory * (1 - unused[:, 0]).unsqueeze(2)
        memory = torch.baddbmm(wiped, writing.transpose(1, 2), contents)
        # Cosine similarity; dividing by the norms last is cheaper than normalising the memory.
        lengths = (memory.square().sum(2) + 1e-8).sqrt()
        similarity = F.normalize(keys, dim=2) @ memory.transpose(1, 2) / lengths.unsqueeze(1)
        reading = (10.0 * similarity).softmax(2)
        read = (reading @ memory).flatten(1)
        used = (0.95 * state.used + reading.sum(1) + writing.sum(1)).detach()
        logits = self.label(torch.cat([hidden, read], 1))
        return logits, MannState(hidden, cell, read, memory, used, reading)

    def encode(self, drawings: Tensor) -> Tensor:
        """Downscale and normalise drawings, (n, 1, 28, 28) -> (n, 400) with mean 0 and standard deviation 1."""
        shrunk = F.interpolate(drawings, size=(SIDE, SIDE), mode="area").flatten(1)
        return F.layer_norm(shrunk, (SIDE * SIDE,))


class Mann(Recipe):
    """Episodes of five classes with drawings in random order: at first three per class, later six."""

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
        labels = torch.rand(episodes, self.labels).argsort(1).repeat_interleave(shows, 1)  # random labels
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
        earlier = given.cumsum(1).gather(2, labels.unsqueeze(2)).squeeze(2) - 1  # earlier drawings of the class
        right = (logits.argmax(2) == labels).float()
        return loss, {
            "second_time": right[earlier == 1].mean().item(),
            "last_time": right[earlier == shows - 1].mean().item(),
        }

    def learner(self, network: nn.Module) -> MannLearner:
        assert isinstance(network, MannNet)
        return MannLearner(network)


class MannLearner:
    """A `Learner`: the shown drawings, round by round, start a sequence; each test drawing ends a copy of it."""

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
