# Tensors are passed as their data_ptr(), 0 where there is none. See native/*.h for what is expected of them.

from typing import TypeAlias

def variants() -> list[str]: ...
def use_variant(name: str, /) -> None: ...
def copy_keys(
    codes: int,
    inverse_scale: int,
    residual: int,
    longest: int,
    key_size: int,
    keys: int,
    values: int,
    slots: int,
    count: int,
    threads: int,
    /,
) -> None: ...
def find(
    codes: int,
    inverse_scale: int,
    residual: int,
    longest: int,
    key_size: int,
    keys: int,
    sources: int,
    used: int,
    queries: int,
    exclude: int,
    n: int,
    k: int,
    threads: int,
    found: int,
    scores: int,
    /,
) -> None: ...
def recall(
    keys: int,
    values: int,
    sources: int,
    key_size: int,
    queries: int,
    n: int,
    found: int,
    m: int,
    exclude: int,
    inverse_temperature: float,
    threads: int,
    slots: int,
    similarities: int,
    neighbour_values: int,
    weights: int,
    k: int,
    /,
) -> None: ...
def normalise(vectors: int, n: int, size: int, units: int, inverse_lengths: int, /) -> int: ...
def recall_gradient(
    keys: int,
    key_size: int,
    changed: int,
    before: int,
    count: int,
    slots: int,
    weights: int,
    units: int,
    inverse_lengths: int,
    n: int,
    k: int,
    of_units: int,
    of_similarities: int,
    of_weights: int,
    inverse_temperature: float,
    threads: int,
    of_queries: int,
    /,
) -> None: ...

# The fields of Chains, and of Clock.
_Chains: TypeAlias = tuple[int, int, int, int]
_Clock: TypeAlias = tuple[int, ...]

def margin_loss(
    keys: int,
    values: int,
    sources: int,
    key_size: int,
    queries: int,
    similarities: int,
    of_neighbours: int,
    exclude: int,
    n: int,
    k: int,
    targets: int,
    mask: int,
    chains: _Chains,
    margin: float,
    columns: int,
    slopes: int,
    positives: int,
    /,
) -> tuple[float, int, int]: ...
def margin_gradient(
    columns: int,
    slopes: int,
    positives: int,
    n: int,
    k: int,
    key_size: int,
    by: float,
    similarities: int,
    queries: int,
    /,
) -> None: ...
def link(chains: _Chains, values: int, slots: int, count: int, /) -> None: ...
def unlink(chains: _Chains, values: int, slots: int, count: int, /) -> None: ...
def newest(chains: _Chains, values: int, sources: int, targets: int, exclude: int, n: int, slots: int, /) -> None: ...
def least(numbers: int, n: int, /) -> int: ...
def update(
    keys: int,
    values: int,
    sources: int,
    key_size: int,
    clock: _Clock,
    chains: _Chains,
    queries: int,
    nearest: int,
    answers: int,
    stride: int,
    targets: int,
    given: int,
    n: int,
    age_noise: float,
    seed: int,
    touched: int,
    before: int,
    /,
) -> tuple[int, int, int, tuple[int, int, int, int, int]]: ...

# The first argument of these: the fields of Lists, in order, packed.
def lists_change(
    fields: bytes,
    slots: int,
    n: int,
    near: int,
    queries: int,
    asked: int,
    exclude: int,
    recall: float,
    threads: int,
    /,
) -> tuple[int, int]: ...
def lists_restore(fields: bytes, threads: int, /) -> None: ...
def lists_recall(
    fields: bytes,
    queries: int,
    n: int,
    exclude: int,
    probes: int,
    inverse_temperature: float,
    threads: int,
    near: int,
    slots: int,
    similarities: int,
    values: int,
    weights: int,
    k: int,
    /,
) -> None: ...
def lists_valid(fields: bytes, /) -> bool: ...
def large_pages(address: int, bytes: int, there: bool, /) -> None: ...
