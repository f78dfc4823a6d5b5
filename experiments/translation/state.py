"""Settings and state of a training run."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments.training import read_checkpoint, schedule, write_checkpoint
from experiments.translation import networks
from experiments.translation.bleu import bleu
from experiments.translation.candidates import draw
from experiments.translation.pairs import Batch, Pairs
from experiments.translation.selection import most_like
from experiments.translation.text import Text
from experiments.translation.translator import remember, translate
from experiments.translation.vocabulary import Vocabulary
from rarecall.models.beam import Beam
from rarecall.models.decoded import Decoded

WATCHED = 300  # sentences of the development set that are translated during training
PADDING = -100  # target that the loss ignores
TOGETHER = 50  # passages per window, from anywhere in the text; the window gets as many single pairs
OWN = 0.1  # fraction of sentences whose own earlier keys are not excluded from their recall


@dataclass(frozen=True)
class Run:
    """Settings of a run. A checkpoint can only be resumed with the same settings.

    Attributes:
        pieces: vocabulary size.
        units, layers, shortcut, ask, trust, reattend: settings of the network.
        capacity: slots of the memory; 0 for no memory.
        frozen: train only the parameters that use the memory; the others keep their initial values.
        steps: total number of steps; the learning rate reaches 0 at the last.
        tokens: maximum number of target pieces per step.
        rate: peak learning rate of Adam.
        dropout: dropout of the layers' inputs.
        smoothing: label smoothing.
        drawn: sampled pieces in a step's softmax besides those of its targets (see `candidates`); 0: all.
        passage: consecutive pairs of the text that are kept together, so that the memory contains related sentences, as
            it does in use; 0: all pairs in random order.
        clip: maximum gradient norm.
        longest: maximum number of pieces of a sentence; other pairs are left out of training.
        seed: random seed.
        trained_on: name of the text in tables.
        text, vocabulary: digests, so that a run is not resumed with others.
        repeats: how often each file is repeated in an epoch.
        select: of the pairs that are not repeated, use this share: those most like the repeated ones (see `selection`).
        begun_with: description of the network it was initialised with; "" for none.
        bfloat16: compute the network in bfloat16, with weights, losses and optimizer in float32. A step took half the
            time or less on a processor with AVX-512 BF16.
    """

    pieces: int
    units: int
    layers: int
    capacity: int
    steps: int
    tokens: int
    rate: float
    dropout: float
    shortcut: bool = False
    ask: bool = False
    trust: bool = False
    reattend: bool = False
    frozen: bool = False
    smoothing: float = 0.1
    drawn: int = 0
    passage: int = 0
    clip: float = 1.0
    longest: int = 80
    seed: int = 0
    trained_on: str = ""
    text: str = ""
    vocabulary: str = ""
    repeats: tuple[int, ...] = (1,)
    select: float = 1.0
    begun_with: str = ""
    bfloat16: bool = False


@dataclass(frozen=True, eq=False)
class Data:
    """The texts of a run.

    Attributes:
        training: training pairs.
        development: development set, translated during training.
        vocabulary: vocabulary of both.
    """

    training: Pairs
    development: Text
    vocabulary: Vocabulary


class State:
    """State of a run: the network and its memory, the optimizer, and the position in the epoch."""

    def __init__(self, run: Run, data: Data, begin: networks.Trained | None = None) -> None:
        self.run, self.data, self.step = run, data, 0
        self.plans: list[list[int]] = []  # [n, steps]: until step n, `run.steps` was `steps`
        self.usable = data.training.usable(run.longest)
        if run.select < 1:
            self.usable &= most_like(data.training, torch.tensor(run.repeats) > 1, run.select)
        self.which = data.training.repeated(run.repeats, self.usable)
        if len(self.which) == 0:
            raise ValueError(
                f"None of the {len(data.training)} pairs is usable: one side is empty or has more than {run.longest} "
                "pieces. Use other text or a greater --longest."
            )
        if run.capacity and run.capacity < run.tokens:
            raise ValueError(
                f"A memory of {run.capacity} slots is too small for steps of {run.tokens} pieces, each of which may "
                "need a slot. Use a greater --capacity."
            )
        if run.frozen and (begin is None or not run.capacity):
            raise ValueError(
                "--frozen trains only the parameters that use the memory. Use --memory, and --from with a trained "
                "network."
            )
        torch.manual_seed(run.seed)
        self.network = networks.make_network(len(data.vocabulary), asdict(run))
        if begin is not None:
            networks.begin_with(self.network, begin)
        if run.frozen:
            networks.freeze(self.network)
        self._learning = [parameter for parameter in self.network.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.Adam(self._learning, lr=run.rate, betas=(0.9, 0.98), fused=True)
        self.epoch, self.place = 0, 0
        self._of_epoch: tuple[int, list[Tensor]] | None = None
        self._watched = data.development.of(range(min(WATCHED, len(data.development))))

    def forward_one(self) -> dict[str, float]:
        """Run one training step. Returns its metrics."""
        began = time.perf_counter()
        run, network = self.run, self.network.train()
        batch, rate = self.next_batch(), self.set_rate()
        among = draw(batch.target, network.symbols, run.drawn or network.symbols)
        excluded = self.excluded(batch) if run.capacity else None
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=run.bfloat16):
            decoded = network(batch.source, batch.target, excluded, among.pieces)
        # Padding is masked rather than removed, which would copy the logits, the largest tensor.
        right = among.places.masked_fill(~batch.mask, PADDING)
        logits, right = (decoded.logits.float() + among.weights).flatten(0, 1), right.flatten()
        by_output = F.cross_entropy(logits, right, ignore_index=PADDING, label_smoothing=run.smoothing)
        by_memory = by_trust = torch.zeros(())
        if network.memory is not None and decoded.recall is not None:
            by_memory = network.memory.loss(decoded.recall, batch.target, mask=batch.mask)
        if network.decoder.trust is not None and decoded.recall is not None:
            says = -F.cross_entropy(logits.detach(), right, ignore_index=PADDING, reduction="none")
            by_trust = network.decoder.trust.loss(says.view_as(batch.target), decoded.recall, batch.target)
            by_trust = by_trust[batch.mask].mean()
        loss = by_output + by_memory + by_trust
        norm = self.descend(loss)
        remember(network, decoded, batch)
        figures = {"loss": loss.item(), "by_output": by_output.item(), "norm": norm, "rate": rate}
        tokens = int(batch.mask.sum())
        figures |= {"epoch": self.progress(), "tokens": float(tokens)}
        if decoded.recall is not None:
            figures |= {"by_memory": by_memory.item(), "by_trust": by_trust.item()}
            figures["slots"] = float(len(network.memory or ()))
            figures |= of_memory(decoded, batch)
        return figures | {"tokens_per_second": tokens / (time.perf_counter() - began)}

    def set_rate(self) -> float:
        """Set the learning rate of this step. Returns it."""
        rate = self.run.rate * schedule(self.step / self.run.steps, warm_up=0.02, hold=0.4)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        return rate

    def descend(self, loss: Tensor) -> float:
        """Run one step of the optimizer. Returns the gradient's norm before it was clipped."""
        self.optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self._learning, self.run.clip)
        self.optimizer.step()
        self.step += 1
        return norm.item()

    def excluded(self, batch: Batch) -> Tensor:
        """Return the source to exclude from the recall of each sentence, (n,) int64, or -1.

        A repeated sentence must not be answered by the keys that it wrote itself, so that it learns to retrieve similar
        sentences. With passages, a fraction OWN is not excluded, to learn how far to trust a confident answer.
        """
        own = torch.rand(len(batch.ids)) < (OWN if self.run.passage else 0)
        return torch.where(own, -1, batch.ids)

    def next_batch(self) -> Batch:
        """Return the next batch; starts the next epoch if necessary."""
        return self.data.training.batch(self.next_of_epoch())

    def next_of_epoch(self) -> Tensor:
        """Return the indices of the next pairs of the epoch; starts the next epoch if necessary."""
        if self.place == len(self._of_this_epoch()):
            self.epoch, self.place = self.epoch + 1, 0
        self.place += 1
        return self._of_this_epoch()[self.place - 1]

    def progress(self) -> float:
        """Return the number of epochs done."""
        return self.epoch + self.place / len(self._of_this_epoch())

    def _of_this_epoch(self) -> list[Tensor]:
        """Return the pairs of each step, which depend only on the epoch and the seed, so checkpoints omit them."""
        if self._of_epoch is None or self._of_epoch[0] != self.epoch:
            generator = torch.Generator().manual_seed(1_000_003 * self.run.seed + self.epoch)
            self._of_epoch = self.epoch, self.make_epoch(generator)
        return self._of_epoch[1]

    def make_epoch(self, generator: torch.Generator) -> list[Tensor]:
        """Return the pairs of each step of an epoch."""
        windows = [self.which]
        if self.run.passage:
            found = self.passages(TOGETHER, generator)
            # Each window is shown twice: first together with the previous one, then with the next one. So at any
            # time some pairs are new to the memory and some are known.
            windows = [torch.cat(both) for both in pairwise([found[0][:0], *found, found[-1][:0]])]
        pairs, tokens = self.data.training, self.run.tokens
        return [batch for window in windows for batch in pairs.batches(window, tokens, generator)]

    def passages(self, together: int, generator: torch.Generator) -> list[Tensor]:
        """Return windows of `together` passages and as many single pairs, which have no context in the memory."""
        run = self.run
        found = self.data.training.windows(run.repeats, self.usable, run.passage, together, generator)
        alone = [self.which[torch.randint(len(self.which), part.shape, generator=generator)] for part in found]
        return [torch.cat(both) for both in zip(found, alone, strict=True)]

    def validate(self) -> dict[str, float]:
        """Return BLEU of the first sentences of the development set, with greedy decoding."""
        self.network.eval()
        found = translate(self.network, self.data.vocabulary, self._watched.sources, Beam(width=1))
        return {"bleu": bleu(found, self._watched.targets)["score"]}

    def write(self, path: Path) -> None:
        """Write the complete state to one file."""
        tensors = {f"network/{name}": tensor for name, tensor in self.network.state_dict().items()}
        header = {"run": asdict(self.run), "step": self.step, "plans": self.plans}
        header |= {"epoch": self.epoch, "place": self.place}
        write_checkpoint(path, tensors, self.optimizer, header)

    def read(self, path: Path) -> None:
        """Restore the state from a file written by `write`."""
        asked = asdict(self.run) | {"repeats": list(self.run.repeats)}  # as in JSON
        parts, header = read_checkpoint(path, asked, self.optimizer)
        self.network.load_state_dict(parts["network"])
        self.step, self.epoch, self.place = header["step"], header["epoch"], header["place"]
        self.plans = header["plans"]
        if header["run"]["steps"] != self.run.steps:
            self.plans.append([self.step, header["run"]["steps"]])


def of_memory(decoded: Decoded, batch: Batch) -> dict[str, float]:
    """Return the accuracy of the memory's own answers, and its confidence in right and in wrong ones."""
    assert decoded.recall is not None
    right = (decoded.recall.value == batch.target)[batch.mask]
    confidence = decoded.recall.confidence.detach()[batch.mask]
    figures = {"memory_right": right.float().mean().item()}
    for name, which in (("right", right), ("wrong", ~right)):
        if which.any():
            figures[f"confidence_{name}"] = confidence[which].mean().item()
    return figures
