"""The snapshot: keys and places after some entry, in a safetensors file with checksums. A cache of the journal.

It is written while the classifier is taught. Keys are copied in blocks, each under the owner's lock for a moment; those
that change meanwhile are copied again, and the last few together with the places, so that all is of one entry.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rarecall.storage import sync
from rarecall.store.folder import FolderDamaged, canonical
from rarecall.store.slots import Floats, Ints

FORMAT, VERSION = "rarecall.snapshot", 1
BLOCK = 4 * 2**20  # bytes of keys that are copied under the lock at once: about a millisecond
LAST = 4  # blocks that may be copied at the end, in one go
READERS = 4  # threads that read and check blocks
RESERVED = 4096  # bytes of the header, besides its checksums


@dataclass(frozen=True)
class State:
    """What a snapshot is of.

    Attributes:
        entry, digest: of the last entry in it.
        table: (examples + 1, 3) int64, `Places.table`.
        used: how many keys.
    """

    entry: int
    digest: bytes
    table: Ints
    used: int


class Aborted(Exception):
    """The owner has asked to stop."""


def write(
    path: Path,
    key_size: int,
    lock: Callable[[], AbstractContextManager[None]],
    keys: Callable[[], Floats],
    changed: Callable[[], set[int]],
    state: Callable[[], State],
    aborted: Callable[[], bool] = lambda: False,
) -> State:
    """Write a snapshot beside `path` and rename it.

    Args:
        path: where.
        key_size: the key dimension.
        lock: taken while any of the following is called.
        keys: the keys as they are now, (used, key_size).
        changed: the slots that changed since it was last called; all of them at the first time.
        state: as it is now.
        aborted: whether to stop.
    """
    rows = max(BLOCK // (4 * key_size), 1)
    beside = path.with_name(f".{path.name}.tmp")
    sums: dict[int, int] = {}
    try:
        file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            with lock():
                blocks = sorted({slot // rows for slot in changed()} | set(range(-(-len(keys()) // rows))))
                offset = RESERVED + 16 * (2 * len(blocks) + 64)
                offset += -offset % 64

            def copy(block: int) -> None:
                data = np.ascontiguousarray(keys()[block * rows : (block + 1) * rows]).tobytes()
                _write(file, data, offset + block * rows * key_size * 4)
                sums[block] = zlib.crc32(data)

            while True:
                for block in blocks:
                    if aborted():
                        raise Aborted
                    with lock():
                        copy(block)
                with lock():
                    blocks = sorted({slot // rows for slot in changed()})
                    if len(blocks) <= LAST:
                        for block in blocks:
                            copy(block)
                        of = state()
                        break
            places = np.ascontiguousarray(of.table, np.int64).tobytes()
            size = of.used * key_size * 4
            _write(file, places, offset + size)
            os.ftruncate(file, offset + size + len(places))
            count = -(-of.used // rows)
            metadata = {
                "format": FORMAT,
                "version": str(VERSION),
                "entry": str(of.entry),
                "digest": of.digest.hex(),
                "rows": str(rows),
                "sums": "".join(f"{sums[block]:08x}" for block in range(count)),
                "sum_of_places": f"{zlib.crc32(places):08x}",
            }
            tensors = {
                "keys": {"dtype": "F32", "shape": [of.used, key_size], "data_offsets": [0, size]},
                "places": {"dtype": "I64", "shape": list(of.table.shape), "data_offsets": [size, size + len(places)]},
            }
            metadata["check"] = f"{zlib.crc32(canonical([metadata, tensors]).encode()):08x}"
            header = json.dumps({"__metadata__": metadata} | tensors).encode()
            if len(header) > offset - 8:
                raise Aborted  # it has doubled meanwhile: the next one has more room
            _write(file, (offset - 8).to_bytes(8, "little") + header.ljust(offset - 8), 0)
            os.fsync(file)
        finally:
            os.close(file)
        if aborted():
            raise Aborted
        os.replace(beside, path)
        sync(path.parent)
    finally:
        beside.unlink(missing_ok=True)
    return of


def read(path: Path, room: Callable[[int, int], Floats]) -> State:
    """Read a snapshot and check all of it.

    Args:
        path: where.
        room: given the number of keys and their dimension, returns the array to read them into.

    Raises:
        FolderDamaged: it is not what was written.
    """
    try:
        with open(path, "rb", buffering=0) as file:
            start = int.from_bytes(file.read(8), "little")
            size = os.fstat(file.fileno()).st_size
            if not 8 < start < size:
                raise ValueError("its header is cut short")
            header = json.loads(file.read(start))
            metadata, keys, places = header["__metadata__"], header["keys"], header["places"]
            check = metadata.pop("check")
            if check != f"{zlib.crc32(canonical([metadata, {'keys': keys, 'places': places}]).encode()):08x}":
                raise ValueError("its header is not what was written")
            if (metadata["format"], metadata["version"]) != (FORMAT, str(VERSION)):
                raise ValueError(f"it is of format {metadata['format']} {metadata['version']}")
            (used, key_size), rows, sums = keys["shape"], int(metadata["rows"]), metadata["sums"]
            if size != 8 + start + places["data_offsets"][1]:
                raise ValueError("it is cut short or too long")
            into, descriptor = room(used, key_size), file.fileno()

            def read_block(block: int) -> None:
                part: Any = into[block * rows : min((block + 1) * rows, used)].reshape(-1).view(np.uint8).data
                count = os.preadv(descriptor, [part], 8 + start + block * rows * key_size * 4)
                if count != len(part) or zlib.crc32(part) != int(sums[8 * block : 8 * block + 8], 16):
                    raise ValueError(f"block {block} of its keys is not what was written")

            with ThreadPoolExecutor(READERS) as pool:
                list(pool.map(read_block, range(-(-used // rows))))
            first, end = places["data_offsets"]
            data = os.pread(descriptor, end - first, 8 + start + first)
            if zlib.crc32(data) != int(metadata["sum_of_places"], 16):
                raise ValueError("its places are not what was written")
            table = np.frombuffer(data, np.int64).reshape(places["shape"]).copy()
            return State(int(metadata["entry"]), bytes.fromhex(metadata["digest"]), table, used)
    except (ValueError, KeyError, TypeError, OverflowError, MemoryError, AttributeError) as error:
        raise FolderDamaged(f"{path} is damaged: {error}.") from error


def _write(file: int, data: bytes, offset: int) -> None:
    rest = memoryview(data)
    while rest:
        written = os.pwrite(file, rest, offset)
        rest, offset = rest[written:], offset + written
