"""How neighbours are found: one file a method, one small protocol."""

from __future__ import annotations

from collections.abc import Callable

from rarecall.search.auto import AutoSearch
from rarecall.search.base import Search
from rarecall.search.exact import ExactSearch, k_best

SEARCHES: dict[str, Callable[..., Search]] = {"exact": ExactSearch, "auto": AutoSearch}


def make(search: str | Search, target_recall: float | None, key_size: int, capacity: int) -> Search:
    """Return the search of this name, or the one that was given."""
    if target_recall is not None:
        if search != "auto":
            raise ValueError(
                f'Memory got target_recall={target_recall} with search={search!r}; expected search="auto". Give it '
                "to a search that you construct yourself."
            )
        return AutoSearch(key_size, capacity, target_recall=target_recall)
    if isinstance(search, Search):
        return search
    if not isinstance(search, str):
        raise TypeError(f"Memory got search of type {type(search).__name__}; expected a name or a rarecall.Search.")
    if search not in SEARCHES:
        raise ValueError(f"Memory got search={search!r}; expected one of {sorted(SEARCHES)} or a rarecall.Search.")
    return SEARCHES[search](key_size, capacity)


__all__ = ["SEARCHES", "AutoSearch", "ExactSearch", "Search", "k_best", "make"]
