"""Check all of a folder: every entry, every example, the snapshot, and that the one follows from the other."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rarecall.slots import FIELDS
from rarecall.store.folder import FolderDamaged, FolderError, Head, WriterLock
from rarecall.store.journal import Journal
from rarecall.store.kept_memory import KeptMemory
from rarecall.store.slots import NOWHERE, Ints, Places


@dataclass
class Report:
    """What a check has found.

    Attributes:
        problems: what is wrong, a sentence each; none where all is well.
        repaired: what was done about it.
        figures: how much was checked.
    """

    problems: list[str] = field(default_factory=list)
    repaired: list[str] = field(default_factory=list)
    figures: dict[str, int] = field(default_factory=dict)


def check(folder: str | os.PathLike[str], rebuild: bool = False) -> Report:
    """Read and verify everything in a folder; a process may be teaching it.

    Args:
        folder: which.
        rebuild: write the snapshot anew from the journal, and give the room of what was forgotten back to the disk.
            Examples that cannot be read are forgotten, and entries that were lost are done without: the report says so.
    """
    path, report = Path(folder), Report()
    if not (path / "journal.sqlite").is_file():
        raise FileNotFoundError(f"There is no journal in {path}.")
    try:
        unreadable = _check_journal(path, report)
    except FolderError as error:
        report.problems.append(str(error))
        return report
    if rebuild:
        _rebuild(path, unreadable, report)
    if not len(unreadable) or rebuild:
        _check_memory(path, report)
    return report


def _check_journal(path: Path, report: Report) -> Ints:
    """Check every row; return the examples that cannot be read."""
    journal, head = Journal(path / "journal.sqlite", readonly=True), Head(path / "head", readonly=True)
    try:
        acknowledged = head.read()
        with journal.reading():
            journal.refresh()
            report.problems += [f"journal.sqlite: {line}" for line in journal.integrity()]
            if acknowledged > journal.entries:
                lost = f"Entries {journal.entries + 1} to {acknowledged} were acknowledged and are lost"
                report.problems.append(f"{lost}: the end of journal.sqlite-wal is missing.")
            journal.settings()
            labels = journal.label_names()
            places = Places()
            for entry in journal.read():
                places.set(entry.changes)
            unreadable, forgotten = journal.unreadable()
            table = places.table
            if len(places) != journal.examples or table[:, 1].max(initial=-1) >= len(labels):
                report.problems.append("Entries and examples do not fit together.")
            if not np.array_equal(np.flatnonzero(table[1:, 1] == NOWHERE) + 1, np.union1d(forgotten, [])):
                report.problems.append("Other examples are overwritten than the entries say were forgotten.")
            if len(unreadable):
                report.problems.append(f"{len(unreadable)} examples cannot be read: {unreadable[:10].tolist()}.")
            report.figures |= {"entries": journal.entries, "examples": journal.examples, "labels": len(labels)}
            report.figures["forgotten"] = len(forgotten)
            return unreadable
    finally:
        journal.close()
        head.close()


def _check_memory(path: Path, report: Report) -> None:
    """Compare what the snapshot gives with what the journal alone gives, bit for bit."""
    try:
        alone = KeptMemory(path, True, {}, use_snapshot=False)
        together = KeptMemory(path, True, {})
    except FolderDamaged as error:
        report.problems.append(str(error))
        return
    with alone.lock, together.lock:
        report.figures["slots"] = 0 if alone.memory is None else len(alone.memory)
        same = alone.now != together.now or (alone.memory is None) == (together.memory is None)
        if alone.now == together.now and alone.memory is not None and together.memory is not None:
            used = min(alone.memory.capacity, together.memory.capacity)
            for name in FIELDS:
                same = same and np.array_equal(alone.array(name)[:used], together.array(name)[:used])
        if not same:
            report.problems.append("The snapshot gives another memory than the journal: remove it, or rebuild.")
    alone.close()
    together.close()


def _rebuild(path: Path, unreadable: Ints, report: Report) -> None:
    lock = WriterLock(path / "lock")
    try:
        journal, head = Journal(path / "journal.sqlite"), Head(path / "head", readonly=False)
        try:
            if len(unreadable):
                places = Places()
                for entry in journal.read():
                    places.set(entry.changes)
                changes = places.changed(unreadable, np.full((len(unreadable), 3), NOWHERE))
                reason = "they could not be read when the folder was checked"
                journal.append("forget", changes, reason=reason, forgotten=unreadable.tolist())
                report.repaired.append(f"{len(unreadable)} examples that could not be read were forgotten.")
            journal.vacuum()
            head.write(journal.entries)
        finally:
            journal.close()
            head.close()
        (path / "snapshot.safetensors").unlink(missing_ok=True)
    finally:
        lock.release()
    kept = KeptMemory(path, False, {})
    kept.compact()
    kept.close()
    report.repaired.append(f"The snapshot was made anew from the journal, up to entry {kept.now}.")
    report.problems.clear()
