"""A memory that is kept in a folder: every change is in the journal before it is in memory.

What is in memory follows from the places of the examples (`slots.py`), so opening a folder, following one that another
process teaches, and teaching itself all do the same: take changes of places, and put what follows into the slots.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rarecall.memory import Memory
from rarecall.slots import FIELDS
from rarecall.storage import sync
from rarecall.store import snapshot
from rarecall.store.folder import FolderDamaged, FolderError, Head, WriterLock
from rarecall.store.journal import Journal
from rarecall.store.labels import Labels
from rarecall.store.slots import NO_CHANGES, NOWHERE, SLOT, Floats, Ints, Places, Rows

log = logging.getLogger("rarecall")

FIRST_CAPACITY = 1024  # slots of a folder that grows; doubled whenever they are full
FOLLOW = 0.4  # seconds between a follower's looks at the journal: each takes some milliseconds from who asks
# A snapshot is written when this many examples changed since the last one, and this share of all.
SNAPSHOT_AFTER, SNAPSHOT_SHARE = 2048, 0.1
WORTH_CLOSING = 100  # a folder is closed with a new snapshot where one in so many examples is not in the last
INDEXED_AT_ONCE = 2**15  # slots: from here on, opening does not wait for the search's index
REBUILT_AT_ONCE = 2**15  # slots


class KeptMemory:
    """The memory of a folder, its journal and its snapshot.

    Args:
        folder: made where there is none.
        readonly: follow what another process writes.
        defaults: the settings of a new folder.
        use_snapshot: False: read everything from the journal.
    """

    def __init__(self, folder: Path, readonly: bool, defaults: dict[str, Any], *, use_snapshot: bool = True) -> None:
        self.folder, self.readonly = folder, readonly
        self.lock = threading.RLock()  # held while anything changes
        self.memory: Memory | None = None
        self.places, self.settings = Places(), dict[str, Any]()
        self.labels = Labels()
        self._used = 0  # no slot from this one on was ever filled
        self._opened = False
        self._closed, self._compaction = threading.Event(), list[threading.Thread]()
        self._abort, self._unsaved, self._changed = False, 0, set[int]()
        self._writer = self._prepare()
        try:
            self.journal = Journal(folder / "journal.sqlite", readonly)
            self._head = Head(folder / "head", readonly)
            if not readonly:
                sync(folder)
            self._load(defaults, use_snapshot)
        except BaseException:
            self._release()
            raise
        if readonly:
            threading.Thread(target=_follow, args=(weakref.ref(self), self._closed), daemon=True).start()

    def _prepare(self) -> WriterLock | None:
        """Make the folder where there is none, and become its writer."""
        journal = self.folder / "journal.sqlite"
        if self.readonly:
            if not journal.is_file():
                raise FileNotFoundError(f"There is no journal in {self.folder}: nothing was taught there yet.")
            return None
        if not self.folder.is_dir():
            self.folder.mkdir(parents=True)
            sync(self.folder.parent)
        if not journal.exists() and any(self.folder.glob("snapshot*")):
            raise FolderDamaged(f"{self.folder} has a snapshot, but its journal is gone. Restore it from a backup.")
        if not journal.exists() and any(each.name not in ("lock", "head") for each in self.folder.iterdir()):
            raise FolderError(f"{self.folder} holds other files, and no journal. Name a new or an empty folder.")
        if not os.access(self.folder, os.W_OK):
            raise FolderError(f"{self.folder} cannot be written to. To ask only, open it with readonly=True.")
        return WriterLock(self.folder / "lock")

    # ---- what is in memory ----

    @property
    def now(self) -> int:
        """The number of the last entry that is in memory."""
        return self._now

    def array(self, name: str) -> Any:
        """Return a buffer of the memory as numpy sees it; not to be written to."""
        assert self.memory is not None
        return self.memory._buffers[name].numpy()

    def _make_room(self, slots: int, key_size: int) -> None:
        """Have a memory of at least so many slots."""
        old = self.memory
        if old is not None and slots <= old.capacity:
            return
        fixed = self.settings["capacity"]
        if fixed == "grow":
            capacity = old.capacity if old is not None else FIRST_CAPACITY
            while capacity < slots:
                capacity *= 2
        else:
            capacity = max(int(fixed), slots)
        memory = Memory(key_size, capacity, search=self.settings["search"])
        if old is not None:
            for name in FIELDS:
                memory._buffers[name][: old.capacity] = old._buffers[name]
            memory.now.copy_(old.now)
            if self._opened:
                memory.lock.exclusive(memory._get_in_step)  # before others ask it
        self.memory = memory

    def choose(self, count: int, spared: Sequence[int] = ()) -> tuple[list[int], Ints]:
        """Return slots to write, and the changes that take out of memory what they hold.

        Empty slots come first, the lowest before the others. Where the capacity is fixed and all are filled, those that
        were touched least recently are taken. None is among those that are spared, because the same entry needs them.
        """
        used, fixed = self._used, self.settings["capacity"]
        chosen: list[int] = []
        if count and self.memory is not None and len(self.memory) < used:
            empty = np.flatnonzero(self.array("counts")[:used] == 0)
            chosen = empty[~np.isin(empty, spared)][:count].tolist()
        fresh = count - len(chosen) if fixed == "grow" else min(count - len(chosen), max(int(fixed) - used, 0))
        chosen = [*chosen, *range(used, used + fresh)]
        left = count - len(chosen)
        if not left:
            return chosen, NO_CHANGES
        times = self.array("times")[:used].copy()
        times[list(spared)] = -1
        there = np.flatnonzero(times >= 0)
        if len(there) < left:
            raise ValueError(
                f"Got {count} examples that need a slot of their own, beside {len(set(spared))} slots that others "
                f"need; the folder has {fixed}. Teach smaller batches, or open it with a greater capacity."
            )
        oldest = np.sort(there[np.argsort(times[there], kind="stable")[:left]])
        out = self.places.members(oldest)
        gone = np.column_stack([np.full(len(out), NOWHERE), self.places.table[out, 1], np.full(len(out), NOWHERE)])
        return chosen + oldest.tolist(), self.places.changed(out, gone)

    def _apply(self, changes: Ints, now: int, known: tuple[int, Floats] | None = None) -> None:
        """Take changes of places into memory.

        Args:
            changes: (m, 7); of several changes of one example the last counts.
            now: the number of the last entry they are of.
            known: the keys of the examples from a number on; those of others are read from the journal.
        """
        self.places.set(changes)
        key_size = int(self.settings.get("key_size", 0))
        if not key_size:
            self._now = now
            return
        self._make_room(int(changes[:, SLOT].max(initial=0)) + 1, key_size)
        # Where examples only come to a slot, later than all that it has, they are averaged into its key. Any other slot
        # is computed from all its examples.
        times = self.array("times")
        came, anew = dict[int, list[int]](), set[int]()
        for example, slot, _, entry, old_slot, _, _ in changes.tolist():
            if old_slot >= 0:
                anew.add(old_slot)
            if slot >= 0:
                came.setdefault(slot, []).append(example)
                if entry <= times[slot]:
                    anew.add(slot)
        if anew:
            came |= {slot: [] for slot in anew}
            members = self.places.members(np.array(list(anew)))
            for example, slot in zip(members.tolist(), self.places.table[members, 0].tolist(), strict=True):
                came[slot].append(example)
        slots = sorted(came)
        for start in range(0, max(len(slots), 1), REBUILT_AT_ONCE):  # once where there is none: the clock goes on
            self._put(self._rows(slots[start : start + REBUILT_AT_ONCE], came, anew, known), now)
        self._now = now  # last: where Ctrl-C comes before, all of it is taken up again

    def _rows(self, slots: list[int], came: dict[int, list[int]], anew: set[int], known: Any) -> Rows:
        """Return what slots hold after examples came to them."""
        index = np.array(slots, np.int64)
        rows = Rows(index, {name: self.array(name)[index] for name in FIELDS})
        examples = np.array([example for slot in slots for example in came[slot]], np.int64)
        keys = self._keys(examples, known)
        _, labels, entries = self.places.table[examples].T.tolist()
        joined, end = list(zip(entries, examples.tolist(), keys, strict=True)), 0
        for row, slot in enumerate(slots):
            start, end = end, end + len(came[slot])
            if slot in anew:
                rows.empty(row)
            if end > start:
                rows.add(row, labels[start], joined[start:end])
        return rows

    def _put(self, rows: Rows, now: int) -> None:
        assert self.memory is not None
        fields = {name: torch.from_numpy(row) for name, row in rows.fields.items()}
        slots = torch.from_numpy(rows.slots)
        self._changed.update(rows.slots.tolist())
        self._used = max(self._used, int(rows.slots[-1]) + 1 if len(rows.slots) else 0)
        if self._opened:  # not by `Memory.put`, which checks that such slots can be
            self.memory._changing(self.memory._change, "put", slots, now, fields)
        else:  # nobody asks it yet: what follows from the slots is made when all are there
            for name, row in fields.items():
                self.memory._buffers[name][slots] = row
            self.memory.now.fill_(now)

    def _keys(self, examples: Ints, known: tuple[int, Floats] | None) -> Floats:
        if known is not None and examples.min(initial=known[0]) >= known[0]:
            keys: Floats = known[1][examples - known[0]]
            return keys
        assert self.memory is not None
        return self.journal.read_keys(examples, self.memory.key_size)

    def nearest(self, units: Floats) -> tuple[list[int], list[int]]:
        """Return the slot and the label of the nearest neighbour of each key; -1 where there is none."""
        memory, query = self.memory, torch.from_numpy(units)
        if memory is None:
            return [-1] * len(units), [-1] * len(units)
        found = memory._reading(lambda: memory._followed().recall(query, None, 1))  # in half the time of k neighbours
        return found.slots[:, 0].tolist(), found.values[:, 0].tolist()

    # ---- writing ----

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Change the folder alone."""
        if self.readonly:
            raise FolderError(f"{self.folder} was opened with readonly=True: it can be asked, and not be changed.")
        with self.lock:
            self.check_open()
            assert self._writer is not None
            self._writer.check()
            # Ctrl-C may have come when an entry was in the journal, and not yet in memory.
            if self.journal.entries != self._now and self._replay(self._now):
                self._purge()
            yield

    def commit(self, kind: str, changes: Ints, known: tuple[int, Floats] | None = None, **details: Any) -> None:
        """Write an entry to the journal, then take it into memory. `details` are those of `Journal.append`."""
        entry = self.journal.append(kind, changes, **details)
        self._head.write(entry)
        self.labels.add(details.get("labels", ()))
        self.settings |= details.get("settings") or {}
        self._apply(changes, entry, known)
        self._unsaved += max(len(changes), 1)
        if details.get("forgotten"):
            self._purge()
        elif self._unsaved > max(SNAPSHOT_AFTER, SNAPSHOT_SHARE * len(self.places)):
            self.start_compacting()

    def _purge(self) -> None:
        """Let no file hold what was forgotten: not the log, not the snapshot."""
        self.stop_compacting()
        self.journal.purge()
        self._remove_snapshot()
        self.start_compacting()

    def _remove_snapshot(self) -> None:
        for path in (self.folder / "snapshot.safetensors", *self.folder.glob(".snapshot*.tmp")):
            path.unlink(missing_ok=True)
        sync(self.folder)

    # ---- snapshots ----

    def start_compacting(self) -> None:
        """Write a snapshot in the background, unless one is being written."""
        if not self._compaction and self.memory is not None:
            self._abort = False
            self._compaction.append(threading.Thread(target=self._compact, daemon=True))
            self._compaction[0].start()

    def stop_compacting(self) -> None:
        """Stop writing a snapshot, and leave nothing of it."""
        self._abort = True
        for running in list(self._compaction):
            running.join()

    def compact(self) -> None:
        """Write a snapshot now, and wait for it."""
        with self.lock:
            self.start_compacting()
        for running in list(self._compaction):
            running.join()

    @contextmanager
    def _lock_of_compaction(self) -> Iterator[None]:
        """The lock; one who holds it may stop the compaction, and wait for its end."""
        while not self.lock.acquire(timeout=0.01):
            if self._abort:
                raise snapshot.Aborted
        try:
            yield
        finally:
            self.lock.release()

    def _compact(self) -> None:
        def changed() -> set[int]:
            found, self._changed = self._changed, set()
            return found

        def state() -> snapshot.State:
            if self.journal.entries != self._now:  # after Ctrl-C; see `writing`
                raise snapshot.Aborted
            saved[:] = [self._unsaved]
            return snapshot.State(self._now, self.journal.digest, self.places.table.copy(), self._used)

        saved = [0]
        assert self.memory is not None
        try:
            path, key_size = self.folder / "snapshot.safetensors", self.memory.key_size
            lock, keys = self._lock_of_compaction, lambda: self.array("keys")[: self._used]
            snapshot.write(path, key_size, lock, keys, changed, state, lambda: self._abort)
            self._unsaved -= saved[0]
        except snapshot.Aborted:
            pass
        except OSError as error:
            log.warning("No snapshot of %s was written (%s); the journal has everything.", self.folder, error)
        finally:
            self._compaction.clear()

    # ---- opening, following, closing ----

    def _load(self, defaults: dict[str, Any], use_snapshot: bool) -> None:
        # A writer may be at work: what is read later is as new as what was read before, or newer.
        acknowledged = self._head.read()
        self.settings = defaults | self.journal.settings()
        self._now = 0
        if use_snapshot:
            self._read_snapshot()
        start = self._now
        with self.journal.reading():
            self.journal.refresh()
            if acknowledged > self.journal.entries:
                raise FolderDamaged(
                    f"{self.folder} was taught up to entry {acknowledged}, and its journal ends at entry "
                    f"{self.journal.entries}: the end of journal.sqlite-wal was lost. Restore the folder from a "
                    "backup; or, to go on with what is left, run: rarecall check --rebuild."
                )
            purge = self._replay(start)
        self._opened = True
        if self.memory is not None:
            # Half a million keys take seconds; whoever asks meanwhile waits for it.
            memory = self.memory
            if self._used < INDEXED_AT_ONCE:
                memory.lock.exclusive(memory._get_in_step)
            else:
                threading.Thread(target=_prepare_to_answer, args=(memory,), daemon=True).start()
        if self.readonly:
            return
        self._head.write(self.journal.entries)
        self._unsaved = len(self.places) if start == 0 else self._now - start
        if purge or any(self.folder.glob(".snapshot*.tmp")):  # a process was killed before it had removed them
            self._purge()

    def _read_snapshot(self) -> None:
        path = self.folder / "snapshot.safetensors"

        def room(used: int, key_size: int) -> Floats:
            if key_size != self.settings.get("key_size"):
                raise ValueError(f"its keys are of dimension {key_size}")
            self._make_room(used, key_size)
            keys: Floats = self.array("keys")[:used]
            return keys

        try:
            of = snapshot.read(path, room)
            if of.entry > self.journal.entries or self.journal.entry_digest(of.entry) != of.digest:
                raise FolderDamaged(
                    f"{path} is of entry {of.entry}, which is not in the journal or not the same there: journal and "
                    "snapshot are not of one folder, or the journal has lost entries. Restore both from one backup; "
                    "or, to go on with the journal alone, remove the snapshot."
                )
        except FileNotFoundError:
            return
        except FolderDamaged as error:
            if "not in the journal" in str(error):
                raise
            log.warning("%s Everything is read from the journal instead.", error)
            self.memory = None
            return
        self.places, self._now, self._used = Places(of.table), of.entry, of.used
        self._fill(of)

    def _fill(self, of: snapshot.State) -> None:
        """Set all that a snapshot does not hold because it follows from the places."""
        assert self.memory is not None
        examples = np.flatnonzero(of.table[:, 0] >= 0)
        table = of.table[examples]
        order = np.lexsort((examples, table[:, 2], table[:, 0]))
        examples, table = examples[order], table[order]
        first = np.flatnonzero(np.diff(table[:, 0], prepend=-1))
        slots, counts = table[first, 0], np.diff(first, append=len(table))
        last = first + counts - 1
        rows = {"values": table[first, 1], "sources": examples[first], "counts": counts, "times": table[last, 2]}
        for name, row in rows.items():
            self.memory._buffers[name][torch.from_numpy(slots)] = torch.from_numpy(row)
        self.memory.now.fill_(of.entry)

    def _replay(self, start: int) -> bool:
        """Take all entries after `start` into memory; return whether any of them has forgotten something."""
        self.labels.add(self.journal.label_names(len(self.labels)))
        entries = list(self.journal.read(start + 1))
        if not entries:
            return False
        if "key_size" not in self.settings or any(entry.kind in ("create", "settings", "use") for entry in entries):
            self.settings |= self.journal.settings()
        self._apply(np.concatenate([entry.changes for entry in entries]), entries[-1].id)
        if len(self.places) != self.journal.examples:
            raise FolderDamaged(f"{self.folder}: the entries are of {len(self.places)} examples, not of all there are.")
        return any(entry.kind == "forget" for entry in entries)

    def follow(self) -> bool:
        """Take up what another process has written since; return whether there was anything."""
        with self.lock:
            if self._closed.is_set() or self._head.read() == self._now:
                return False
            with self.journal.reading():
                self.journal.refresh()
                if self.journal.entries == self._now:
                    return False
                self._replay(self._now)
            return True

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed.is_set()

    def check_open(self) -> None:
        """Refuse a folder that was closed."""
        if self._closed.is_set():
            raise FolderError(f"{self.folder} was closed; open it again: rarecall.open({str(self.folder)!r}).")

    def close(self) -> None:
        """Write a snapshot where that is worth it, and close all files. To close twice does nothing."""
        with self.lock:
            worth_it = self._unsaved * WORTH_CLOSING > len(self.places)
            if not self._closed.is_set() and not self.readonly and worth_it:
                self.start_compacting()
        for running in list(self._compaction):
            running.join()
        with self.lock:
            if not self._closed.is_set():
                self._closed.set()
                self._release()

    def _release(self) -> None:
        for name in ("journal", "_head"):
            if hasattr(self, name):
                getattr(self, name).close()
        if self._writer is not None:
            self._writer.release()


def _follow(kept: weakref.ref[KeptMemory], closed: threading.Event) -> None:
    """Look for new entries until the folder is closed."""
    while not closed.wait(FOLLOW):
        here = kept()
        if here is None:
            return
        try:
            here.follow()
        except Exception as error:
            log.error("%s is no longer followed: %s", here.folder, error)
            return
        del here


def _prepare_to_answer(memory: Memory) -> None:
    """Make the search's index, and the class means that readers ask for."""
    memory.lock.exclusive(memory._get_in_step)
    memory.class_means(memory.values[:1])
