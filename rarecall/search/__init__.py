"""How neighbours are found: one file a method, one small protocol."""

from __future__ import annotations

from collections.abc import Callable

from rarecall.search.auto import AutoSearch
from rarecall.search.base import Search
from rarecall.search.exact import ExactSearch
from rarecall.search.lsh import LSHSearch

SEARCHES: dict[str, Callable[..., Search]] = {"exact": ExactSearch, "lsh": LSHSearch, "auto": AutoSearch}


def make(search: str | Search, target_recall: float | None, key_size: int, capacity: int) -> Search:
    """Return the search of this name, or the one that was given."""
    if isinstance(search, str):
        if search not in SEARCHES:
            raise ValueError(f"Memory got search={search!r}; expected one of {sorted(SEARCHES)} or a rarecall.Search.")
        if target_recall is None:
            return SEARCHES[search](key_size, capacity)
        if search == "exact":
            raise ValueError(f'Memory got target_recall={target_recall} with search="exact"; expected "lsh" or "auto".')
        return SEARCHES[search](key_size, capacity, target_recall=target_recall)
    if not isinstance(search, Search):
        raise TypeError(f"Memory got search of type {type(search).__name__}; expected a name or a rarecall.Search.")
    if target_recall is not None:
        raise ValueError(
            f"Memory got target_recall={target_recall} with an already constructed search; give it to the search."
        )
    return search


__all__ = ["SEARCHES", "AutoSearch", "ExactSearch", "LSHSearch", "Search", "make"]
