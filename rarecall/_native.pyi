# A tensor must be contiguous, on the CPU, and of the type and length that are expected, else it raises. `_Fields` are
# those of a struct of native/*.h, in order, packed; see `native.packed`.

from collections.abc import Callable, Mapping
from typing import TypeAlias

from torch import Generator, Tensor

_Fields: TypeAlias = bytes

def variants() -> list[str]: ...
def use_variant(name: str, /) -> None: ...
def copy_keys(copy: _Fields, memory: _Fields, used: int, slots: Tensor | None, threads: int, /) -> None: ...
def find(
    copy: _Fields,
    memory: _Fields,
    used: int,
    k: int,
    queries: Tensor,
    exclude: Tensor | None,
    threads: int,
    found: Tensor,
    scores: Tensor,
    /,
) -> None: ...
def recall(
    memory: _Fields,
    k: int,
    queries: Tensor,
    m: int,
    found: Tensor,
    exclude: Tensor | None,
    inverse_temperature: float,
    threads: int,
    slots: Tensor,
    similarities: Tensor,
    values: Tensor,
    weights: Tensor,
    /,
) -> None: ...
def normalise(size: int, vectors: Tensor, units: Tensor, inverse_lengths: Tensor | None, /) -> int: ...
def recall_gradient(
    memory: _Fields,
    changed: Tensor,
    before: Tensor,
    units: Tensor,
    k: int,
    slots: Tensor,
    weights: Tensor,
    inverse_lengths: Tensor,
    of_units: Tensor | None,
    of_similarities: Tensor | None,
    of_weights: Tensor | None,
    inverse_temperature: float,
    threads: int,
    of_queries: Tensor,
    /,
) -> None: ...
def margin_loss(
    memory: _Fields,
    chains: _Fields | None,
    k: int,
    queries: Tensor,
    similarities: Tensor,
    values: Tensor,
    exclude: Tensor | None,
    targets: Tensor,
    mask: Tensor | None,
    margin: float,
    columns: Tensor | None,
    slopes: Tensor | None,
    positives: Tensor | None,
    mean: Tensor,
    /,
) -> tuple[int, int]: ...
def margin_gradient(
    k: int,
    key_size: int,
    columns: Tensor,
    slopes: Tensor,
    positives: Tensor,
    by: float,
    similarities: Tensor,
    queries: Tensor | None,
    /,
) -> None: ...
def link(chains: _Fields, memory: _Fields, slots: Tensor, /) -> None: ...
def unlink(chains: _Fields, memory: _Fields, slots: Tensor, /) -> None: ...
def newest(chains: _Fields, memory: _Fields, targets: Tensor, exclude: Tensor | None, slots: Tensor, /) -> None: ...
def are_ids(ids: Tensor, rows: Tensor, at_least: int, /) -> bool: ...
def version(memory: _Fields, buffers: Mapping[str, Tensor | None], /) -> int: ...
def update(
    memory: _Fields,
    clock: _Fields,
    chains: _Fields | None,
    k: int,
    queries: Tensor,
    nearest: Tensor,
    answers: Tensor,
    targets: Tensor,
    sources: Tensor | None,
    age_noise: float,
    draw: Callable[[Generator | None], int],
    generator: Generator | None,
    touched: Tensor,
    before: Tensor | None,
    /,
) -> tuple[int, int, int, bool]: ...
def lists_change(
    lists: _Fields,
    slots: Tensor,
    near: int,
    queries: Tensor | None,
    exclude: Tensor | None,
    recall: float,
    threads: int,
    /,
) -> tuple[int, int]: ...
def lists_restore(lists: _Fields, threads: int, /) -> None: ...
def lists_recall(
    lists: _Fields,
    k: int,
    queries: Tensor,
    exclude: Tensor | None,
    probes: int,
    inverse_temperature: float,
    threads: int,
    near: int,
    slots: Tensor,
    similarities: Tensor,
    values: Tensor,
    weights: Tensor,
    /,
) -> None: ...
def lists_valid(lists: _Fields, /) -> bool: ...
def large_pages(address: int, bytes: int, there: bool, /) -> None: ...
