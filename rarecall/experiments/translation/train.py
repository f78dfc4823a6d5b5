"""rarecall translate train --preset cpu --out runs/translation

What a run writes is told in `rarecall.experiments.training`.
"""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rarecall.experiments.results import commit
from rarecall.experiments.training import CHECKPOINT, Pace, go, read_checkpoint, schedule, write_checkpoint
from rarecall.experiments.translation import networks
from rarecall.experiments.translation.bleu import bleu
from rarecall.experiments.translation.candidates import draw
from rarecall.experiments.translation.pairs import Batch, Pairs, encode
from rarecall.experiments.translation.text import Files, Text, read
from rarecall.experiments.translation.translator import remember, translate
from rarecall.experiments.translation.vocabulary import Vocabulary, learn
from rarecall.models.beam import Beam
from rarecall.models.decoded import Decoded

WATCHED = 300  # sentences of the development set that are translated as training goes on
PADDING = -100  # of no piece
TOGETHER = 50  # passages of the text in a window, from anywhere in it; as many pairs come alone
OWN = 0.1  # share of sentences that may be answered by what they wrote themselves when they were shown before


@dataclass(frozen=True)
class Run:
    """What was asked for; a checkpoint of one run does not go on as another.

    Attributes:
        pieces: of the vocabulary.
        units, layers, shortcut, ask, trust: of the network.
        capacity: slots of the memory, 0 for none.
        frozen: nothing learns but what has to do with the memory; the network that it begins with stays as it is.
        steps: of the whole run; the learning rate reaches 0 at the last.
        tokens: target pieces of a step at the most.
        rate: the greatest learning rate of Adam.
        dropout: of what goes into a layer.
        smoothing: of the labels.
        drawn: pieces that take part in a step's softmax beside those of its targets (see `candidates`); 0: all.
        passage: pairs that follow one another in the text and are shown together, so that the memory has to do with
            what was said of late, as it has in use; 0: all pairs in random order.
        clip: the greatest norm of the gradient.
        longest: pieces of a sentence; pairs with a longer one are left out of training.
        seed: of everything random.
        trained_on: what a table says of the text.
        text, vocabulary: digests, so that a run does not go on with others.
        repeats: how often a pair of each file is seen in an epoch.
        begun_with: the run whose weights it began with, in a word; "" for none.
        bfloat16: compute the network in bfloat16, with weights, losses and optimizer in float32. A step took about
            half of the time, or less, on a processor with AVX-512 BF16.
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
    begun_with: str = ""
    bfloat16: bool = False


@dataclass(frozen=True, eq=False)
class Data:
    """What a run is trained and watched with.

    Attributes:
        training: the pairs.
        development: a text to watch it with.
        vocabulary: of both.
    """

    training: Pairs
    development: Text
    vocabulary: Vocabulary


def prepare(files: Files, development: Text, pieces: int | Vocabulary, *, quiet: bool = False) -> tuple[Data, str]:
    """Reads the text, learns its vocabulary where none is given, and encodes it; also returns the text's digest."""
    text = read(files.sources, files.targets)
    vocabulary = learn(text, pieces, quiet=quiet) if isinstance(pieces, int) else pieces
    return Data(encode(text, vocabulary, cached=True, quiet=quiet), development, vocabulary), text.digest


def train(
    run: Run,
    data: Data,
    out: str | os.PathLike[str],
    pace: Pace | None = None,
    begin: networks.Trained | None = None,
) -> bool:
    """Trains, from the checkpoint in `out` where there is one. Returns False where it was stopped before the end.

    Args:
        run: what is asked for.
        data: the text.
        out: the folder of the run.
        pace: how often to report, measure and save.
        begin: a trained network to begin with, of the same shapes and vocabulary.
    """
    out = Path(out)
    started_from = commit()  # the code on the disk may change while the run lasts
    state = State(run, data, begin)
    out.mkdir(parents=True, exist_ok=True)
    if (out / CHECKPOINT).is_file():
        state.read(out / CHECKPOINT)
    ended = go(
        state,
        run.steps,
        state.forward_one,
        out,
        pace or Pace(report=50, measure=1000, save=500),
        title="translation with memory" if run.capacity else "translation",
        measure=state.validate,
        shown=("loss", "tokens_per_second", "memory_right", "bleu"),
    )
    if ended:
        about = asdict(run) | {"pairs": len(data.training)} | ({"plans": state.plans} if state.plans else {})
        trained = networks.Trained(state.network, data.vocabulary, about, started_from)
        networks.save(trained, out / "network.safetensors")
    return ended


