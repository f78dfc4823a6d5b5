"""Ranks that run what a test gives them: started once for each number of ranks, by fork, and used by all tests."""

from __future__ import annotations

import atexit
import functools
import os
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import pytest
import torch

from tests.processes import CONTEXT, START

TIMEOUT = 30.0  # seconds in which a rank that others wait for must come


class Ranks:
    """So many processes, each a rank of a mesh of CPUs.

    Args:
        size: how many.
        timeout: of their process group, in seconds.
    """

    def __init__(self, size: int, timeout: float = TIMEOUT) -> None:
        self.size, self.folder = size, tempfile.TemporaryDirectory()
        pipes = [CONTEXT.Pipe() for _ in range(size)]
        self.pipes = [ours for ours, _ in pipes]
        self.processes = [
            CONTEXT.Process(target=_serve, args=(theirs, rank, size, self.folder.name, timeout), daemon=True)
            for rank, (_, theirs) in enumerate(pipes)
        ]
        for process in self.processes:
            process.start()
        for _, theirs in pipes:
            theirs.close()
        self._answers(START)

    def __call__(self, function: Callable[..., Any], *args: Any, timeout: float = 60.0) -> list[Any]:
        """Return what `function(rank, mesh, *args)` returns on each rank; fail where it raises on any.

        Args:
            function: one of a module's own, so that the ranks can import it.
            args: what can be pickled.
            timeout: in seconds.
        """
        for pipe in self.pipes:
            pipe.send((function, args))
        answers = self._answers(timeout)
        failures = [f"rank {rank}:\n{failure}" for rank, (failure, _) in enumerate(answers) if failure]
        if failures:
            pytest.fail("\n".join(failures), pytrace=False)
        return [answer for _, answer in answers]

    def _answers(self, timeout: float) -> list[Any]:
        end, answers = time.monotonic() + timeout, []
        for rank, (pipe, process) in enumerate(zip(self.pipes, self.processes, strict=True)):
            try:
                there = pipe.poll(max(end - time.monotonic(), 0))
                answers.append(pipe.recv() if there else ("hangs", None))
            except (EOFError, ConnectionError):
                process.join(5)
                answers.append((f"ended with exit code {process.exitcode}", None))
            if answers[-1][0] and not answers[-1][0].startswith("Traceback"):
                made.cache_clear()  # the next test gets new ones
                answers[-1] = (f"{answers[-1][0]} ({rank=})", None)
        return answers

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()
        self.folder.cleanup()


@functools.cache
def made(size: int) -> Ranks:
    ranks = Ranks(size)
    atexit.register(ranks.end)
    return ranks


def _serve(pipe: Connection, rank: int, size: int, folder: str, timeout: float) -> None:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    where = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=size, timeout=timedelta(seconds=timeout))
    mesh = init_device_mesh("cpu", (size,))
    pipe.send((None, "ready"))
    while True:
        try:
            function, args = pipe.recv()
        except EOFError:
            return
        torch.manual_seed(0)
        try:
            pipe.send((None, function(rank, mesh, *args)))
        except BaseException:
            pipe.send((traceback.format_exc(), None))
