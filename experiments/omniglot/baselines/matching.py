"""The Matching Network (Vinyals et al. 2016): a softmax over cosines to the shown drawings votes for their classes.

With full context embeddings, a bidirectional LSTM encodes the shown drawings, and another LSTM with attention over them
encodes each test drawing: embeddings depend on the episode.

The paper's softmax has no temperature, which limits the probability of the correct class among 20 to 1/4; here the
temperature is learned.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments.omniglot.baselines.convolutions import Convolutions
from experiments.omniglot.distort import distort
from experiments.omniglot.recipe import Recipe


class MatchingNet(nn.Module):
    """Features of drawings, and probabilities of the shown classes.

    Args:
        full_context: use full context embeddings.
        size: feature dimension.
        reads: attention steps over the shown drawings per test drawing.
    """

    def __init__(self, *, full_context: bool, size: int = 64, reads: int = 5) -> None:
        super().__init__()
        self.convolutions, self.full_context, self.reads = Convolutions(size), full_context, reads
        self.log_scale = nn.Parameter(torch.tensor(math.log(10.0)))
        if full_context:
            self.shown = nn.LSTM(size, size, bidirectional=True)
            self.asked = nn.LSTMCell(size, 2 * size)
            self.back = nn.Linear(2 * size, size)

    def forward(self, drawings: Tensor) -> Tensor:
        """Return features, (n, 1, 28, 28) -> (n, size)."""
        return self.convolutions(drawings)

    def match(self, shown: Tensor, asked: Tensor) -> Tensor:
        """Return log-probabilities, (m, ways), given `shown`, (ways, shots, size), and `asked`, (m, size)."""
        ways, shots, _ = shown.shape
        flat = shown.transpose(0, 1).flatten(0, 1)  # round by round
        if self.full_context:
            flat, asked = self._in_context(flat, asked)
        logits = self.log_scale.exp() * F.normalize(asked, dim=1) @ F.normalize(flat, dim=1).T  # (m, shots * ways)
        return logits.log_softmax(1).unflatten(1, (shots, ways)).logsumexp(1)

    def _in_context(self, shown: Tensor, asked: Tensor) -> tuple[Tensor, Tensor]:
        forth_and_back, _ = self.shown(shown)
        shown = shown + self.back(forth_and_back)
        read = torch.zeros_like(asked)
        state = (asked.new_zeros(len(asked), 2 * asked.shape[1]), asked.new_zeros(len(asked), 2 * asked.shape[1]))
        hidden = asked
        for _ in range(self.reads):
            state = self.asked(asked, (torch.cat([hidden, read], 1), state[1]))
            hidden = self.back(state[0]) + asked
            read = (hidden @ shown.T).softmax(1) @ shown
        return shown, hidden


class Matching(Recipe):
    """Episodes with one shown drawing per class; the others are classified."""

    ways, shows = 32, 3
    steps = 12_000
    learning_rate = 2e-3
    full_context = False

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.network: MatchingNet = MatchingNet(full_context=self.full_context)

    def loss(
        self, drawings: Tensor, target: Tensor, source: Tensor, progress: float
    ) -> tuple[Tensor, dict[str, float]]:
        features = self.query(distort(drawings)).unflatten(0, (-1, self.shows))  # (ways, shows, size)
        shown, asked = features[:, :1], features[:, 1:]
        right = torch.arange(len(features)).repeat_interleave(asked.shape[1])
        logs = self.network.match(shown, asked.flatten(0, 1))
        return F.nll_loss(logs, right), {"batch_accuracy": (logs.argmax(1) == right).float().mean().item()}

    def learner(self, network: nn.Module) -> MatchingLearner:
        assert isinstance(network, MatchingNet)
        return MatchingLearner(network)


class MatchingFullContext(Matching):
    """The same with full context embeddings."""

    full_context = True


class MatchingLearner:
    """A `Learner`: see the module."""

    most_ways = None

    def __init__(self, network: MatchingNet) -> None:
        self.network = network.eval()

    @torch.no_grad()
    def encode(self, drawings: Tensor) -> Tensor:
        features: Tensor = self.network(drawings)
        return features

    @torch.no_grad()
    def answer(self, shown: Tensor, asked: Tensor) -> Tensor:
        return self.network.match(shown, asked).argmax(1)
