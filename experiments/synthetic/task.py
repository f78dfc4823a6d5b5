"""The synthetic task: copy As and Bs, and apply a random function to the number between them.

input   A 0 1 3 2 3 3 2 B A B A B        0132332 in base 4 is 1982
output  A 0 3 2 2 0 3 2 B A B A B        f(1982) = 3726 is 0322032
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

BASE = 4
A, B = BASE, BASE + 1
SYMBOLS = BASE + 2  # the digits, A and B
VALIDATION = 500  # maximum number of validation examples
PADDING = SYMBOLS  # after the end of a sequence; never part of a network's input


@dataclass(frozen=True)
class Task:
    """Settings of the task; the defaults are the paper's.

    Attributes:
        symbols: the function f maps {2, ..., symbols} to itself.
        digits: digits of a number in base 4, with leading zeros.
        shortest, longest: range of sequence lengths, uniformly distributed (the paper specifies only the longest).
        training, test: numbers of examples.
        seed: random seed of f and of the examples.
    """

    symbols: int = 16_000
    digits: int = 7
    shortest: int = 8
    longest: int = 40
    training: int = 40_000
    test: int = 10_000
    seed: int = 0

    def __post_init__(self) -> None:
        if not 2 <= self.symbols < BASE**self.digits:
            raise ValueError(
                f"Task got symbols={self.symbols} with digits={self.digits}; expected 2 to {BASE**self.digits - 1}, so "
                f"that each is a number of {self.digits} digits in base {BASE}."
            )
        if not self.digits <= self.shortest <= self.longest:
            raise ValueError(
                f"Task got lengths {self.shortest} to {self.longest}; expected at least the {self.digits} digits, and "
                "shortest <= longest."
            )
        if min(self.training, self.test) < 1:
            raise ValueError(f"Task got {self.training} training and {self.test} test examples; expected at least 1.")


@dataclass(frozen=True, eq=False)
class Examples:
    """Pairs of input and output.

    Attributes:
        x: (n,) int64, numbers in the inputs.
        lengths, starts: (n,) int64, length of each sequence and position of its number.
        inputs, outputs: (n, maximum length) int64, PADDING after the end.
        digits: digits of a number.
    """

    x: Tensor
    lengths: Tensor
    starts: Tensor
    inputs: Tensor
    outputs: Tensor
    digits: int

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, which: Tensor) -> Examples:
        """Return some of the examples, trimmed to the longest of them."""
        lengths = self.lengths[which]
        end = int(lengths.max()) if len(lengths) else 0
        inputs, outputs = self.inputs[which, :end], self.outputs[which, :end]
        return Examples(self.x[which], lengths, self.starts[which], inputs, outputs, self.digits)

    def of_digits(self, places: Tensor) -> Tensor:
        """Select the positions of the digits, (n, length, ...) -> (n, digits, ...)."""
        where = self.starts[:, None] + torch.arange(self.digits)
        return places[torch.arange(len(self))[:, None], where]


class Data:
    """The function of a task, and its training, validation and test examples."""

    def __init__(self, task: Task) -> None:
        self.task = task
        generators = [torch.Generator().manual_seed(4 * task.seed + part) for part in range(4)]
        elements = task.symbols - 1
        self.function = torch.randint(elements, (task.symbols + 1,), generator=generators[0]) + 2
        self.training = self.draw(torch.randint(elements, (task.training,), generator=generators[1]) + 2, generators[1])
        self.test = self.draw(torch.randint(elements, (task.test,), generator=generators[2]) + 2, generators[2])
        few = min(task.test, VALIDATION)
        self.validation = self.draw(torch.randint(elements, (few,), generator=generators[3]) + 2, generators[3])

    def draw(self, x: Tensor, generator: torch.Generator | None = None) -> Examples:
        """Return examples of these numbers, with random lengths."""
        lengths = torch.randint(self.task.shortest, self.task.longest + 1, x.shape, generator=generator)
        return self.surround(x, lengths, generator)

    def surround(self, x: Tensor, lengths: Tensor, generator: torch.Generator | None = None) -> Examples:
        """Return examples of these numbers and lengths, with a random position of the number and random As and Bs.

        Args:
            x: (n,) int64, numbers.
            lengths: (n,) int64.
            generator: random generator (default: torch's global one).
        """
        digits, longest = self.task.digits, int(lengths.max())
        room = lengths - digits + 1
        starts = (torch.rand(x.shape, generator=generator, dtype=torch.float64) * room).long().clamp(max=room - 1)
        letters = torch.randint(A, B + 1, (len(x), longest), generator=generator)
        letters[torch.arange(longest) >= lengths[:, None]] = PADDING
        places = starts[:, None] + torch.arange(digits)
        inputs = letters.scatter(1, places, digits_of(x, digits))
        outputs = letters.scatter(1, places, digits_of(self.function[x], digits))
        return Examples(x, lengths, starts, inputs, outputs, digits)

    def times_seen(self, x: Tensor) -> Tensor:
        """Return the number of training examples with each number, (n,) int64."""
        return torch.bincount(self.training.x, minlength=self.task.symbols + 1)[x]


def digits_of(x: Tensor, digits: int) -> Tensor:
    """Convert to base 4, most significant digit first: (n,) -> (n, digits)."""
    powers = BASE ** torch.arange(digits - 1, -1, -1)
    return x[:, None] // powers % BASE


def batches(examples: Examples, size: int, generator: torch.Generator | None = None) -> Iterator[Tensor]:
    """Yield indices of at most `size` examples of the same length; in random order if a generator is given."""
    found = []
    for length in examples.lengths.unique():
        which = (examples.lengths == length).nonzero().squeeze(1)
        if generator is not None:
            which = which[torch.randperm(len(which), generator=generator)]
        found += which.split(size)
    order = range(len(found)) if generator is None else torch.randperm(len(found), generator=generator).tolist()
    for number in order:
        yield found[number]
