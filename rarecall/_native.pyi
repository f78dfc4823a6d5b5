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
def find_newest(
    values: int,
    sources: int,
    touched: int,
    used: int,
    targets: int,
    exclude: int,
    n: int,
    threads: int,
    newest: int,
    /,
) -> None: ...

# The first argument of these is a tuple: the fields of Lists, in order.
def lists_change(fields: tuple[int, ...], slots: int, n: int, threads: int, /) -> None: ...
def lists_restore(fields: tuple[int, ...], threads: int, /) -> None: ...
def lists_search(
    fields: tuple[int, ...], queries: int, n: int, k: int, exclude: int, probes: int, threads: int, found: int, /
) -> None: ...
def lists_ranks(fields: tuple[int, ...], queries: int, n: int, exclude: int, threads: int, ranks: int, /) -> None: ...
def lists_valid(fields: tuple[int, ...], /) -> bool: ...
def large_pages(address: int, bytes: int, there: bool, /) -> None: ...
