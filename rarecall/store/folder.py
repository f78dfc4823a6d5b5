"""The files of a folder: who may write, and the last entry that was acknowledged."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import sys
import time
import zlib
from pathlib import Path
from typing import Any

from rarecall.storage import sync

fcntl: Any = None
with contextlib.suppress(ImportError):  # Windows has none; all else of the library runs there
    import fcntl


class FolderError(RuntimeError):
    """A folder cannot be used; the message says why, and what to do."""


class FolderInUse(FolderError):
    """Another process teaches this folder."""


class FolderDamaged(FolderError):
    """What is on the disk is not what was written."""


class WriterLock:
    """One writer at a time. The kernel frees the lock when its process ends, however that happens.

    Args:
        path: the lock file; it names the holder.
    """

    def __init__(self, path: Path) -> None:
        if fcntl is None:
            raise FolderError(
                "A folder is kept on Linux and macOS; this system has no lock that a killed process frees."
            )
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(self._file, 4096, 0).decode(errors="replace").strip() or "an unknown process"
            os.close(self._file)
            raise FolderInUse(
                f"{path.parent} is being taught by {holder}. One process teaches at a time: close that one, or open "
                "the folder to ask only: rarecall.open(..., readonly=True)."
            ) from None
        self.process = os.getpid()
        command = " ".join(sys.argv)[:200] or "python"
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        holder = f"process {self.process} on {socket.gethostname()} ({command}), since {since}\n"
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, holder.encode(), 0)

    def check(self) -> None:
        """Refuse a process that was forked from the holder: both would write."""
        if os.getpid() != self.process:
            raise FolderInUse(
                f"The folder was opened by process {self.process}, and this is process {os.getpid()}, forked from it. "
                "Open the folder after the fork, or with readonly=True."
            )

    def release(self) -> None:
        """Let others write."""
        if os.getpid() == self.process:
            os.ftruncate(self._file, 0)
        os.close(self._file)


class Head:
    """The number of the last acknowledged entry, in a file of 16 bytes.

    It is written after a commit and not synced: it may be behind the journal, never ahead. So a journal that ends
    before it has lost entries, such as a write-ahead log that was cut short; SQLite alone takes that for an unfinished
    write. Followers read it to see whether there is something new.
    """

    LAYOUT = struct.Struct("<QII")

    def __init__(self, path: Path, readonly: bool) -> None:
        self._file: int | None = None
        with contextlib.suppress(FileNotFoundError):  # an older copy of the folder may have none
            flags = os.O_RDONLY if readonly else os.O_RDWR | os.O_CREAT
            self._file = os.open(path, flags | os.O_CLOEXEC, 0o666)

    def read(self) -> int:
        """Return the number; -1 where the file says nothing that can be believed."""
        data = b"" if self._file is None else os.pread(self._file, self.LAYOUT.size + 1, 0)
        if len(data) != self.LAYOUT.size:
            return -1
        entry, check, _ = self.LAYOUT.unpack(data)
        return int(entry) if check == zlib.crc32(data[:8]) else -1

    def write(self, entry: int) -> None:
        """Note that an entry was acknowledged."""
        number = struct.pack("<Q", entry)
        assert self._file is not None
        os.pwrite(self._file, number + struct.pack("<II", zlib.crc32(number), 0), 0)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)


def write_json(path: Path, value: object) -> None:
    """Write a small file with a checksum: beside `path` first, then renamed."""
    beside = path.with_name(f".{path.name}.tmp")
    text = canonical(value)
    with open(beside, "w", encoding="utf-8") as file:
        file.write(f"{zlib.crc32(text.encode()):08x}\n{text}")
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
    sync(path.parent)


def read_json(path: Path) -> Any:
    """Return what `write_json` wrote; None where there is no such file, or not what was written."""
    try:
        check, text = path.read_bytes().split(b"\n", 1)
        return json.loads(text) if int(check, 16) == zlib.crc32(text) else None
    except (FileNotFoundError, ValueError):
        return None


_encoder = json.JSONEncoder(sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def canonical(value: object) -> str:
    """Return JSON text that is the same for the same value."""
    return _encoder.encode(value)
