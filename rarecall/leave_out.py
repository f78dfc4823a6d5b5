"""What a memory was taught, asked again as if it had not been: what readers are fitted by.

The constants were chosen on BANKING77, CLINC150 and photos of groceries; docs/intents.md says how.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from rarecall.memory import Memory

INVERSE_TEMPERATURE = 40.0  # of votes, as in the paper
# Each class is cut into this many blocks, in the order of teaching, and an example is left out with its block: photos
# of one shelf or sentences of one author are more alike than a new question will be, and would favour the neighbours.
BLOCKS = 5
QUESTIONS = 2**13  # most questions asked: half as many lose 1 point on CLINC150, twice as many gain nothing
TABLE = 2**23  # most numbers in a table of questions by classes
BATCH = 512  # questions asked, or learned from, at once
ABSENT = 30.0  # log-odds by which a class without a neighbour is behind the best one with
# The weights of votes, means and metric: where the first two start, standard deviations of the priors, and the most of
# each. Votes are the surer the more alike the taught examples are to each other; their limit keeps that in check.
WEIGHTS, SPREADS, LIMITS = (10.0, 13.0), (10.0, 10.0, 0.5), (25.0, 100.0, 1.0)
# The same of these three together, and of the whitened means beside them, which start at 1 and 0.
WHITENED_SPREADS, WHITENED_LIMITS = (1.0, 10.0), (2.0, 100.0)
SHRINKAGE = 0.3  # what is added to the variance within classes in all directions, in units of its mean
LEAST_VARIANCE = 0.01  # within classes, of keys of length 1, all directions together
WEIGHT_QUESTIONS, SWEEPS = 2048, 8
CROSS_FITTED = 1024  # up to so many questions the metric's weight is fitted by all blocks in turn
# The metric is learned by Adam in the directions in which keys vary most; its prior has this variance a number.
DIRECTIONS, STEPS, LEARNING_RATE, METRIC_VARIANCE = 256, 100, 0.15, 100.0
UNKNOWN_SHARE = 0.1  # share of questions of a class that was never taught

# Makes one number of the similarities (n, k) of neighbours whose classes are columns (n, k): (n, number of columns).
Pool: TypeAlias = Callable[[Tensor, Tensor, int], Tensor]


@dataclass(frozen=True, eq=False)
class Questions:
    """n examples that were taught, and what the memory says of them without their blocks, for each of c classes.

    Attributes:
        query: (n, key_size), ordered by block.
        right: (n,) int64, the class of each, from 0 to c - 1.
        blocks: how many questions are of each block; those of a block were asked without that block of all classes.
        votes: (n, c), of the neighbours of each class together; where it has none, `ABSENT` behind the best.
        sums: (BLOCKS, c, key_size), of the keys of each class in each block.
        counts: (BLOCKS, c), the examples in them.
    """

    query: Tensor
    right: Tensor
    blocks: tuple[int, ...]
    votes: Tensor
    sums: Tensor
    counts: Tensor

    def directions(self, *without: int) -> Tensor:
        """(c, key_size): the means of the classes without some blocks, of length 1."""
        return functional.normalize(self.sums[_other_blocks(*without)].sum(0))

    def by_block(self, *tables: Tensor) -> list[tuple[Tensor, ...]]:
        """Return the rows of each block, of tables of n rows."""
        return list(zip(*(table.split(self.blocks) for table in tables), strict=True))


def ask(memory: Memory, pool: Pool) -> Questions | None:
    """Ask a memory for what it was taught.

    Args:
        pool: makes votes of similarities: `votes_of` or `nearest_of`.

    Returns:
        None where nothing can be left out: no class has two slots, or there is only one class.
    """
    slots, keys, values, _, counts, ages = memory.slots()
    classes, column = values.unique(return_inverse=True)
    block = _blocks(column, ages, len(classes))
    chosen = (column.bincount(minlength=len(classes))[column] > 1).nonzero().squeeze(1)
    if len(classes) < 2 or not len(chosen):
        return None
    most = min(QUESTIONS, max(TABLE // len(classes), 1))
    if len(chosen) > most:
        generator = torch.Generator().manual_seed(0)
        chosen = chosen[torch.randperm(len(chosen), generator=generator)[:most].to(chosen.device).sort().values]

    # What each slot is of; -1 is none, also that of slot -1.
    column_of, block_of = (slots.new_full((memory.capacity + 1,), -1) for _ in range(2))
    column_of[slots], block_of[slots] = column, block
    asked, votes = [], []
    for rows in chosen.split(BATCH):
        recall = memory(keys[rows])
        columns = column_of[recall.slots]
        hidden = (block_of[recall.slots] == block[rows, None]) | (columns < 0)
        counted = pool(recall.similarities.masked_fill(hidden, -torch.inf), columns.clamp_(min=0), len(classes))
        best = counted.amax(1, keepdim=True)
        there = (best > -torch.inf).squeeze(1)  # else all neighbours are of its block
        asked.append(rows[there])
        votes.append(torch.where(counted > -torch.inf, counted, best - ABSENT / INVERSE_TEMPERATURE)[there])
    rows, table = torch.cat(asked), torch.cat(votes)
    if not len(rows):
        return None
    order = block[rows].sort(stable=True).indices
    rows = rows[order]

    place, times = block * len(classes) + column, counts.to(keys)
    examples = keys.new_zeros(BLOCKS * len(classes)).index_add_(0, place, times).view(BLOCKS, -1)
    sums = keys.new_zeros(BLOCKS * len(classes), memory.key_size).index_add_(0, place, keys * times[:, None])
    numbers = block[rows].bincount(minlength=BLOCKS).tolist()
    return Questions(keys[rows], column[rows], tuple(numbers), table[order], sums.view(*examples.shape, -1), examples)


def nearest_of(similarities: Tensor, columns: Tensor, count: int) -> Tensor:
    """Return the largest of the similarities in each of `count` columns, (n, count); -inf where there is none."""
    none = similarities.new_full((len(similarities), count), -torch.inf)
    return none.scatter_reduce_(1, columns, similarities, "amax")


def votes_of(similarities: Tensor, columns: Tensor, count: int) -> Tensor:
    """Return a soft maximum, log(sum(exp(40 s))) / 40, of the similarities in each column; -inf where there is none."""
    best = similarities.amax(1, keepdim=True).clamp_(min=-1.0)
    weights = (INVERSE_TEMPERATURE * (similarities - best)).exp_()
    sums = similarities.new_zeros((len(similarities), count)).scatter_add_(1, columns, weights)
    return sums.log_().div_(INVERSE_TEMPERATURE).add_(best)


def fit_blend(questions: Questions) -> tuple[tuple[float, float], Tensor, Tensor, Tensor, tuple[float, float]]:
    """Return the weights of votes and means; metric, whitening and centre; and `fit_known` of all together.

    Metric and whitening have many numbers, and are worth less for other questions than for those that they were fitted
    to. So their weights are fitted by questions whose block they have not seen: of all blocks in turn, or where there
    are many, of one. Whitened means get their weight last, beside the three others together: the metric, of which such
    questions show too little, would else give way to them.
    """
    right, votes = questions.right, questions.votes
    queries, basis = questions.query.split(questions.blocks), _main_directions(questions.query)
    means = torch.cat([query @ questions.directions(block).T for block, query in enumerate(queries)])
    start = fit_weights(right, (votes, means), WEIGHTS, SPREADS, LIMITS)
    scatter = _Scatter(questions)
    by_metric, by_whitening = [], []
    for block in range(BLOCKS) if len(right) <= CROSS_FITTED else range(1):
        metric = fit_metric(questions, basis, start, skip=block)
        by_metric.append(queries[block] @ metric @ questions.directions(block).T)
        whitening, centre, class_means = scatter.whitening(block)
        by_whitening.append((queries[block] - centre) @ whitened(class_means - centre, whitening).T)
    unseen, cosines = torch.cat(by_metric), torch.cat(by_whitening)
    right, terms = right[: len(unseen)], (votes[: len(unseen)], means[: len(unseen)], unseen)
    # Of classes of two examples none is left to fit a metric that has not seen a third.
    weights = fit_weights(right, terms, (*start, float(unseen.any())), SPREADS, LIMITS)
    both = _weighted(weights, terms), cosines
    share, weight = fit_weights(right, both, (1.0, 0.0), WHITENED_SPREADS, WHITENED_LIMITS)
    of_votes, of_means, of_metric = (share * each for each in weights)
    whitening, centre, _ = scatter.whitening()
    metric = of_metric * fit_metric(questions, basis, start)
    known = fit_known(right, _weighted((share, weight), both))
    return (of_votes, of_means), metric, weight**2 * whitening, centre, known


def whitened(deviations: Tensor, whitening: Tensor) -> Tensor:
    """Return W x / |x| of each of the deviations, (c, key_size), with |x| the square root of x . W x."""
    turned = deviations @ whitening
    return turned / (turned * deviations).sum(1, keepdim=True).clamp_(min=1e-12).sqrt_()


class _Scatter:
    """What covariances within classes are made of, with or without a block."""

    def __init__(self, questions: Questions) -> None:
        self.questions, classes = questions, questions.counts.shape[1]
        self.origin = questions.query.mean(0)  # seen from there, less is lost by rounding
        query = questions.query - self.origin
        self.moments = torch.stack([part.T @ part for part in query.split(questions.blocks)])
        block = torch.arange(BLOCKS, device=questions.right.device).repeat_interleave(
            torch.tensor(questions.blocks, device=questions.right.device)
        )
        place = block * classes + questions.right
        self.asked = place.bincount(minlength=BLOCKS * classes).view(BLOCKS, classes).to(questions.query)
        self.sums = torch.zeros_like(questions.sums).view(BLOCKS * classes, -1).index_add_(0, place, query)
        self.sums = self.sums.view_as(questions.sums)

    def whitening(self, *without: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return W, the centre C, and the class means, (c, key_size), all without some blocks.

        W is such that the mean of x . W x over questions seen from the centre is 1.
        """
        blocks, questions = _other_blocks(*without), self.questions
        asked, sums, moment = (each[blocks].sum(0) for each in (self.asked, self.sums, self.moments))
        total = asked.sum().clamp(min=1)
        scaled = sums / asked.clamp(min=1).sqrt()[:, None]
        covariance = (moment - scaled.T @ scaled) / (total - (asked > 0).sum()).clamp(min=1)
        variance = covariance.diagonal().mean().clamp(min=LEAST_VARIANCE / len(covariance))
        covariance.diagonal().add_(SHRINKAGE * variance)
        whitening = torch.cholesky_inverse(torch.linalg.cholesky(covariance))
        counts = questions.counts[blocks].sum(0)
        means = questions.sums[blocks].sum(0) / counts.clamp(min=1)[:, None]
        centre = means.sum(0) / (counts > 0).sum()
        offset = centre - self.origin
        turned = whitening @ offset
        length = (whitening * moment).sum() / total - 2 * (turned @ sums.sum(0)) / total + turned @ offset
        return whitening / length.clamp(min=1e-6), centre, means  # 0 where all questions equal the centre


