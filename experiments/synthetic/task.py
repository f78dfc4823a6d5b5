"""The synthetic task: As and Bs are copied, and the one number between them goes through a random function.

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
VALIDATION = 500  # examples at most
PADDING = SYMBOLS  # after the end of a sequence; no network gets to see it


@dataclass(frozen=True)
class Task:
    """What is to be learned, and from how many examples; the paper's numbers are the defaults.

    Attributes:
        symbols: the function f maps {2, ..., symbols} to itself.
        digits: of a number, in base 4, with leading zeros.
        shortest, longest: lengths of a sequence; every length is as likely (the paper tells only the longest).
        training, test: how many examples.
        seed: of f and of the examples.
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
                "the shortest first."
            )
        if min(self.training, self.test) < 1:
            raise ValueError(f"Task got {self.training} training and {self.test} test examples; expected at least 1.")


@dataclass(frozen=True, eq=False)
class Examples:
    """Pairs of input and output.

    Attributes:
        x: (n,) int64, the numbers in the inputs.
        lengths, starts: (n,) int64, of each sequence, and where its number begins.
        inputs, outputs: (n, greatest length) int64, PADDING after the end.
        digits: of a number.
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
        """Some of them, cut to the longest."""
        lengths = self.lengths[which]
        end = int(lengths.max()) if len(lengths) else 0
        inputs, outputs = self.inputs[which, :end], self.outputs[which, :end]
        return Examples(self.x[which], lengths, self.starts[which], inputs, outputs, self.digits)

    def of_digits(self, places: Tensor) -> Tensor:
        """(n, length, ...) -> (n, digits, ...): what is at the places of the digits."""
        where = self.starts[:, None] + torch.arange(self.digits)
        return places[torch.arange(len(self))[:, None], where]


class Data:
    """The function, the training and the test examples of a task, and others, drawn as the test's, to validate with."""

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
        """Examples of these numbers, of any length of the task."""
        lengths = torch.randint(self.task.shortest, self.task.longest + 1, x.shape, generator=generator)
        return self.surround(x, lengths, generator)

    def surround(self, x: Tensor, lengths: Tensor, generator: torch.Generator | None = None) -> Examples:
        """Examples of these numbers and lengths; the place of the number, the As and the Bs are drawn.

        Args:
            x: (n,) int64.
            lengths: (n,) int64.
            generator: of what is drawn; the global one by default.
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
        """(n,) int64: in how many training examples each number is."""
        return torch.bincount(self.training.x, minlength=self.task.symbols + 1)[x]


def digits_of(x: Tensor, digits: int) -> Tensor:
    """(n,) -> (n, digits): in base 4, the greatest first."""
    powers = BASE ** torch.arange(digits - 1, -1, -1)
    return x[:, None] // powers % BASE


def batches(examples: Examples, size: int, generator: torch.Generator | None = None) -> Iterator[Tensor]:
    """Numbers of examples, at most `size` at a time, all of one length; in random order where there is a generator."""
    found = []
    for length in examples.lengths.unique():
        which = (examples.lengths == length).nonzero().squeeze(1)
        if generator is not None:
            which = which[torch.randperm(len(which), generator=generator)]
        found += which.split(size)
    order = range(len(found)) if generator is None else torch.randperm(len(found), generator=generator).tolist()
    for number in order:
        yield found[number]
