"""A scikit-learn classifier: what it is shown it remembers, with `fit` at once or with `partial_fit` bit by bit.

>>> from rarecall.sklearn import RareClassifier                        # doctest: +SKIP
>>> make_pipeline(StandardScaler(), RareClassifier()).fit(x, y)        # doctest: +SKIP
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from rarecall import reading
from rarecall.memory import Memory

BATCH = 256  # questions at once


class RareClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Answers by the taught examples nearest to a question; a class needs one example.

    Features are centred and get a constant beside them before they are made of length 1, so that every row has a
    direction, and rows that differ in length alone can be told apart.

    Args:
        reader: how neighbours become an answer: "blend", "vote" or "nearest"; see `rarecall.reading`.
        k: neighbours of a question.
        search: how they are found, a name as for `Memory`.

    Attributes:
        classes_: (c,) the labels, sorted.
        memory_: what was taught; its values are indices of `taught_`.
        taught_: labels in the order in which they were first taught.
        mean_, scale_: of the features, of the first rows that were seen.
        n_features_in_: number of features.
    """

    def __init__(self, reader: str = "blend", k: int = 256, search: str = "exact") -> None:
        self.reader, self.k, self.search = reader, k, search

    def fit(self, X: Any, y: Any) -> RareClassifier:
        """Forget everything, and remember X (n, features) with labels y (n,), each row in a slot of its own."""
        X, y = validate_data(self, X, y, dtype=np.float32)
        check_classification_targets(y)
        classes, values = np.unique(y, return_inverse=True)
        if len(classes) < 1:
            raise ValueError("fit got no class.")
        self.classes_ = self.taught_ = classes
        self._learn_scale(X)
        self.memory_ = Memory(X.shape[1] + 1, max(len(X), 1), k=min(self.k, max(len(X), 1)), search=self.search)
        self.memory_.write(self._keys(X), torch.from_numpy(values.astype(np.int64)))
        self._fit_reader()
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> RareClassifier:
        """Remember more. New classes may come at any time; `classes` is there for scikit-learn and not needed.

        Rows of one call do not see each other. The scale of the features is that of the first call.
        """
        first = not hasattr(self, "memory_")
        X, y = validate_data(self, X, y, dtype=np.float32, reset=first)
        check_classification_targets(y)
        if first:
            self.taught_ = np.unique(y if classes is None else np.asarray(classes))
            self._learn_scale(X)
            self.memory_ = Memory(X.shape[1] + 1, 1024, k=min(self.k, 1024), search=self.search)
        self.taught_ = np.concatenate([self.taught_, np.setdiff1d(y, self.taught_)])
        self.classes_ = np.unique(self.taught_)
        order = np.argsort(self.taught_, kind="stable")
        values = order[np.searchsorted(self.taught_[order], y)]
        self._make_room(len(X))
        self.memory_.update(self.memory_(self._keys(X)), torch.from_numpy(values))
        self._fit_reader()
        return self

    def predict_proba(self, X: Any) -> Any:
        """Return (n, classes) the probability of each of `classes_`."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float32, reset=False)
        column = np.searchsorted(self.classes_, self.taught_)
        probabilities = np.zeros((len(X), len(self.classes_)))
        for start in range(0, len(X), BATCH):
            recall = self.memory_(self._keys(X[start : start + BATCH]))
            read = self._reader(self.memory_, recall)
            rows, places = np.nonzero(read.values.numpy() >= 0)
            found = column[read.values.numpy()[rows, places]]
            probabilities[start + rows, found] = read.probabilities.numpy()[rows, places]
        total = probabilities.sum(1, keepdims=True)
        return np.where(total > 0, probabilities / np.where(total > 0, total, 1.0), 1 / len(self.classes_))

    def predict(self, X: Any) -> Any:
        """Return (n,) the most probable label of each row."""
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(1)]

    def _learn_scale(self, X: Any) -> None:
        """The mean of the rows, and their typical distance from it: the constant is as long."""
        self.mean_ = X.mean(0, dtype=np.float64)
        self.scale_ = float(np.sqrt(((X - self.mean_) ** 2).sum(1).mean())) or 1.0

    def _keys(self, X: Any) -> torch.Tensor:
        keys = np.column_stack([X - self.mean_, np.full(len(X), self.scale_)])
        return torch.from_numpy((keys / self.scale_).astype(np.float32))

    def _make_room(self, count: int) -> None:
        old = self.memory_
        capacity = old.capacity
        while len(old) + count > capacity:
            capacity *= 2
        if capacity > old.capacity:
            self.memory_ = Memory(old.key_size, capacity, k=old.k, search=self.search)
            rows = old.slots()._asdict()
            slots, ages = rows.pop("slots"), rows.pop("ages")
            self.memory_.put(slots, now=int(old.now), times=old.now - ages, **rows)

    def _fit_reader(self) -> None:
        self._reader = reading.make(self.reader)
        self._reader.answers = len(self.classes_)
        self._reader.fit(self.memory_)