def fit_weights(
    right: Tensor,
    terms: tuple[Tensor, ...],
    start: tuple[float, ...],
    spreads: tuple[float, ...],
    limits: tuple[float, ...],
) -> tuple[float, ...]:
    """Return the weights of terms, each (n, c), that minimise the log loss: Newton's method, one weight at a time."""
    rows = slice(0, None, max(len(right) // WEIGHT_QUESTIONS, 1))
    right, terms, weights = right[rows, None], tuple(term[rows] for term in terms), list(start)
    for _ in range(SWEEPS):
        for i, term in enumerate(terms):
            p = _weighted(weights, terms).softmax(1)
            expected = (p * term).sum(1, keepdim=True)
            slope = float((expected - term.gather(1, right)).sum()) + (weights[i] - start[i]) / spreads[i] ** 2
            curvature = float((p * (term - expected).square()).sum()) + 1 / spreads[i] ** 2
            weights[i] = min(max(weights[i] - slope / curvature, 0.0), limits[i])
    return tuple(weights)


def _weighted(weights: Sequence[float], terms: tuple[Tensor, ...]) -> Tensor:
    total = weights[0] * terms[0]
    for weight, term in zip(weights[1:], terms[1:], strict=True):
        total.add_(term, alpha=weight)
    return total


def fit_metric(questions: Questions, basis: Tensor, weights: tuple[float, ...], skip: int = -1) -> Tensor:
    """Return the metric (key_size, key_size) that minimises the log loss of votes + means + query @ metric @ means.

    Args:
        basis: (key_size, r), of the directions that it is made of.
        weights: of votes and means.
        skip: a block that takes no part, nor in the means.
    """
    parts = []
    for block, (query, right, votes) in enumerate(
        questions.by_block(questions.query, questions.right, questions.votes)
    ):
        if block != skip and len(query):
            means = questions.directions(block, skip)
            parts.append((query @ basis, right, _weighted(weights, (votes, query @ means.T)), means @ basis))
    count = max(sum(len(part[0]) for part in parts), 1)  # none, where all questions are of the block
    metric = basis.new_zeros(basis.shape[1], basis.shape[1])
    momentum, squares = torch.zeros_like(metric), torch.zeros_like(metric)
    generator = torch.Generator().manual_seed(0)
    for step in range(1, STEPS + 1):
        gradient = metric / (METRIC_VARIANCE * count)
        for query, right, offset, means in parts:
            rows = torch.randperm(len(query), generator=generator)[: BATCH // BLOCKS].to(query.device)
            some = query[rows]
            error = torch.addmm(offset[rows], some @ metric, means.T).softmax(1)
            error.scatter_add_(1, right[rows, None], -torch.ones_like(error[:, :1]))
            gradient.addmm_(some.T, error @ means, alpha=len(query) / (count * len(rows)))
        momentum.lerp_(gradient, 0.1)
        squares.lerp_(gradient.square(), 0.01)
        rate = LEARNING_RATE * (1 - step / (STEPS + 1)) / (1 - 0.9**step)
        metric.addcdiv_(momentum, (squares / (1 - 0.99**step)).sqrt_().add_(1e-8), value=-rate)
    return basis @ metric @ basis.T


def fit_known(right: Tensor, scores: Tensor) -> tuple[float, float]:
    """Return slope and offset of the log-odds of being known, by a question's best score.

    Args:
        right: (n,) int64, the class of each.
        scores: (n, c); the best with its own class stands for what is known, the best without for what is not.
    """
    with_class = scores.amax(1)
    without = scores.scatter(1, right[:, None], -torch.inf).amax(1)
    best = torch.cat([with_class, without]).double()
    known = torch.cat([torch.ones_like(with_class), torch.zeros_like(without)]).double()
    best, known = best[best > -torch.inf], known[best > -torch.inf]
    weight = torch.where(known > 0, 1 - UNKNOWN_SHARE, UNKNOWN_SHARE)
    centre, spread = best.mean(), best.std().clamp(min=1e-6)
    inputs = torch.stack([(best - centre) / spread, torch.ones_like(best)], 1)
    solution = inputs.new_zeros(2)
    for _ in range(20):  # Newton's method, with a weak prior, since the two may be separable
        p = (inputs @ solution).sigmoid()
        slope = inputs.T @ (weight * (p - known)) + 0.1 * solution
        curvature = inputs.T @ ((weight * p * (1 - p))[:, None] * inputs) + 0.1 * torch.eye(2).to(inputs)
        solution = solution - torch.linalg.solve(curvature, slope)
    steepness = max(float(solution[0]), 0.0) / float(spread)
    return steepness, float(solution[1]) - steepness * float(centre)


def _other_blocks(*without: int) -> list[int]:
    return [block for block in range(BLOCKS) if block not in without]


def _blocks(column: Tensor, ages: Tensor, classes: int) -> Tensor:
    """(n,) int64, from 0 to BLOCKS - 1: the block of each slot in its class, the oldest first."""
    order = ages.sort(descending=True, stable=True).indices
    order = order[column[order].sort(stable=True).indices]
    sizes = column.bincount(minlength=classes)
    rank = torch.empty_like(column)
    rank[order] = torch.arange(len(column), device=column.device) - (sizes.cumsum(0) - sizes)[column[order]]
    return (BLOCKS * rank).div(sizes[column], rounding_mode="floor")


def _main_directions(vectors: Tensor) -> Tensor:
    """(key_size, r): an orthonormal basis of where vectors, (n, key_size), are longest."""
    size = vectors.shape[1]
    if size <= DIRECTIONS:
        return torch.eye(size).to(vectors)
    # In float32 it does not converge, or gives nan, where a few vectors have many directions without any variation.
    moment = (vectors.T @ vectors).double()
    return torch.linalg.eigh(moment).eigenvectors[:, -DIRECTIONS:].to(vectors).contiguous()
