"""Two or more things timed in turns."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict


class Stopwatch:
    """Times named parts of a loop; a part that comes in every turn of it meets the same machine as all the others.

    >>> watch = Stopwatch()
    >>> for _ in range(3):
    ...     with watch.time("ours"):
    ...         _ = sum(range(10))
    ...     with watch.time("theirs"):
    ...         _ = sum(range(100_000))
    >>> watch.ratio("theirs", "ours") > 1
    True
    """

    def __init__(self, warmup: int = 0) -> None:
        self.warmup = warmup
        self.times: dict[str, list[float]] = defaultdict(list)

    def time(self, name: str) -> Timed:
        """Times what is done inside."""
        return Timed(self.times[name])

    def turns(self, *names: str) -> list[float]:
        """Seconds that these parts took together, in each turn but the first few."""
        together = [sum(parts) for parts in zip(*(self.times[name] for name in names), strict=True)]
        return together[self.warmup :]

    def milliseconds(self, *names: str) -> float:
        """The median."""
        return statistics.median(self.turns(*names)) * 1e3

    def ratio(self, slower: str | tuple[str, ...], faster: str | tuple[str, ...]) -> float:
        """How many times longer the one takes than the other: of the medians."""
        parts = [(names,) if isinstance(names, str) else names for names in (slower, faster)]
        return self.milliseconds(*parts[0]) / self.milliseconds(*parts[1])


class Timed:
    """Adds to `times` how long what is inside took; a `contextmanager` would take longer than some of that."""

    def __init__(self, times: list[float]) -> None:
        self.times = times

    def __enter__(self) -> None:
        self.start = time.perf_counter()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        took = time.perf_counter() - self.start
        if kind is None:
            self.times.append(took)
