"""Readers: from a recall to probabilities over values.

The paper answers with the nearest neighbour. On embeddings that people use, no fixed reading is best: class means win
where a class has few examples, neighbours where it has many. `Blend` weighs both by what it would have got right.

>>> import torch
>>> from rarecall import Memory
>>> memory = Memory(key_size=2, capacity=10)
>>> memory.write(torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]), torch.tensor([7, 7, 8]))
>>> reading = Vote()(memory, memory(torch.tensor([[1.0, 0.2]])))
>>> reading.values
tensor([[7, 8]])
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from rarecall import leave_out
from rarecall.backend.native_backend import NativeBackend
from rarecall.class_means import ClassMeans
from rarecall.leave_out import Pool, Questions
from rarecall.memory import Memory
from rarecall.recall import Recall

# Questions read at once: what is made of their neighbours stays in the cache.
ROWS = 64
# A question this similar to a taught example is that example, and is answered by what was taught, with these log-odds.
SAME, SAME_ODDS = 1 - 1e-4, 5.0
TIE = 1e-5  # log-odds that put the nearest neighbour's class before an equally probable one
# A reader is fitted again when the memory has this many times as many filled slots as then, or as few.
GROWN = 1.25


@dataclass(frozen=True, eq=False)
class Reading:
    """What n questions are answered, best first.

    Attributes:
        values: (..., m) int64; -1 beyond the last.
        probabilities: (..., m), of each value given that it is among those that were taught; 0 beyond the last. They
            sum to 1 over all values of the neighbours, of which the m best are here.
        known: (...,), the probability that the question is of a value that was taught at all.
    """

    values: Tensor
    probabilities: Tensor
    known: Tensor


class Reader:
    """Reads recalls. A subclass says what a class is worth.

    Where there is little to go by:

    - an empty memory answers -1 with probability 0, known 0;
    - where nothing can be left out, since no class has two examples or all are of one class, `fit` makes the reader
      what it was at first;
    - a value that was forgotten after the fit is no answer, and no new fit is needed;
    - of a recall that was made before a value was forgotten, `Blend` leaves that value out, since it has no mean any
      more; `Nearest` and `Vote` answer as the memory stood when it was asked;
    - a question that equals a taught example, by a cosine of 0.9999, is answered by what was taught;
    - of equally probable values the nearest neighbour's comes first, and of equally near neighbours the newest.

    Args:
        answers: most values in a reading.
    """

    name: ClassVar[str]
    pool: ClassVar[Pool] = leave_out.votes_of

    def __init__(self, *, answers: int = 32) -> None:
        if answers < 1:
            raise ValueError(f"{type(self).__name__} got answers={answers}; expected 1 or greater.")
        self.answers = answers
        self.fitted = 0  # filled slots then
        self._reset()

    def __call__(self, memory: Memory, recall: Recall) -> Reading:
        """Read the recall of (..., key_size) queries. Any number of threads may do so at once."""
        outer = recall.shape[:-1]
        with torch.no_grad():
            native, read = memory.native, None
            if native is not None and recall.backend is native and not recall.edited:
                read = self._read_natively(memory, native, recall)
            if read is None:  # the extension did not make it, or the memory has changed since
                fields = (recall.query, recall.values, recall.similarities)
                rows = [field.detach().reshape(-1, field.shape[-1]).split(ROWS) for field in fields]
                parts = [self._read(memory, *each) for each in zip(*rows, strict=True)]
                values, probabilities, known = map(torch.cat, zip(*parts, strict=True))
                width = max(int((values >= 0).any(0).sum()), 1)
                read = values[:, :width], probabilities[:, :width], known
        values, probabilities, known = read
        if len(outer) != 1:
            values, probabilities = (each.reshape(*outer, each.shape[1]) for each in (values, probabilities))
        return Reading(values, probabilities, known.view(outer))

    def fit(self, memory: Memory) -> None:
        """Fit to what the memory holds, by leaving it out; no other data is needed. Do not change it meanwhile."""
        self.fitted = len(memory)
        self._reset()
        with torch.no_grad():
            questions = leave_out.ask(memory, type(self).pool)
            if questions is not None:
                self._fit(questions)

    def refit(self, memory: Memory) -> bool:
        """Fit again where that is due; return whether it was."""
        stale = self.is_stale(memory)
        if stale:
            self.fit(memory)
        return stale

    def is_stale(self, memory: Memory) -> bool:
        """Return whether the memory has grown or shrunk by a quarter since the reader was fitted."""
        filled = len(memory)
        return filled != self.fitted and not self.fitted / GROWN < filled < self.fitted * GROWN

    def settings(self) -> dict[str, Any]:
        """Return all of the reader, as JSON has it; `from_settings` makes it again."""
        return {"name": self.name, "answers": self.answers, "fitted": self.fitted, "known": list(self.known)}

    def restore(self, settings: Mapping[str, Any]) -> None:
        """Become the reader of these settings."""
        if settings["name"] != self.name:
            raise ValueError(f"These are settings of the reader {settings['name']!r}; this one is {self.name!r}.")
        self.answers, self.fitted = int(settings["answers"]), int(settings["fitted"])
        slope, offset = settings["known"]
        self.known = float(slope), float(offset)

    # ---- what a subclass says ----

    def _reset(self) -> None:
        """Become what it was made as."""
        self.known = _cautious(leave_out.INVERSE_TEMPERATURE)  # slope and offset of the log-odds, by the best score

    def _fit(self, questions: Questions) -> None:
        self.known = leave_out.fit_known(questions.right, leave_out.INVERSE_TEMPERATURE * questions.votes)

    def _score(self, memory: Memory, query: Tensor, values: Tensor, similarities: Tensor, first: Tensor) -> Tensor:
        """Return log-odds of the class of each neighbour, (n, k), at the nearest of each class; -inf elsewhere.

        Args:
            memory: for its class means.
            query: (n, key_size), of length 1.
            values: (n, k) int64, the classes of the neighbours.
            similarities: (n, k); -inf where there are fewer.
            first: (n, k) int64, from 0 to k - 1: the nearest of the same class.
        """
        return leave_out.INVERSE_TEMPERATURE * type(self).pool(similarities, first, first.shape[1])

    def _read_natively(self, memory: Memory, native: NativeBackend, recall: Recall) -> tuple[Tensor, ...] | None:
        """Do what `_read` does in one call of the extension, which made the recall; or return None."""
        return native.read(recall.found, None, weight=leave_out.INVERSE_TEMPERATURE, **self._options())

    # ---- what all have in common ----

    def _options(self) -> dict[str, Any]:
        slope, offset = self.known
        sums, temperature = type(self).pool is leave_out.votes_of, leave_out.INVERSE_TEMPERATURE
        rule = {"sums": sums, "inverse_temperature": temperature, "same": SAME, "same_odds": SAME_ODDS}
        return rule | {"slope": slope, "offset": offset, "answers": self.answers}

    def _read(self, memory: Memory, query: Tensor, values: Tensor, similarities: Tensor) -> tuple[Tensor, ...]:
        """Return the values and probabilities, (n, m), and known, (n,)."""
        scores = self._score(memory, query, values, similarities, _first(values))
        best, own = scores.amax(1), scores[:, 0]  # the nearest neighbour is the first of its class
        slope, offset = self.known
        known = (slope * best + offset).sigmoid_().masked_fill_(best == -torch.inf, 0.0)
        same = (similarities[:, 0] >= SAME) & (own > -torch.inf)
        preferred = TIE * (own == best)
        scores[:, 0] = torch.where(same, best + SAME_ODDS, own)
        log_probs = scores - scores.logsumexp(1, keepdim=True)
        scores[:, 0] += preferred
        top, order = scores.topk(min(self.answers, scores.shape[1]), 1)
        gone = top == -torch.inf
        probabilities = log_probs.gather(1, order).exp_().masked_fill_(gone, 0.0)
        return values.gather(1, order).masked_fill_(gone, -1), probabilities, known


class Nearest(Reader):
    """The paper's: a class is worth its nearest neighbour."""

    name = "nearest"
    pool = leave_out.nearest_of


