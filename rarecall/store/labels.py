"""The labels of a folder: text and numbers for people, integers for the memory."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
import torch

from rarecall.store.folder import canonical
from rarecall.store.slots import NOWHERE

Label: TypeAlias = str | int | float | bool


class Labels:
    """Labels in the order they were first taught; the value of a slot is the number of its label."""

    def __init__(self) -> None:
        self.names: list[str] = []  # as JSON
        self._labels: list[Label] = []
        self._numbers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, number: int) -> Label:
        return self._labels[number]

    def add(self, names: Iterable[str]) -> None:
        """Add labels, as JSON."""
        for name in names:
            number = len(self.names)
            self._labels[number:] = [json.loads(name)]
            self._numbers[name] = number
            self.names.append(name)  # last: where Ctrl-C comes before, it is added again

    def number(self, label: Any) -> int:
        """Return the number of a label; NOWHERE, which no example has, where it was never taught."""
        return self._numbers.get(to_json(label), NOWHERE)

    def numbers(self, labels: Iterable[Any]) -> tuple[list[int], list[str]]:
        """Return the numbers of labels, and those that are new, as JSON: they are numbered as if they were added."""
        numbers, new = list[int](), dict[str, int]()
        for label in labels:
            name = to_json(label)
            number = self._numbers.get(name)
            numbers.append(new.setdefault(name, len(self.names) + len(new)) if number is None else number)
        return numbers, list(new)


def to_json(label: Any) -> str:
    """Return a label as JSON."""
    label = label.item() if isinstance(label, np.generic | torch.Tensor) else label
    if not isinstance(label, str | int | float | bool):
        raise TypeError(f"Got a label of type {type(label).__name__}; expected text or a number.")
    try:
        return canonical(label)
    except ValueError:
        raise ValueError(f"Got the label {label}; expected text or a finite number.") from None
