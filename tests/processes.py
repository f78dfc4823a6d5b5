"""A test's function in a process of its own: a crash or a hang of it fails that test, and not the whole run."""

from __future__ import annotations

import faulthandler
import multiprocessing
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import pytest
import torch

# Torch is imported once, by the process that all the others are forked from.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["torch", "hypothesis", "pytest", "rarecall.distributed", "tests.helpers"])

START = 300.0  # seconds that the first process may take to import torch, on a busy machine


def in_a_process(function: Callable[..., Any], *args: Any, timeout: float = 60.0) -> Any:
    """Return `function(*args)`, called in a process of its own.

    Args:
        function: one of a module's own, so that the process can import it.
        args: what can be pickled.
        timeout: seconds from its start after which the process counts as hanging.
    """
    receiver, sender = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=_run, args=(sender, function, args))
    process.start()
    sender.close()
    try:
        if receiver.poll(START):
            assert receiver.recv() == "started"
        if not receiver.poll(timeout):
            pytest.fail(f"{function.__name__}{args} hangs: it was not done after {timeout} seconds")
        failure, result = receiver.recv()
        process.join(timeout)
    except EOFError:
        process.join(timeout)
        pytest.fail(f"{function.__name__}{args} crashed: exit code {process.exitcode}")
    finally:
        if process.is_alive():
            process.kill()
            process.join()
        receiver.close()
    if failure:
        pytest.fail(f"{function.__name__}{args} failed:\n{failure}")
    assert process.exitcode == 0, f"{function.__name__}{args} crashed as it ended: exit code {process.exitcode}"
    return result


def _run(sender: Connection, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    faulthandler.enable()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    sender.send("started")
    try:
        sender.send((None, function(*args)))
    except BaseException:
        sender.send((traceback.format_exc(), None))
