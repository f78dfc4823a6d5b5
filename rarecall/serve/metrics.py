"""Counters and times of requests in the text format of Prometheus."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)  # upper bounds of the histogram


class Metrics:
    """ASGI middleware that counts requests and how long they take.

    Args:
        app: what is counted.
        paths: those that are counted by name; all others count as one, so that strangers cannot make more.
    """

    def __init__(self, app: ASGIApp, paths: Iterable[str]) -> None:
        self.app, self.paths = app, frozenset(paths)
        self.requests: dict[tuple[str, int], int] = defaultdict(int)
        self.buckets: dict[str, list[int]] = defaultdict(lambda: [0] * (len(SECONDS) + 1))
        self.seconds: dict[str, float] = defaultdict(float)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = scope["path"] if scope["path"] in self.paths else "other"
        start, status = time.perf_counter(), 500

        async def counted_send(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self.app(scope, receive, counted_send)
        finally:
            seconds = time.perf_counter() - start
            self.requests[path, status] += 1
            self.buckets[path][bisect_left(SECONDS, seconds)] += 1
            self.seconds[path] += seconds

    def text(self, gauges: dict[str, dict[str, float]]) -> str:
        """Return all of it.

        Args:
            gauges: by name, then by the name of the memory.
        """
        lines = ["# TYPE rarecall_requests_total counter"]
        lines += [
            f'rarecall_requests_total{{path="{path}",status="{status}"}} {count}'
            for (path, status), count in sorted(self.requests.items())
        ]
        lines.append("# TYPE rarecall_request_seconds histogram")
        for path, counts in sorted(self.buckets.items()):
            total = 0
            for bound, count in zip((*SECONDS, "+Inf"), counts, strict=True):
                total += count
                lines.append(f'rarecall_request_seconds_bucket{{path="{path}",le="{bound}"}} {total}')
            lines.append(f'rarecall_request_seconds_sum{{path="{path}"}} {self.seconds[path]:.6f}')
            lines.append(f'rarecall_request_seconds_count{{path="{path}"}} {total}')
        for name, values in gauges.items():
            lines.append(f"# TYPE rarecall_{name} {'counter' if name.endswith('_total') else 'gauge'}")
            for memory, value in values.items():
                escaped = memory.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
                lines.append(f'rarecall_{name}{{memory="{escaped}"}} {value:g}')
        return "\n".join(lines) + "\n"