class Vote(Reader):
    """A class is worth the softmax weights of its neighbours together."""

    name = "vote"


class Blend(Reader):
    """Neighbours' votes and class means, weighed by what would have answered the taught examples.

    The log-odds of a class with mean M are `a votes + q . (b m + P m) + (q - C) . W (M - C) / |M - C|`, with m = M made
    of length 1:

    - the votes of its neighbours, and the cosine to its mean;
    - a metric P, (key_size, key_size), which turns means to where classes differ (as in metric learning for nearest
      class means, Mensink et al. 2013);
    - the cosine to its mean, seen from the centre C of all classes, where variation within classes counts for little: W
      is the inverse of the shrunk covariance within classes, and |x| the square root of x . W x. This is linear
      discriminant analysis with means of equal length.

    `fit` leaves out each example, with the part of its class that was taught next to it, and minimises the log loss by
    P and by the weights, which P and W have in them. All act on means as they are at any time, so a class that was
    taught after the fit profits as well.

    Attributes:
        weights: a and b.
        projection: b, P, W and C.
    """

    name = "blend"

    def _reset(self) -> None:
        self.weights: tuple[float, float] = leave_out.WEIGHTS
        self.projection = Projection(self.weights[1], None, None, None)
        self.known = _cautious(sum(self.weights))

    def _fit(self, questions: Questions) -> None:
        self.weights, metric, whitening, centre, self.known = leave_out.fit_blend(questions)
        self.projection = Projection(self.weights[1], metric, whitening, centre)

    def _score(self, memory: Memory, query: Tensor, values: Tensor, similarities: Tensor, first: Tensor) -> Tensor:
        votes = type(self).pool(similarities, first, first.shape[1])
        classes, columns = values.unique(return_inverse=True)
        vectors, offsets, examples = memory.class_vectors(self.projection, classes)
        of_means = torch.addmm(offsets, query, vectors.T).masked_fill_(examples == 0, -torch.inf).gather(1, columns)
        return of_means.add_(votes, alpha=self.weights[0]).masked_fill_(votes == -torch.inf, -torch.inf)

    def _read_natively(self, memory: Memory, native: NativeBackend, recall: Recall) -> tuple[Tensor, ...] | None:
        def read(means: ClassMeans) -> tuple[Tensor, ...] | None:
            if recall.version != means.version:
                return None
            classes = means.rows, means.vectors, means.offsets
            return native.read(recall.found, classes, weight=self.weights[0], **self._options())

        return memory.with_class_means(self.projection, read)

    def settings(self) -> dict[str, Any]:
        tensors = {name: _encoded(getattr(self.projection, name)) for name in PROJECTED}
        return super().settings() | {"weights": list(self.weights)} | tensors

    def restore(self, settings: Mapping[str, Any]) -> None:
        super().restore(settings)
        votes, means = settings["weights"]
        self.weights = float(votes), float(means)
        self.projection = Projection(self.weights[1], *(_decoded(settings.get(name)) for name in PROJECTED))