class State:
    """All that a step changes: the network and its memory, the optimizer, and where in which epoch it is."""

    def __init__(self, run: Run, data: Data, begin: networks.Trained | None = None) -> None:
        self.run, self.data, self.step = run, data, 0
        self.plans: list[list[int]] = []  # [n, steps]: up to step n the run was to have so many steps
        self.which = data.training.repeated(run.repeats, run.longest)
        if len(self.which) == 0:
            raise ValueError(
                f"None of the {len(data.training)} pairs is of use: one side is empty or has more than {run.longest} "
                "pieces. Give other text or a greater --longest."
            )
        if run.capacity and run.capacity < run.tokens:
            raise ValueError(
                f"A memory of {run.capacity} slots is too small for steps of {run.tokens} pieces, each of which may "
                "need a slot. Ask for a greater --capacity."
            )
        if run.frozen and (begin is None or not run.capacity):
            raise ValueError(
                "--frozen trains what has to do with the memory, and nothing else. Ask for --memory, and name a "
                "network to begin with by --from."
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
        """One step; returns its figures."""
        began = time.perf_counter()
        # What is frozen has no dropout: the memory is asked as it will be.
        run, network = self.run, self.network.train(not self.run.frozen)
        batch = self.next_batch()
        rate = run.rate * schedule(self.step / run.steps, warm_up=0.02, hold=0.4)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        among = draw(batch.target, network.symbols, run.drawn or network.symbols)
        excluded = self.excluded(batch) if run.capacity else None
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=run.bfloat16):
            decoded = network(batch.source, batch.target, excluded, among.pieces)
        # What is padding is marked rather than cut out, which would copy all logits, the largest tensor there is.
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
        self.optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self._learning, run.clip)
        self.optimizer.step()
        remember(network, decoded, batch)
        self.step += 1
        figures = {"loss": loss.item(), "by_output": by_output.item(), "norm": norm.item(), "rate": rate}
        tokens = int(batch.mask.sum())
        figures |= {"epoch": self.epoch + self.place / len(self._batches()), "tokens": float(tokens)}
        if decoded.recall is not None:
            figures |= {"by_memory": by_memory.item(), "by_trust": by_trust.item()}
            figures["slots"] = float(len(network.memory or ()))
            figures |= of_memory(decoded, batch)
        return figures | {"tokens_per_second": tokens / (time.perf_counter() - began)}

    def excluded(self, batch: Batch) -> Tensor:
        """(n,) int64: the source that each sentence must not be answered from, or -1.

        A sentence that comes again is not answered by the keys that it wrote itself, so that it asks for what is alike.
        Where windows are shown again, some are, and teach how far to trust an answer that is sure.
        """
        own = torch.rand(len(batch.ids)) < (OWN if self.run.passage else 0)
        return torch.where(own, -1, batch.ids)

    def next_batch(self) -> Batch:
        """The next batch of the epoch, or the first of the next."""
        if self.place == len(self._batches()):
            self.epoch, self.place = self.epoch + 1, 0
        self.place += 1
        return self.data.training.batch(self._batches()[self.place - 1])

    def _batches(self) -> list[Tensor]:
        """The batches of the epoch; they follow from its number, so a checkpoint need not hold them."""
        if self._of_epoch is None or self._of_epoch[0] != self.epoch:
            run, pairs = self.run, self.data.training
            generator = torch.Generator().manual_seed(1_000_003 * run.seed + self.epoch)
            windows = [self.which]
            if run.passage:
                found = pairs.windows(run.repeats, run.longest, run.passage, TOGETHER, generator)
                # As many pairs come alone: where nothing of the kind was shown, the memory is of less use.
                alone = [self.which[torch.randint(len(self.which), part.shape, generator=generator)] for part in found]
                found = [torch.cat(both) for both in zip(found, alone, strict=True)]
                # Each window is shown for the first time with the one before, which is shown for the second time: so
                # that at no time all is new, and at no time all is known.
                windows = [torch.cat(both) for both in pairwise([found[0][:0], *found, found[-1][:0]])]
            batches = [batch for window in windows for batch in pairs.batches(window, run.tokens, generator)]
            self._of_epoch = self.epoch, batches
        return self._of_epoch[1]

    def validate(self) -> dict[str, float]:
        """BLEU of the first sentences of the development set, each piece the likeliest after those before it."""
        self.network.eval()
        found = translate(self.network, self.data.vocabulary, self._watched.sources, Beam(width=1))
        return {"bleu": bleu(found, self._watched.targets)["score"]}

    def write(self, path: Path) -> None:
        """Everything to one file."""
        tensors = {f"network/{name}": tensor for name, tensor in self.network.state_dict().items()}
        header = {"run": asdict(self.run), "step": self.step, "plans": self.plans}
        header |= {"epoch": self.epoch, "place": self.place}
        write_checkpoint(path, tensors, self.optimizer, header)

    def read(self, path: Path) -> None:
        """Goes on from a file that `write` made."""
        asked = asdict(self.run) | {"repeats": list(self.run.repeats)}  # as JSON has it
        parts, header = read_checkpoint(path, asked, self.optimizer)
        self.network.load_state_dict(parts["network"])
        self.step, self.epoch, self.place = header["step"], header["epoch"], header["place"]
        self.plans = header["plans"]
        if header["run"]["steps"] != self.run.steps:
            self.plans.append([self.step, header["run"]["steps"]])


def of_memory(decoded: Decoded, batch: Batch) -> dict[str, float]:
    """How often the memory's own answers were right, and how sure it was of the right and of the wrong ones."""
    assert decoded.recall is not None
    right = (decoded.recall.value == batch.target)[batch.mask]
    confidence = decoded.recall.confidence.detach()[batch.mask]
    figures = {"memory_right": right.float().mean().item()}
    for name, which in (("right", right), ("wrong", ~right)):
        if which.any():
            figures[f"confidence_{name}"] = confidence[which].mean().item()
    return figures
