"""Ours and what people would use instead, on the same keys: each learns from examples and scores questions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from experiments.embedded.data import Split
from rarecall import Memory, MemoryClassifier, reading
from rarecall.reading import Reading

# Scores of questions, (n, key_size) -> (n, classes): the largest is the answer.
Scores = Callable[[Tensor], Tensor]
SHRINKAGE = 1e-4  # of streaming LDA, as in Hayes & Kanan 2020
STRENGTHS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)  # C of logistic regression, chosen on validation data
NEIGHBOURS = (1, 2, 5, 10)  # k of the kNN vote, likewise


def nearest(examples: Split, valid: Split, classes: int) -> Scores:
    """Answer by the nearest example: the paper's memory."""
    return lambda query: one_hot(examples.labels[(query @ examples.keys.T).argmax(1)], classes).float()


def class_means(examples: Split, valid: Split, classes: int) -> Scores:
    """Answer by the nearest class mean, by cosine."""
    means = normalize(sums(examples, classes))
    return lambda query: query @ means.T


def streaming_lda(examples: Split, valid: Split, classes: int) -> Scores:
    """Streaming LDA (Hayes & Kanan 2020): class means under the shrunk within-class covariance."""
    counts = examples.labels.bincount(minlength=classes).clamp(min=1)
    means = sums(examples, classes) / counts[:, None]
    centred = (examples.keys - means[examples.labels]).double()
    covariance = centred.T @ centred / len(centred)
    shrunk = (1 - SHRINKAGE) * covariance + SHRINKAGE * torch.eye(len(covariance)).double()
    weights = torch.linalg.solve(shrunk, means.double().T).float()  # (key_size, classes)
    offset = -0.5 * (means * weights.T).sum(1)
    return lambda query: query @ weights + offset


def knn_vote(examples: Split, valid: Split, classes: int) -> Scores:
    """The majority of the k nearest examples, as in ACM (Prabhu et al. 2023); k chosen on validation data."""

    def of(k: int) -> Scores:
        def scores(query: Tensor) -> Tensor:
            similarities, rows = (query @ examples.keys.T).topk(min(k, len(examples.keys)), 1)
            votes = one_hot(examples.labels[rows], classes).float()
            return votes.sum(1) + 1e-3 * (votes * similarities[..., None]).sum(1)  # of equals, the nearer

        return scores

    return of(max(NEIGHBOURS, key=lambda k: accuracy(of(k), valid)))


def logistic(examples: Split, valid: Split, classes: int) -> Scores:
    """scikit-learn's logistic regression at its defaults."""
    return _logistic(examples, classes, 1.0)


def logistic_tuned(examples: Split, valid: Split, classes: int) -> Scores:
    """The same, its regularisation chosen on validation data."""
    found = [_logistic(examples, classes, strength) for strength in STRENGTHS]
    return max(found, key=lambda scores: accuracy(scores, valid))


def _logistic(examples: Split, classes: int, strength: float) -> Scores:
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LogisticRegression(C=strength, max_iter=1000).fit(examples.keys.numpy(), examples.labels.numpy())

    def scores(query: Tensor) -> Tensor:
        found = torch.zeros(len(query), classes)
        found[:, model.classes_] = torch.from_numpy(model.predict_log_proba(query.numpy())).float()
        return found

    return scores


METHODS: dict[str, Callable[[Split, Split, int], Scores]] = {
    "nearest neighbour": nearest,
    "class means": class_means,
    "streaming LDA": streaming_lda,
    "kNN vote (ACM)": knn_vote,
    "logistic regression": logistic,
    "logistic regression, tuned": logistic_tuned,
}


def taught(
    examples: Split, *, reader: str | reading.Reader = "blend", portion: int | None = None, **memory: Any
) -> Any:
    """Return a classifier of keys that was taught examples, all at once or in portions."""
    options = {"capacity": len(examples.keys)} | memory
    classifier = MemoryClassifier(torch.nn.Identity(), Memory(examples.keys.shape[1], **options), reader=reader)
    for keys, labels in zip(
        examples.keys.split(portion or len(examples.keys)),
        examples.labels.split(portion or len(examples.keys)),
        strict=True,
    ):
        classifier.teach(keys, labels)
    return classifier


def sums(examples: Split, classes: int) -> Tensor:
    """(classes, key_size): the sum of the keys of each class."""
    return examples.keys.new_zeros(classes, examples.keys.shape[1]).index_add_(0, examples.labels, examples.keys)


def accuracy(scores: Scores, questions: Split) -> float:
    """Return the share of questions that are answered rightly, in per cent."""
    return percent(scores(questions.keys).argmax(1) == questions.labels)


def percent(right: Tensor) -> float:
    """Return the mean of bools, in per cent."""
    return 100 * float(right.float().mean())


def calibration_error(read: Reading, labels: Tensor, bins: int = 15) -> float:
    """Return the expected calibration error in per cent: |confidence - accuracy|, mean over bins of confidence."""
    confidence, right = read.probabilities[:, 0], (read.values[:, 0] == labels).float()
    place = (confidence * bins).long().clamp(max=bins - 1)
    gaps = torch.zeros(bins).index_add_(0, place, confidence - right)
    return 100 * float(gaps.abs().sum()) / len(labels)


def auroc(positive: Tensor, negative: Tensor) -> float:
    """Return the probability that a positive has a larger score than a negative, ties counted half."""
    both = torch.cat([positive, negative]).double()
    values, place = both.unique(return_inverse=True)
    counts = place.bincount(minlength=len(values))
    rank = (counts.cumsum(0) - (counts - 1) / 2)[place[: len(positive)]]
    n = len(positive)
    return float((rank.sum() - n * (n + 1) / 2) / (n * len(negative)))