PROJECTED = ("metric", "whitening", "centre")


@dataclass(frozen=True, eq=False)
class Projection:
    """Makes of class means what questions are multiplied with; see `Blend`.

    Attributes:
        weight: b.
        metric: P, or None where there was nothing to fit it by.
        whitening: W, (key_size, key_size), or None.
        centre: C, (key_size,), or None.
    """

    weight: float
    metric: Tensor | None
    whitening: Tensor | None
    centre: Tensor | None

    def __call__(self, means: Tensor) -> tuple[Tensor, Tensor]:
        """(c, key_size) -> (c, key_size), and what is to be added to the products, (c,)."""
        units = functional.normalize(means)
        vectors, offsets = self.weight * units, means.new_zeros(len(means))
        if self.metric is not None:
            vectors.addmm_(units, self.metric.to(means).view(means.shape[1], -1).T)
        if self.whitening is not None and self.centre is not None:
            centre = self.centre.to(means)
            whitened = leave_out.whitened(means - centre, self.whitening.to(means).view(means.shape[1], -1))
            vectors, offsets = vectors + whitened, -(whitened @ centre)
        return vectors, offsets


READERS: dict[str, type[Reader]] = {reader.name: reader for reader in (Nearest, Vote, Blend)}


def make(reader: str | Reader) -> Reader:
    """Return a reader by its name, or the reader itself."""
    if isinstance(reader, Reader):
        return reader
    if reader not in READERS:
        raise ValueError(f"No reader is called {reader!r}; expected one of {', '.join(READERS)}, or a Reader.")
    return READERS[reader]()


def from_settings(settings: Mapping[str, Any]) -> Reader:
    """Return the reader that `settings` described."""
    reader = make(settings["name"])
    reader.restore(settings)
    return reader


def _encoded(tensor: Tensor | None) -> str | None:
    return None if tensor is None else base64.b64encode(tensor.cpu().numpy().astype("<f4").tobytes()).decode()


def _decoded(text: str | None) -> Tensor | None:
    return None if text is None else torch.from_numpy(np.frombuffer(base64.b64decode(text), "<f4").copy())


def _first(values: Tensor) -> Tensor:
    """(n, k) int64: of each of the values, (n, k), the first column in its row that has the same."""
    ordered, order = values.sort(dim=1, stable=True)
    begins = functional.pad(ordered.diff(dim=1) != 0, (1, 0))
    columns = torch.arange(values.shape[1], device=values.device)
    return order.scatter(1, order, order.gather(1, (begins * columns).cummax(1).values))


def _cautious(most: float) -> tuple[float, float]:
    """Slope and offset of the log-odds of being known before a fit: 0.01 at a score of 0, 0.99 at the most."""
    return 9.2 / most, -4.6
