"""How neighbours are found: one file a method, one small protocol."""

from collections.abc import Callable

from rarecall.search.auto import AutoSearch
from rarecall.search.base import Search
from rarecall.search.exact import ExactSearch
from rarecall.search.lsh import LSHSearch

SEARCHES: dict[str, Callable[..., Search]] = {"exact": ExactSearch, "lsh": LSHSearch, "auto": AutoSearch}

__all__ = ["SEARCHES", "AutoSearch", "ExactSearch", "LSHSearch", "Search"]
