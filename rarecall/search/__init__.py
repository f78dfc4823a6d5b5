"""How neighbours are found: one file a method, one small protocol."""

from collections.abc import Callable

from rarecall.search.base import Search
from rarecall.search.exact import ExactSearch
from rarecall.search.lsh import LSHSearch

SEARCHES: dict[str, Callable[..., Search]] = {"exact": ExactSearch, "lsh": LSHSearch}

__all__ = ["SEARCHES", "ExactSearch", "LSHSearch", "Search"]
