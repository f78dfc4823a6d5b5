"""Recalls beside each other, changes alone."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any


class ReadWriteLock:
    """Lets any number of threads read, or one thread change, and the others wait.

    A thread reads under a lock of its own, and changes under those of all: locks whose `with` Ctrl-C cannot interrupt
    half-way. A thread may read while it reads or changes.
    """

    def __init__(self) -> None:
        self._reset()
        _locks.add(self)

    def _reset(self) -> None:
        self._own = threading.local()
        self._changing = threading.RLock()  # held by who changes, and by a thread that comes for the first time
        self._readers: tuple[tuple[threading.Thread, threading.RLock], ...] = ()

    def shared(self) -> threading.RLock:
        """Return what this thread holds, by `with`, while it reads."""
        try:
            lock: threading.RLock = self._own.lock
        except AttributeError:
            with self._changing:
                lock = self._own.lock = threading.RLock()
                alive = (reader for reader in self._readers if reader[0].is_alive())
                self._readers = (*alive, (threading.current_thread(), lock))
        return lock

    def exclusive(self, change: Callable[..., Any], *args: Any) -> Any:
        """Return what `change` returns, called while nobody else reads or changes."""
        with self._changing:
            return self._take(self._readers, len(self._readers), change, args)

    def _take(self, readers: tuple[Any, ...], count: int, change: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        if not count:
            return change(*args)
        with readers[count - 1][1]:
            return self._take(readers, count - 1, change, args)

    def __reduce__(self) -> tuple[type[ReadWriteLock], tuple[()]]:
        return ReadWriteLock, ()  # a copy is free


_locks: weakref.WeakSet[ReadWriteLock] = weakref.WeakSet()


def _free_all() -> None:
    for lock in list(_locks):
        lock._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_all)  # the threads that held them are not in the child
