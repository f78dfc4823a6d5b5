# Tensors are passed as their data_ptr(), 0 where there is none. See native/*.h for what is expected of them.

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
def weigh(
    keys: int,
    key_size: int,
    changed: int,
    before: int,
    count: int,
    slots: int,
    weights: int,
    n: int,
    k: int,
    threads: int,
    gradient: int,
    /,
) -> None: ...
def normalise(vectors: int, n: int, size: int, units: int, inverse_lengths: int, /) -> int: ...
def normalise_gradient(
    units: int, inverse_lengths: int, of_units: int, n: int, size: int, of_vectors: int, /
) -> None: ...
def first_right_and_wrong(values: int, targets: int, n: int, k: int, columns: int, /) -> None: ...
def margin_loss(
    similarities: int,
    columns: int,
    newest: int,
    mask: int,
    n: int,
    k: int,
    key_size: int,
    queries: int,
    keys: int,
    alpha: float,
    slopes: int,
    positives: int,
    /,
) -> tuple[float, int]: ...
def margin_gradient(
    columns: int,
    n: int,
    k: int,
    key_size: int,
    slopes: int,
    positives: int,
    by: float,
    similarities: int,
    queries: int,
    /,
) -> None: ...
def plan(
    keys: int,
    key_size: int,
    queries: int,
    nearest: int,
    answers: int,
    targets: int,
    n: int,
    confirmed: int,
    new_keys: int,
    missed: int,
    /,
) -> tuple[int, int, int]: ...
def write(
    confirmed: int,
    new_keys: int,
    confirmed_count: int,
    missed: int,
    missed_count: int,
    queries: int,
    targets: int,
    sources_given: int,
    written: int,
    key_size: int,
    keys: int,
    values: int,
    sources: int,
    /,
) -> None: ...
def link(heads: int, next: int, previous: int, bits: int, values: int, slots: int, count: int, /) -> None: ...
def unlink(heads: int, next: int, previous: int, bits: int, values: int, slots: int, count: int, /) -> None: ...
def find_newest(
    heads: int,
    next: int,
    previous: int,
    bits: int,
    values: int,
    sources: int,
    targets: int,
    exclude: int,
    n: int,
    newest: int,
    /,
) -> None: ...
def oldest(
    touched: int, slots: int, times: int, head: int, tail: int, count: int, reach: int, lines: int, room: int, /
) -> int: ...

# The first argument of these is a tuple: the fields of Lists, in order.
def lists_change(fields: tuple[int, ...], slots: int, n: int, threads: int, /) -> int: ...
def lists_restore(fields: tuple[int, ...], threads: int, /) -> None: ...
def lists_search(
    fields: tuple[int, ...], queries: int, n: int, k: int, exclude: int, probes: int, threads: int, found: int, /
) -> None: ...
def lists_learn(fields: tuple[int, ...], queries: int, n: int, exclude: int, recall: float, threads: int, /) -> int: ...
def lists_valid(fields: tuple[int, ...], /) -> bool: ...
def large_pages(address: int, bytes: int, there: bool, /) -> None: ...
