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
