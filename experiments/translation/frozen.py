"""Train the memory's query and trust on a frozen network: `train --memory --frozen`.

Each step is an episode: a passage of consecutive pairs, and as many single pairs from anywhere, are decoded twice. Keys
are made from the prefixes of the reference, as when pairs are shown to the memory. Queries are made from prefixes in
which some pieces are the network's own choice, as when it translates. A query's neighbours are the keys of the other
sentences, and the loss is the likelihood of the correct pieces by the mixture of network and neighbours.

A key in a memory was made by the weights of an earlier step and gets no gradient. In an episode all keys are made by
the current weights, and are trained like the queries.
"""

from __future__ import annotations

import time
from typing import NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from experiments.translation import networks
from experiments.translation.pairs import Batch, Pairs, encode
from experiments.translation.state import OWN, Data, Run, State
from rarecall.integrations.listening import Asked
from rarecall.models.seq2seq import Encoded
from rarecall.recall import Recall

WATCHED = 5  # passages of the development set that are asked during training
TOGETHER = 10  # passages that are decoded at once, so that a batch has more pairs of the same length


class Pieces(NamedTuple):
    """Target pieces, n in all.

    Attributes:
        taught: (n, 3 * units), what the decoder's query is made of, after the prefix of the reference.
        asked: (n, 3 * units), the same after a prefix that has pieces of the network's own choice.
        values: (n,) int64, the correct pieces.
        ids: (n,) int64, the pair of each piece.
        says: (n,), the network's log-probability of the correct piece, after the prefix of `asked`.
    """

    taught: Tensor
    asked: Tensor
    values: Tensor
    ids: Tensor
    says: Tensor

    def of(self, which: Tensor) -> Pieces:
        """Return the pieces of the pairs `which`, (m,) int64."""
        there = torch.isin(self.ids, which)
        return Pieces(*(column[there] for column in self))


class Frozen(State):
    """State of a run that trains only the memory's query and trust."""

    def __init__(self, run: Run, data: Data, begin: networks.Trained | None = None) -> None:
        super().__init__(run, data, begin)
        if not (run.ask and run.trust and run.passage):
            raise ValueError(
                "--frozen trains the query (--ask) and the trust (--trust) on passages of the text (--passage). Use "
                "all three, or train without --frozen."
            )
        self.network.eval()
        self._decoded: tuple[tuple[int, int], Pieces] | None = None

    def forward_one(self) -> dict[str, float]:
        """Run one training step. Returns its metrics."""
        began = time.perf_counter()
        rate, pieces = self.set_rate(), self.next_pieces()
        asked = self.ask(pieces, torch.rand(len(pieces.ids)) < OWN)
        loss = self.loss_of(asked)
        norm, tokens = self.descend(loss), len(pieces.values)
        figures = {"loss": loss.item(), "gain": (-pieces.says.mean() - loss).item(), "norm": norm, "rate": rate}
        figures |= {"memory_right": (asked.value == asked.right).float().mean().item()}
        figures |= {"epoch": self.progress(), "tokens": float(tokens)}
        return figures | {"tokens_per_second": tokens / (time.perf_counter() - began)}

    def make_epoch(self, generator: torch.Generator) -> list[Tensor]:
        return self.passages(1, generator)

    def next_pieces(self) -> Pieces:
        """Return the pieces of the next passage of the epoch and its single pairs."""
        which = self.next_of_epoch()
        first = (self.place - 1) // TOGETHER * TOGETHER
        if self._decoded is None or self._decoded[0] != (self.epoch, first):
            self._decoded = None  # frees a few hundred megabytes
            # The same after a restart in the middle of them.
            generator = torch.Generator().manual_seed((1_000_003 * self.run.seed + self.epoch) * 1_000_003 + first)
            together = torch.cat(self._of_this_epoch()[first : first + TOGETHER]).unique()
            self._decoded = (self.epoch, first), self.decode(self.data.training, together, generator)
        return self._decoded[1].of(which)

    @torch.no_grad()
    def decode(self, pairs: Pairs, which: Tensor, generator: torch.Generator) -> Pieces:
        """Decode pairs, each with two prefixes.

        Args:
            pairs: the text.
            which: (m,) int64, indices of pairs.
            generator: random generator of the prefixes.
        """
        parts = pairs.batches(which, self.run.tokens, generator)
        rows = [self._decode(pairs.batch(part), generator) for part in parts]
        return Pieces(*(torch.cat(column) for column in zip(*rows, strict=True)))

    def _decode(self, batch: Batch, generator: torch.Generator) -> Pieces:
        target, mask = batch.target, batch.mask
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.run.bfloat16):
            encoded = self.network.encoder(batch.source)
            taught, logits = self._read(encoded, target)
            # From all pieces of the reference to all pieces of the network's choice.
            own = torch.rand(target.shape, generator=generator) < torch.rand((len(target), 1), generator=generator)
            asked, logits = self._read(encoded, torch.where(own, logits.argmax(-1), target))
        says = -F.cross_entropy(logits.float().flatten(0, 1), target.flatten(), reduction="none").view_as(target)
        ids = batch.ids[:, None].expand_as(target)
        taught, asked = taught.to(logits.dtype), asked.to(logits.dtype)
        return Pieces(*(column[mask] for column in (taught, asked, target, ids, says)))

    def _read(self, encoded: Encoded, written: Tensor) -> tuple[Tensor, Tensor]:
        """Return what queries are made of, (n, time, 3 * units), and the logits of all pieces."""
        network = self.network
        before = torch.cat((torch.full_like(written[:, :1], network.start), written[:, :-1]), 1)
        steps = network.decoder(before, encoded, network.decoder.begin(encoded))
        return steps.read, network.decoder.output(steps.states)

    def ask(self, pieces: Pieces, own: Tensor) -> Asked:
        """Return what the trust reads: the nearest keys of each query.

        Args:
            pieces: the pieces, each a key and a query.
            own: (n,) bool, which may be answered by keys of their own sentence, to learn how far to trust a confident
                answer.
        """
        network = self.network
        assert network.memory is not None
        assert network.decoder.ask is not None
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.run.bfloat16):
            keys, queries = network.decoder.ask(pieces.taught), network.decoder.ask(pieces.asked)
        keys, queries = F.normalize(keys.float(), dim=-1), F.normalize(queries.float(), dim=-1)
        excluded = (pieces.ids[:, None] == pieces.ids) & ~own[:, None]
        similarities = (queries @ keys.T).masked_fill(excluded, -torch.inf)
        similarities, nearest = similarities.topk(min(network.memory.k, len(keys)))
        values = pieces.values[nearest].masked_fill(similarities == -torch.inf, -1)
        return Asked(pieces.says, pieces.values, queries, similarities, values)

    def loss_of(self, asked: Asked) -> Tensor:
        """Return the negative log-likelihood of the correct pieces, per piece."""
        assert self.network.decoder.trust is not None
        return self.network.decoder.trust.loss(asked.says, cast(Recall, asked), asked.right).mean()

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """Return by how much the neighbours raise the log-likelihood of passages of the development set."""
        development = encode(self.data.development, self.data.vocabulary)
        usable = development.usable(self.run.longest).nonzero().squeeze(1)
        gains = []
        for number, passage in enumerate(usable.split(self.run.passage)[:WATCHED]):
            pieces = self.decode(development, passage, torch.Generator().manual_seed(number))
            loss = self.loss_of(self.ask(pieces, torch.zeros_like(pieces.ids, dtype=torch.bool)))
            gains.append(-pieces.says.mean().item() - loss.item())
        return {"gain_on_development": sum(gains) / len(gains)}
