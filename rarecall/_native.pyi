# A tensor must be contiguous, on the CPU, and of the type and length that are expected, else it raises. `_Fields` are
# those of a struct of native/*.h, in order, packed; see `native.packed`.

from collections.abc import Mapping, Sequence
from typing import TypeAlias, final

from torch import Generator, Tensor
from typing_extensions import Buffer

_Fields: TypeAlias = bytes

@final
class Found(Buffer):
    """What queries found, see native/found.h; its tensors share its memory."""

    @property
    def query(self) -> Tensor:
        """(n, key_size), normalised."""
    @property
    def inverse_lengths(self) -> Tensor:
        """(n,), by what each query was multiplied."""
    @property
    def slots(self) -> Tensor:
        """(n, k) int64."""
    @property
    def similarities(self) -> Tensor:
        """(n, k)."""
    @property
    def values(self) -> Tensor:
        """(n, k) int64."""
    @property
    def weights(self) -> Tensor:
        """(n, k)."""
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Slots:
    """The tensors of a memory's slots, see native/held_slots.h."""

    def __new__(cls, key_size: int, keys: Tensor, values: Tensor, sources: Tensor, /) -> Slots: ...
    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """Keys, values and sources."""
    @property
    def version(self) -> int:
        """How often torch wrote to them, by hand or not, when they were asked last.

        What was made in inference mode does not count.
        """
    def current(self, buffers: Mapping[str, Tensor | None], /) -> bool:
        """Whether these are the buffers of that module, whose version is then known anew."""
    def asked_by(self, buffers: Mapping[str, Tensor | None], query: Tensor, /) -> bool:
        """The same, and whether a query is (n, key_size) float32, contiguous, on the CPU."""
    def take(self, buffers: Mapping[str, Tensor | None], ids: Tensor, shape: Sequence[int], at_least: int, /) -> bool:
        """The same, and whether ids are int64, one for each query of a shape, and none less than a number."""
    @property
    def chained(self) -> bool:
        """Whether there are chains of the slots as they were when they were asked last; see `newest.chained`."""
    def chain(self, bits: int, heads: Tensor, following: Tensor, previous: Tensor, slots: Tensor, /) -> None:
        """Makes them, of slots in the order in which they were touched."""
    def unchain(self, slots: Tensor, /) -> None:
        """Takes slots out of them, before they are emptied."""
    def follow(self) -> None:
        """They are of the slots as they were when they were asked last."""

# Queries, slots, similarities and values of a recall, one row a query, and what each query excludes.
_Rows: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]

def variants() -> list[str]: ...
def use_variant(name: str, /) -> None: ...
def copy_keys(copy: _Fields, memory: Slots, used: int, slots: Tensor | None, threads: int, /) -> None: ...
def find(
    copy: _Fields,
    memory: Slots,
    used: int,
    k: int,
    queries: Tensor,
    exclude: Tensor | None,
    threads: int,
    found: Tensor,
    scores: Tensor,
    /,
) -> None: ...
def ask(key_size: int, k: int, queries: Tensor, exclude: Tensor | None, /) -> Found: ...
def recall(memory: Slots, found: Found, m: int, slots: Tensor, inverse_temperature: float, threads: int, /) -> None: ...
def recall_gradient(
    key_size: int,
    keys: Tensor,
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
    memory: Slots,
    k: int,
    recall: Found | _Rows,
    targets: Tensor,
    mask: Tensor | None,
    margin: float,
    columns: Tensor | None,
    slopes: Tensor | None,
    positives: Tensor | None,
    /,
) -> tuple[Tensor, int, int]: ...
def quick_loss(
    slots: Slots,
    k: int,
    found: Found,
    buffers: Mapping[str, Tensor | None],
    shape: Sequence[int],
    target: Tensor,
    margin: float,
    /,
) -> Tensor | None: ...
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
def newest(slots: Slots, targets: Tensor, exclude: Tensor | None, found: Tensor, /) -> None: ...
def update(
    memory: Slots,
    clock: _Fields,
    k: int,
    recall: Found | _Rows,
    targets: Tensor,
    sources: Tensor | None,
    age_noise: float,
    generator: Generator | None,
    touched: Tensor,
    before: Tensor | None,
    /,
) -> tuple[int, int, int, bool]: ...
def quick_update(
    slots: Slots,
    clock: _Fields,
    k: int,
    found: Found,
    buffers: Mapping[str, Tensor | None],
    shape: Sequence[int],
    target: Tensor,
    age_noise: float,
    generator: Generator | None,
    /,
) -> Tensor | None: ...
def lists_change(
    lists: _Fields,
    slots: Tensor,
    near: int,
    last: Found | None,
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
    /,
) -> Found: ...
def lists_valid(lists: _Fields, /) -> bool: ...
def large_pages(address: int, bytes: int, there: bool, /) -> None: ...
