"""Recalls beside each other, changes alone."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

# A reader takes the lock of its thread, a writer takes all: so many readers run at once.
STRIPES = 8


class ReadWriteLock:
    """Lets any number of threads read, or one thread change, and the others wait.

    It is made of locks whose `with` Ctrl-C cannot interrupt half-way. A thread may read while it reads or changes.
    """

    def __init__(self) -> None:
        self._reset()
        _locks.add(self)

    def _reset(self) -> None:
        self._stripes = tuple(threading.RLock() for _ in range(STRIPES))

    def shared(self, read: Callable[..., Any], *args: Any) -> Any:
        """Return what `read` returns, called beside other readers."""
        with self._stripes[threading.get_native_id() % STRIPES]:
            return read(*args)

    def exclusive(self, change: Callable[..., Any], *args: Any) -> Any:
        """Return what `change` returns, called while nobody else reads or changes."""
        a, b, c, d, e, f, g, h = self._stripes
        with a, b, c, d, e, f, g, h:
            return change(*args)

    def __reduce__(self) -> tuple[type[ReadWriteLock], tuple[()]]:
        return ReadWriteLock, ()  # a copy is free


_locks: weakref.WeakSet[ReadWriteLock] = weakref.WeakSet()


def _free_all() -> None:
    for lock in list(_locks):
        lock._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_all)  # the threads that held them are not in the child
