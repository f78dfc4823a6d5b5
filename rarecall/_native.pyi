# The C++ extension. Tensors must be contiguous, on the CPU, and of the type and length that are expected, else it raises.

from collections.abc import Callable, Mapping
from typing import TypeAlias

from torch import Tensor

_Buffers: TypeAlias = Mapping[str, Tensor | None]  # those of a memory: keys, values, sources, counts, times, now

class Found:
    """What queries found, see native/memory/recall.h; its tensors share its memory."""

    @property
    def query(self) -> Tensor: ...
    @property
    def inverse_lengths(self) -> Tensor: ...
    @property
    def slots(self) -> Tensor: ...
    @property
    def similarities(self) -> Tensor: ...
    @property
    def values(self) -> Tensor: ...
    @property
    def weights(self) -> Tensor: ...

class Book:
    """What follows from values and times, see native/memory/book.h."""

    @property
    def used(self) -> int: ...
    @property
    def filled(self) -> int: ...
    def rebuild(self, buffers: _Buffers, /) -> None: ...

class Index:
    """What finds neighbours, see native/index/index.h."""

    def rebuild(self, book: Book, buffers: _Buffers, threads: int, /) -> None: ...

class ExactIndex(Index):
    """See native/index/exact.h."""

    def __init__(self, key_size: int, capacity: int, /) -> None: ...

class AutoIndex(Index):
    """See native/index/auto.h."""

    def __init__(self, key_size: int, capacity: int, target_recall: float, small: int, many: int) -> None: ...
    @property
    def reads_lists(self) -> bool: ...
    def export_state(self) -> dict[str, Tensor]: ...
    def restore(self, tensors: Mapping[str, Tensor], /) -> None: ...

def variants() -> list[str]: ...
def use_variant(name: str, /) -> None: ...
def are_ids(ids: Tensor, shape: tuple[int, ...], at_least: int, /) -> bool: ...
def stamp(buffers: _Buffers, names: tuple[str, ...], /) -> int: ...
def ask(query: Tensor, exclude: Tensor | None, key_size: int, k: int, hints: int = 0) -> Found: ...
def recall(
    book: Book,
    buffers: _Buffers,
    index: Index,
    query: Tensor,
    exclude: Tensor | None,
    k: int,
    inverse_temperature: float,
    threads: int,
) -> Found: ...
def rank(
    book: Book, buffers: _Buffers, found: Found, candidates: Tensor, inverse_temperature: float, threads: int, /
) -> None: ...
def found_of(
    units: Tensor,
    inverse_lengths: Tensor,
    slots: Tensor,
    similarities: Tensor,
    values: Tensor,
    weights: Tensor,
    exclude: Tensor | None,
    key_size: int,
    k: int,
) -> Found: ...
def recall_gradient(
    keys: Tensor,
    changed: Tensor,
    before: Tensor,
    found: Found,
    of_units: Tensor | None,
    of_similarities: Tensor | None,
    of_weights: Tensor | None,
    inverse_temperature: float,
    threads: int,
) -> Tensor: ...
def loss(
    book: Book,
    buffers: _Buffers,
    found: Found,
    target: Tensor,
    mask: Tensor | None,
    margin: float,
    with_gradient: bool,
) -> tuple[Tensor, Tensor | None]: ...
def update(
    book: Book,
    buffers: _Buffers,
    index: Index | None,
    found: Found,
    target: Tensor,
    source: Tensor | None,
    mask: Tensor | None,
    age_noise: float,
    draw: Callable[[], Tensor],
    keep: bool,
    threads: int,
) -> tuple[Tensor, Tensor | None]: ...
def write(
    book: Book,
    buffers: _Buffers,
    index: Index | None,
    keys: Tensor,
    values: Tensor,
    source: Tensor | None,
    count: Tensor | None,
    age_noise: float,
    draw: Callable[[], Tensor],
    keep: bool,
    threads: int,
) -> tuple[Tensor, Tensor | None]: ...
def erase(
    book: Book, buffers: _Buffers, index: Index | None, slots: Tensor, keep: bool, threads: int
) -> Tensor | None: ...
