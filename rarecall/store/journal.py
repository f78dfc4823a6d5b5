"""The journal: a SQLite file with every example, and every entry that says what was done with them.

- An entry says when, what, by whom and why, and which examples went to which slots. Its digest covers it and the entry
  before it, so that none can be changed, lost or moved unnoticed.
- An example has its key and its content. Both are overwritten in place when it is forgotten, with zeros of the same
  length: SQLite then moves nothing, and leaves no copy behind. Its `time` and `who` are those of its entry, and not
  written again; only of one that came from another folder they say when and by whom it was taught there.
- `head`, among the settings, says how many entries, examples and labels there must be.

One connection writes, in WAL mode with `synchronous=FULL`: a commit is on the disk when it returns. SQLite before
3.51.3 can damage a file when two connections checkpoint at once; followers open the file read-only and never do. Rows
have digests of their own, because SQLite's pages have none.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rarecall.storage import sync
from rarecall.store.folder import FolderDamaged, FolderError, canonical
from rarecall.store.slots import Floats, Ints

SCHEMA = {
    "settings": "CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT, digest BLOB)",
    "labels": "CREATE TABLE labels (id INTEGER PRIMARY KEY, name TEXT, digest BLOB)",
    "entries": "CREATE TABLE entries (id INTEGER PRIMARY KEY, time REAL, kind TEXT, who TEXT, reason TEXT, "
    "detail TEXT, changes BLOB, digest BLOB)",
    "examples": "CREATE TABLE examples (id INTEGER PRIMARY KEY, entry INTEGER, time REAL, who TEXT, kind TEXT, "
    "content BLOB, key BLOB, digest BLOB)",
}
DIGEST = 16  # bytes
FORGOTTEN = b"forgotten".ljust(DIGEST)  # in place of the digest of an example that was overwritten
START = bytes(DIGEST)  # what the first entry follows
COLUMNS = "id, time, kind, who, reason, detail, changes, digest"


@dataclass(frozen=True)
class Entry:
    """One line of the journal.

    Attributes:
        id: its number, from 1.
        time: seconds since 1970.
        kind: teach, import, forget, undo, relabel, fit or settings.
        who: by whom, where that was said.
        reason: why, where that was said.
        detail: more, as JSON.
        changes: (m, 7) int64: examples, and their places after and before; see `rarecall.store.slots`.
    """

    id: int
    time: float
    kind: str
    who: str | None
    reason: str | None
    detail: dict[str, Any]
    changes: Ints = field(repr=False)
    digest: bytes = field(repr=False)


@dataclass(frozen=True)
class Example:
    """An example as it is kept: when and by whom it was taught, and how its content is to be read (`kind`)."""

    id: int
    time: float
    who: str | None
    kind: str
    content: bytes = field(repr=False)
    key: Floats = field(repr=False)


class Journal:
    """Reads and writes the SQLite file. Not for several threads at once: the owner has a lock.

    Args:
        path: the file; made where there is none.
        readonly: follow what another process writes.
    """

    def __init__(self, path: Path, readonly: bool = False) -> None:
        self.path, self.readonly = path, readonly
        self.entries = self.examples = self.labels = 0
        self.digest = START
        with self._explained():
            self._db = self._connect(path, readonly)
            if not readonly and not self._db.execute("SELECT 1 FROM sqlite_master").fetchone():
                with self.transaction():
                    for statement in SCHEMA.values():
                        self._db.execute(statement)
                    self.put_settings({"head": [0, 0, 0, START.hex()]})
            tables = dict(self._db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall())
        if tables != SCHEMA:
            raise FolderDamaged(
                f"{path} has other tables than this rarecall makes: another version wrote it, or it is damaged. "
                f"{self._advice()}"
            )
        self.refresh()

    def _connect(self, path: Path, readonly: bool) -> sqlite3.Connection:
        uri = path.absolute().as_uri()
        if readonly:
            # A folder that cannot be written to has no place for SQLite's own files; without a log none is needed.
            log = path.with_name(path.name + "-wal")
            still = "" if log.exists() or _can_write(path.parent) else "&immutable=1"
            db = sqlite3.connect(f"{uri}?mode=ro{still}", uri=True, isolation_level=None, check_same_thread=False)
        else:
            db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA secure_delete = ON")
        db.execute("PRAGMA busy_timeout = 10000")
        db.execute("PRAGMA temp_store = MEMORY")
        return db

    # ---- writing ----

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of it is on the disk afterwards, or, where an error comes between, nothing."""
        before = self.entries, self.examples, self.labels, self.digest
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            self.entries, self.examples, self.labels, self.digest = before
            with contextlib.suppress(FolderError):  # Ctrl-C may have come after the commit
                self.refresh()
            raise

    def append(
        self,
        kind: str,
        changes: Ints,
        *,
        who: str | None = None,
        reason: str | None = None,
        detail: dict[str, Any] | None = None,
        examples: Sequence[tuple[float | None, str | None, str, bytes, bytes]] = (),
        labels: Sequence[str] = (),
        settings: dict[str, Any] | None = None,
        forgotten: Sequence[int] = (),
    ) -> int:
        """Write an entry and what belongs to it, in one commit; return its number.

        Args:
            examples: new ones: time and who, where these are not the entry's; kind, content and key (float32 bytes).
            labels: new ones, as JSON.
            settings: to be set.
            forgotten: numbers of examples to overwrite.
        """
        with self._explained(), self.transaction():
            for name in labels:
                row = (self.labels, name)
                self._db.execute("INSERT INTO labels VALUES (?, ?, ?)", (*row, _digest(*row)))
                self.labels += 1
            first, entry = self.examples + 1, self.entries + 1
            rows = ((number, entry, *given) for number, given in enumerate(examples, first))
            self._db.executemany(
                "INSERT INTO examples VALUES (?, ?, ?, ?, ?, ?, ?, ?)", ((*row, _digest(*row)) for row in rows)
            )
            self.examples += len(examples)
            if forgotten:
                self._db.executemany(
                    "UPDATE examples SET content = zeroblob(length(content)), key = zeroblob(length(key)), digest = ? "
                    "WHERE id = ?",
                    ((FORGOTTEN, int(number)) for number in forgotten),
                )
            blob = np.ascontiguousarray(changes, np.int64).tobytes()
            line = (entry, time.time(), kind, who, reason, canonical(detail or {}), blob)
            self.digest, self.entries = _digest(self.digest, *line), entry
            self._db.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*line, self.digest))
            head = [self.entries, self.examples, self.labels, self.digest.hex()]
            self.put_settings({"head": head} | (settings or {}))
        return entry

    def put_settings(self, settings: dict[str, Any]) -> None:
        """Set settings, within a transaction."""
        for name, value in settings.items():
            text = canonical(value)
            self._db.execute(
                "INSERT INTO settings VALUES (?, ?, ?) "
                "ON CONFLICT (name) DO UPDATE SET value = excluded.value, digest = excluded.digest",
                (name, text, _digest(name, text)),
            )

    def purge(self) -> None:
        """Empty the write-ahead log, which may hold what was overwritten in the file."""
        for _ in range(100):  # a follower may be reading; it does so for a moment only
            if self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0:
                sync(self.path.with_name(self.path.name + "-wal"))  # else a power cut could bring it back
                return
            time.sleep(0.05)
        raise FolderError(
            f"{self.path}: another process has been reading the journal for long, so what was forgotten is still in "
            "its log. Close that process, then run: rarecall check."
        )

    # ---- reading ----

    def refresh(self) -> None:
        """See what was written since, by another process or before Ctrl-C."""
        self.entries, self.examples, self.labels, self.digest = self._head()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """See the journal as it is at one moment."""
        if self._db.in_transaction:
            yield
            return
        with self._explained():
            self._db.execute("BEGIN")
        try:
            yield
        finally:
            with contextlib.suppress(sqlite3.Error):  # a file that cannot be read has said so already
                self._db.execute("ROLLBACK")

    def settings(self) -> dict[str, Any]:
        """Return all settings but the head."""
        found = {}
        for name, value, digest in self._rows("SELECT name, value, digest FROM settings"):
            self._check(digest == _digest(name, value), f"the setting {name!r}")
            found[name] = json.loads(value)
        found.pop("head", None)
        return found

    def label_names(self, start: int = 0) -> list[str]:
        """Return the labels from this number on, as JSON, in their order."""
        names: list[str] = []
        for number, name, digest in self._rows("SELECT id, name, digest FROM labels WHERE id >= ? ORDER BY id", start):
            fits = digest == _digest(number, name) and number == start + len(names)
            self._check(fits, f"label {number}")
            names.append(name)
        self._check(start + len(names) == self.labels, "the list of labels")
        return names

    def entry_digest(self, entry: int) -> bytes | None:
        """Return the digest of an entry; None where there is no such entry."""
        if entry == 0:
            return START
        rows = self._rows("SELECT digest FROM entries WHERE id = ?", entry)
        return rows[0][0] if rows else None

    def read(self, first: int = 1, last: int | None = None) -> Iterator[Entry]:
        """Yield entries in their order, and check that none is missing."""
        last = self.entries if last is None else last
        before = self.entry_digest(first - 1)
        self._check(before is not None, f"entry {first - 1}")
        number = first
        query = f"SELECT {COLUMNS} FROM entries WHERE id BETWEEN ? AND ? ORDER BY id"
        for row in self._stream(query, first, last):
            self._check(row[0] == number and row[-1] == _digest(before, *row[:-1]), f"entry {number}")
            before, number = row[-1], number + 1
            changes = np.frombuffer(row[6], np.int64).reshape(-1, 7)
            id, when, kind, who, reason, detail, _, digest = row
            yield Entry(id, when, kind, who, reason, {} if detail == "{}" else json.loads(detail), changes, digest)
        self._check(number == last + 1, f"entry {number}")
        self._check(last != self.entries or before == self.digest, "the last entry")

    def entry(self, number: int) -> Entry:
        """Return one entry."""
        [entry] = self.read(number, number)
        return entry

    def undos(self) -> list[tuple[int, int]]:
        """Return the entries that undo another, and which, in their order."""
        rows = self._rows("SELECT id, json_extract(detail, '$.entry') FROM entries WHERE kind = 'undo' ORDER BY id")
        return [(by, of) for by, of in rows]

    def read_examples(self, numbers: Ints | Sequence[int]) -> dict[int, Example]:
        """Return examples by their numbers, without those that are forgotten."""
        wanted = np.asarray(numbers, np.int64)
        rows = self._rows("SELECT * FROM examples WHERE id IN (SELECT value FROM json_each(?))", _json(wanted))
        self._check(len(rows) == len(set(wanted.tolist())), "the list of examples")
        rows = [row for row in rows if row[-1] != FORGOTTEN]
        entries = {number: self.entry(number) for number in {row[1] for row in rows}}
        found = {}
        for *row, digest in rows:
            id, entry, time, who, kind, content, key = row
            self._check(digest == _digest(*row), f"example {id}")
            time, who = (entries[entry].time, entries[entry].who) if time is None else (time, who)
            found[id] = Example(id, time, who, kind, content, np.frombuffer(key, np.float32))
        return found

    def read_keys(self, numbers: Ints, key_size: int) -> Floats:
        """Return the keys of examples, (n, key_size), in the order of their numbers."""
        place = {number: row for row, number in enumerate(numbers.tolist())}
        keys, size = np.empty((len(numbers), key_size), np.float32), 4 * key_size
        query = "SELECT * FROM examples WHERE id IN (SELECT value FROM json_each(?))"
        for *row, digest in self._stream(query, _json(numbers)):
            self._check(digest == _digest(*row) and len(row[-1]) == size, f"example {row[0]}")
            keys[place.pop(row[0])] = np.frombuffer(row[-1], np.float32)
        self._check(not place, f"example {min(place, default=0)}")
        return keys

    def find(self, kind: str, content: bytes, key: bytes | None = None) -> Ints:
        """Return the numbers of the examples with this content and, where it is given, this key."""
        query = "SELECT id FROM examples WHERE kind = ?1 AND content = ?2 AND digest != ?3 AND (?4 IS NULL OR key = ?4)"
        return np.array([row[0] for row in self._rows(query, kind, content, FORGOTTEN, key)], np.int64)

    def taught(self) -> list[tuple[int, float, str | None]]:
        """Return the numbers of all examples, when and by whom they were taught."""
        return self._rows(
            "SELECT x.id, coalesce(x.time, e.time), CASE WHEN x.time IS NULL THEN e.who ELSE x.who END "
            "FROM examples x JOIN entries e ON x.entry = e.id"
        )

    def times(self) -> dict[int, float]:
        """Return when each entry was written."""
        return dict(self._rows("SELECT id, time FROM entries"))

    def integrity(self) -> list[str]:
        """Return what SQLite finds wrong with its file."""
        return [row[0] for row in self._rows("PRAGMA integrity_check(20)") if row[0] != "ok"]

    def unreadable(self) -> tuple[Ints, Ints]:
        """Read all examples; return the numbers of those that are not what was written, and of those forgotten."""
        there, wrong, forgotten = set[int](), list[int](), list[int]()
        for *row, digest in self._stream("SELECT * FROM examples"):
            number, *_, content, key = row
            there.add(number)
            if digest == FORGOTTEN:
                (wrong if any(content) or any(key) else forgotten).append(number)
            elif digest != _digest(*row):
                wrong.append(number)
        wrong += set(range(1, self.examples + 1)) - there
        return np.array(sorted(wrong), np.int64), np.array(forgotten, np.int64)

    def vacuum(self) -> None:
        """Give the room of what was forgotten back to the disk."""
        with self._explained():
            self._db.execute("UPDATE examples SET content = x'', key = x'' WHERE digest = ?", (FORGOTTEN,))
            self._db.execute("VACUUM")
            self.purge()

    def close(self) -> None:
        """Close the file; a writer leaves no log behind."""
        self._db.close()

    def _head(self) -> tuple[int, int, int, bytes]:
        rows = self._rows("SELECT value, digest FROM settings WHERE name = 'head'")
        self._check(len(rows) == 1 and rows[0][1] == _digest("head", rows[0][0]), "its head")
        entries, examples, labels, digest = json.loads(rows[0][0])
        return entries, examples, labels, bytes.fromhex(digest)

    def _rows(self, query: str, *values: Any) -> list[Any]:
        with self._explained():
            return self._db.execute(query, values).fetchall()

    def _stream(self, query: str, *values: Any) -> Iterator[Any]:
        with self._explained():
            cursor = self._db.execute(query, values)
            while rows := cursor.fetchmany(1000):
                yield from rows

    def _check(self, fits: bool, what: str) -> None:
        if not fits:
            raise FolderDamaged(f"{self.path} is damaged: {what} is missing or not what was written. {self._advice()}")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Say what an error of SQLite means here."""
        try:
            yield
        except sqlite3.OperationalError as error:
            text = str(error)
            if "full" in text:
                problem = f"The disk is full: nothing was written to {self.path}. Make room and try again"
                raise OSError(errno.ENOSPC, problem) from error
            if "readonly" in text or "unable to open" in text:
                raise FolderError(
                    f"{self.path} cannot be written to ({text}). To ask only, open it with readonly=True; to teach, "
                    "give this user the right to write to the folder."
                ) from error
            if "no such" in text or "malformed" in text:
                raise FolderDamaged(f"{self.path} is damaged ({text}). {self._advice()}") from error
            raise FolderError(f"{self.path}: {text}.") from error
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise FolderDamaged(f"{self.path} is damaged ({error}). {self._advice()}") from error

    @staticmethod
    def _advice() -> str:
        return "Run: rarecall check FOLDER, which says what can be saved; or restore the folder from a backup."


def _digest(*fields: Any) -> bytes:
    """Return 16 bytes that follow from fields, and not from others of the same types."""
    data = [each for each in fields if isinstance(each, bytes)]
    rest = repr([len(each) if isinstance(each, bytes) else each for each in fields])
    return hashlib.blake2b(b"".join([rest.encode(errors="surrogatepass"), *data]), digest_size=DIGEST).digest()


def _json(numbers: Ints) -> str:
    return json.dumps(numbers.tolist())


def _can_write(folder: Path) -> bool:
    return os.access(folder, os.W_OK)
