"""A classifier in a folder: taught one example at a time, asked why, made to forget, and kept for years."""

from __future__ import annotations

import json
import logging
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby, islice
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rarecall import reading
from rarecall.memory import Memory
from rarecall.report import Report, report
from rarecall.store import exchange
from rarecall.store.content import KEEP, Label, decode, encode, label_name
from rarecall.store.folder import read_json, write_json
from rarecall.store.journal import Entry, Example
from rarecall.store.kept_memory import KeptMemory
from rarecall.store.slots import ENTRY, EXAMPLE, LABEL, NOWHERE, OLD_ENTRY, OLD_SLOT, SLOT, Floats, Ints

log = logging.getLogger("rarecall")

NEARLY_FULL = 0.9  # of a fixed capacity: from here on a warning says so
SAME = 1 - 4e-6  # from this cosine similarity on, two keys are of the same example, as float32 rounds
PROBES, SAME_EMBEDDER = 3, 0.99  # kept examples that are embedded again, and how similar they must be
SLOTS_EXPLAINED = 16  # nearest slots whose examples are looked at for an explanation
DEFAULTS: dict[str, Any] = {"capacity": "grow", "keep": "content", "search": "exact", "reader": "blend", "expire": 0}
FITTED_FROM = 64  # slots: the reader of fewer is as it was made
IMPORTED = 8192  # examples in a commit of an import
EXPIRY_CHECKED = 3600.0  # seconds between two looks for what has expired
DAY = 86400.0
UNDOABLE = ("teach", "import", "relabel", "merge")


@dataclass(frozen=True)
class Taught:
    """A taught example.

    Attributes:
        id: its number.
        example: as it was taught, as far as it was kept.
        label: what it is taught as.
        when: when it was taught.
        who: who taught it, where that was said.
    """

    id: int
    example: Any
    label: Label
    when: datetime
    who: str | None


@dataclass(frozen=True)
class Evidence(Taught):
    """A taught example that an answer comes from.

    Attributes:
        similarity: cosine similarity of its own key to the question.
    """

    similarity: float


@dataclass(frozen=True)
class Answer:
    """What a question was answered.

    Attributes:
        label: the most probable label; None where nothing was taught.
        probability: of this label, 0 to 1.
        known: False where the question is probably of no class that was taught.
        familiarity: the probability that it is of one, 0 to 1.
        alternatives: labels and their probabilities, the most probable first.
    """

    label: Label | None
    probability: float
    known: bool
    familiarity: float
    alternatives: list[tuple[Label, float]]
    _explain: Callable[[int], list[Evidence]] = field(repr=False, compare=False)

    @property
    def because(self) -> list[Evidence]:
        """The taught examples that decided it, nearest first: up to five."""
        return self._explain(5)

    def explain(self, count: int) -> list[Evidence]:
        """Return so many of them."""
        return self._explain(count)


@dataclass(frozen=True)
class Line:
    """A line of the history.

    Attributes:
        id: the entry's number, for `undo`.
        when: when it was written.
        kind: what was done: create, teach, import, merge, relabel, forget, undo, fit or settings.
        who: by whom, where that was said.
        reason: why, where that was said.
        count: how many examples it concerned.
        labels: up to five of the labels that its examples have in it.
        undone: the entry that took it back, or None.
        detail: more.
    """

    id: int
    when: datetime
    kind: str
    who: str | None
    reason: str | None
    count: int
    labels: list[Label]
    undone: int | None
    detail: dict[str, Any]


class KeptClassifier:
    """A taught classifier in a folder; `rarecall.open` makes it.

    Threads: any number may ask at once, also while one teaches; those that teach wait for each other.

    Args:
        folder: made where there is none.
        embed: maps a list of examples to (n, key_size). None: examples are embeddings themselves, or come with `keys=`.
        readonly: follow a folder that another process teaches.
        who: by whom what is taught here is taught, where no other is said.
        capacity: "grow", or a number of slots: where all are filled, those touched least recently are written over.
        keep: "content" keeps examples; "reference" only paths, numbers, and the SHA-256 of all else.
        search: how neighbours are found, a name as for `Memory`.
        reader: how neighbours become an answer: "blend", "vote" or "nearest"; see `rarecall.reading`.
        expire: days after which what was not used is forgotten: neither taught or confirmed, nor the nearest to a
            question that this process was asked. 0: never.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> with KeptClassifier(folder) as shapes:                       # no embedder: examples are embeddings
        ...     number = shapes.teach([1.0, 0.0, 0.0], "round")          # on the disk when it returns
        >>> with KeptClassifier(folder) as shapes:
        ...     shapes.ask([0.9, 0.1, 0.0]).label
        'round'
    """

    def __init__(
        self,
        folder: str | Path,
        embed: Callable[[list[Any]], Any] | None = None,
        *,
        readonly: bool = False,
        who: str | None = None,
        capacity: int | str | None = None,
        keep: str | None = None,
        search: str | None = None,
        reader: str | None = None,
        expire: float | None = None,
    ) -> None:
        given = {"capacity": capacity, "keep": keep, "search": search, "reader": reader, "expire": expire}
        given = {name: value for name, value in given.items() if value is not None}
        _check_settings(given)
        self.folder, self.embed, self.readonly, self.who = Path(folder), embed, readonly, who
        self._kept = KeptMemory(self.folder, readonly, DEFAULTS | given)
        self._numbers, self._warned = dict[str, int](), False
        self._fitting: list[threading.Thread] = []
        self._reader, self._reader_file = reading.make(self._kept.settings["reader"]), 0
        self._uses, self._expired_at = dict[int, float](), 0.0  # by the founder of the slot that was nearest
        try:
            self._check_embedder()
            self._load_reader()
            if not readonly:
                self._keep_settings(given)
                self.expire()
        except BaseException:
            self._kept.close()
            raise

    # ---- teaching ----

    def teach(
        self, example: Any, label: Any, *, keys: Any = None, who: str | None = None, reason: str | None = None
    ) -> Any:
        """Remember an example, or many in one commit. They are on the disk when this returns.

        Where the nearest neighbour has the right label, the example confirms its slot; else it gets one of its own.

        Args:
            example: one, or a list. Without an embedder: embeddings, (key_size,) or (n, key_size).
            label: text or a number; or a list, one for each example.
            keys: their embeddings, where these are there already.
            who: by whom.
            reason: why.

        Returns:
            The number of the example, or a list of them.
        """
        one_label = _is_scalar(label)
        examples, many = self._examples(example, keys, many=not one_label)
        labels = [label] * len(examples) if one_label else list(label)
        if len(labels) != len(examples):
            raise ValueError(f"teach got {len(examples)} examples and {len(labels)} labels; expected one for each.")
        if not examples:
            return []
        units = self._units(examples, keys)
        contents = self._contents(examples, keys)
        with self._kept.writing():
            ids = self._teach("teach", units, labels, contents, who, reason, confirm=True)
            if time.time() - self._expired_at > EXPIRY_CHECKED:
                self.expire()
        return ids if many else ids[0]

    def relabel(
        self,
        example: Any,
        label: Any,
        *,
        id: int | Sequence[int] | None = None,
        who: str | None = None,
        reason: str | None = None,
    ) -> int:
        """Change what an example is taught as: the next question about it is answered so.

        Args:
            example: as it was taught; all that were taught with the same content are relabelled. None: by `id`.
            label: the right one.
            id: the number of the example, or several.
            who: by whom.
            reason: why.

        Returns:
            How many examples were relabelled.
        """
        kept = self._kept
        with kept.writing():
            ids = self._find(example, id)
            if not len(ids):
                raise KeyError("relabel found no such example: teach it, or use correct, which does either.")
            [number], new = self._number([label])
            slots, out = kept.choose(1)
            places = np.tile([slots[0], number, kept.now + 1], (len(ids), 1))
            out = out[~np.isin(out[:, EXAMPLE], ids)]
            changes = np.concatenate([out, kept.places.changed(ids, places)])
            kept.commit("relabel", changes, who=who or self.who, reason=reason, labels=new)
            return len(ids)

    def rename(self, label: Any, to: Any, *, who: str | None = None, reason: str | None = None) -> int:
        """Give a class another name. Where another class has it already, the two become one.

        The keys stay as they are: every slot of the class has another value. `undo` takes it back.

        Returns:
            How many examples have another label now.
        """
        kept = self._kept
        with kept.writing():
            table, known = kept.places.table, self._numbered().get(label_name(label))
            ids = np.flatnonzero(table[:, 1] == known)
            if known is None or not len(ids):
                raise KeyError(f"rename found nothing that is taught as {label!r}.")
            [number], new = self._number([to])
            places = table[ids].copy()
            places[:, 1] = number
            changes = kept.places.changed(ids, places)
            kept.commit("relabel", changes, who=who or self.who, reason=reason, labels=new)
            return len(ids)

    def correct(self, example: Any, label: Any, *, who: str | None = None, reason: str | None = None) -> None:
        """Say what the right answer is: what was taught of this example is relabelled; if nothing was, it is taught."""
        with self._kept.writing():
            if len(self._find(example, None)):
                self.relabel(example, label, who=who, reason=reason)
            else:
                self.teach(example, label, who=who, reason=reason)

    def forget(
        self,
        *,
        label: Any = None,
        example: Any = None,
        id: int | Sequence[int] | None = None,
        who: str | None = None,
        before: datetime | float | None = None,
        after: datetime | float | None = None,
        reason: str | None = None,
        by: str | None = None,
    ) -> int:
        """Forget for good what fits all that is given: neither memory nor folder hold it when this returns.

        Slots that other examples share are computed anew from those that remain, in order. They are, bit for bit, what
        they would be had the forgotten ones never confirmed them. The line in the history stays.

        Args:
            label: what it is taught as.
            example: as it was taught.
            id: its number, or several.
            who: who taught it.
            before: when it was taught: before this time, a datetime or seconds since 1970.
            after: at this time or later.
            reason: why; it stays in the history.
            by: who forgets; it stays in the history.

        Returns:
            How many examples were forgotten.
        """
        given = {"label": label, "example": example, "id": id, "who": who, "before": before, "after": after}
        asked = [name for name, value in given.items() if value is not None]
        if not asked:
            raise ValueError(f"forget got nothing to go by; expected at least one of {', '.join(given)}.")
        kept = self._kept
        with kept.writing():
            table = kept.places.table
            chosen = table[:, 1] != NOWHERE
            if label is not None:
                chosen &= table[:, 1] == self._numbered().get(label_name(label), NOWHERE)
            if example is not None or id is not None:
                chosen &= np.isin(np.arange(len(table)), self._find(example, id))
            if {"who", "before", "after"} & set(asked):
                taught = kept.journal.find_taught(who, _seconds(after), _seconds(before))
                chosen &= np.isin(np.arange(len(table)), taught)
            ids = np.flatnonzero(chosen)
            if not len(ids):
                return 0
            changes = kept.places.changed(ids, np.full((len(ids), 3), NOWHERE))
            who = by or self.who
            kept.commit("forget", changes, forgotten=ids.tolist(), who=who, reason=reason, detail={"by": asked})
            return len(ids)

    def undo(self, entry: int | None = None, *, who: str | None = None, reason: str | None = None) -> int:
        """Take back an entry of the history: by default the last one that is not an undo and was not undone.

        What was forgotten is forgotten for good: an undo of that restores nothing, and says so in the log. An undo is
        undone by its number.

        Returns:
            How many examples are back in the place that they had before.
        """
        kept = self._kept
        with kept.writing():
            undone = self._undone()
            if entry is None:
                candidates = (each for each in range(kept.now, 0, -1) if each not in undone)
                entry = next((each for each in candidates if self._entry(each).kind in (*UNDOABLE, "forget")), 0)
                if entry == 0:
                    return 0
            if not 1 <= entry <= kept.now:
                raise ValueError(f"undo got entry {entry}; the history has entries 1 to {kept.now}.")
            if entry in undone:
                raise ValueError(f"Entry {entry} is undone already: to do it again, undo entry {undone[entry]}.")
            of = self._entry(entry)
            if of.kind not in (*UNDOABLE, "undo"):
                log.warning("Entry %d (%s) cannot be undone: what was forgotten is gone for good.", entry, of.kind)
                return 0
            changes = of.changes[kept.places.table[of.changes[:, EXAMPLE], 1] != NOWHERE]
            if not np.array_equal(kept.places.table[changes[:, EXAMPLE]], changes[:, SLOT : ENTRY + 1]):
                raise ValueError(f"Entry {entry} cannot be undone: later entries changed its examples. Undo those.")
            ids, places = changes[:, EXAMPLE], changes[:, OLD_SLOT : OLD_ENTRY + 1].copy()
            places[:, 1] = np.where(places[:, 1] == NOWHERE, changes[:, LABEL], places[:, 1])
            out = self._resolve(ids, places)
            changes = np.concatenate([out, kept.places.changed(ids, places)])
            kept.commit("undo", changes, who=who or self.who, reason=reason, detail={"entry": entry})
            return len(ids)

    def expire(self) -> int:
        """Forget what was not used for longer than the folder's setting `expire`; return how many examples.

        It is done by itself when the folder is opened and closed, and every hour while it is taught.
        """
        kept, limit = self._kept, float(self._kept.settings["expire"])
        self._expired_at = time.time()
        if not limit or kept.memory is None:
            return 0
        with kept.writing():
            self._keep_uses()
            uses = kept.settings.get("uses", {})
            table, times = kept.places.table, kept.journal.times()
            ids = np.flatnonzero(table[:, 0] >= 0)
            founders = kept.array("sources")[table[ids, 0]].tolist()
            # A slot was last used when its newest example came, or when it was last the nearest.
            newest = kept.array("times")[table[ids, 0]].tolist()
            last = [max(times[entry], uses.get(str(f), 0.0)) for entry, f in zip(newest, founders, strict=True)]
            old = ids[np.array(last) < time.time() - limit * DAY]
            return self.forget(id=old.tolist(), reason=f"not used for {limit:g} days") if len(old) else 0

    # ---- in and out ----

    def import_(
        self,
        source: Any,
        *,
        labels: Any = None,
        examples: Any = None,
        example: str = "example",
        label: str = "label",
        key: str = "key",
        who: str | None = None,
        reason: str | None = None,
        progress: bool = True,
    ) -> int:
        """Teach many examples without asking for any: each gets a slot of its own. A commit for every 8192.

        Args:
            source: a file (.jsonl, .parquet, .npz or .csv); a pandas table; an iterable of dictionaries; or embeddings,
                (n, key_size), with labels= and perhaps examples=. None: examples= and labels=.
            labels: of all examples, where the source has none.
            examples: likewise.
            example: the name of the column of examples.
            label: that of the labels.
            key: that of the embeddings; where there is none, the embedder makes them.
            who: by whom.
            reason: why.
            progress: show a bar, where there is a terminal and tqdm is installed.

        Returns:
            How many examples were taught.
        """
        columns, count = exchange.Columns(example, label, key), 0
        parts, total = exchange.batches(source, labels, examples, columns, IMPORTED)
        with _bar(total, progress) as advance:
            for some in parts:
                given = some.examples if some.examples is not None else [None] * len(some.labels)
                units = self._units(given, some.keys)
                contents = [encode(each, self._kept.settings["keep"]) for each in given]
                with self._kept.writing():
                    self._teach("import", units, some.labels, contents, who, reason, confirm=False)
                count += len(given)
                advance(len(given))
        return count

    def export(self, path: str | Path) -> int:
        """Write all that is in memory to a file (.jsonl, .parquet, .npz or .csv); return how many examples.

        `import_` reads it again, but for .csv, which has no embeddings.
        """
        return exchange.write(Path(path), self.records())

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield the examples in memory as dictionaries: id, example, label, key, when and who."""
        kept = self._kept
        with kept.lock:
            ids = np.flatnonzero(kept.places.table[:, 0] >= 0)
        for start in range(0, len(ids), IMPORTED):
            with kept.lock:
                kept.check_open()
                examples = kept.journal.read_examples(ids[start : start + IMPORTED])
                entries = {number: self._entry(number) for number in {each.entry for each in examples.values()}}
                some = [(each.key, Taught(*self._fields(each, entries))) for each in examples.values()]
            for unit, taught in some:
                yield vars(taught) | {"key": unit}

    def merge(self, other: str | Path | KeptClassifier, *, reason: str | None = None, progress: bool = True) -> int:
        """Teach all that another folder holds in memory, each example in a slot of its own; return how many.

        Who taught an example is kept; when it was taught is when it came here.
        """
        if not isinstance(other, KeptClassifier):
            with KeptClassifier(other, readonly=True) as opened:
                return self.merge(opened, reason=reason, progress=progress)
        mine, its = self._kept.settings, other._kept.settings
        for name in ("embedder", "key_size", "fingerprint"):
            if mine.get(name) is not None and its.get(name) is not None and mine[name] != its[name]:
                raise ValueError(f"{other.folder} has another {name} ({its[name]}) than {self.folder} ({mine[name]}).")
        count, rows = 0, other.records()
        reason = reason or f"from {other.folder}"
        with _bar(len(other), progress) as advance:
            for who, of in groupby(rows, lambda row: row["who"]):
                while some := list(islice(of, IMPORTED)):
                    units = np.stack([row["key"] for row in some])
                    contents = [encode(row["example"], self._kept.settings["keep"]) for row in some]
                    with self._kept.writing():
                        self._teach(
                            "merge", units, [row["label"] for row in some], contents, who, reason, confirm=False
                        )
                    count += len(some)
                    advance(len(some))
        return count

    def report(self) -> Report:
        """Return a table of the classes: how many examples, how old, how often right, and what is confused."""
        return report(self)

    # ---- asking ----

    def ask(self, question: Any, *, keys: Any = None) -> Any:
        """Return the answer to a question, or a list of them for many. Any number of threads may ask at once.

        A question that was taught word for word is answered as it was taught last.

        Args:
            question: like the examples of `teach`.
            keys: its embedding, where that is there already.
        """
        self._kept.check_open()
        questions, many = self._examples(question, keys, many=False)
        memory = self._kept.memory
        if memory is None or not questions:
            answers = [Answer(None, 0.0, False, 0.0, [], lambda count: []) for _ in questions]
        else:
            answers = self._answer(memory, self._units(questions, keys))
        return answers if many else answers[0]

    def explain(self, question: Any, count: int = 5, *, keys: Any = None) -> list[Evidence]:
        """Return the taught examples that the answer to one question comes from, nearest first."""
        [answer] = [self.ask(question, keys=keys)]
        found: list[Evidence] = answer._explain(count)
        return found

    def fit(self) -> None:
        """Fit the reader to what was taught, by leaving it out, and wait for it: see `rarecall.reading`.

        It is done by itself in the background, when the folder is asked and has grown or shrunk by a quarter since.
        """
        memory = self._kept.memory
        if memory is not None:
            reader = reading.make(self._kept.settings["reader"])
            reader.fit(memory)
            self._reader = reader
            if not self.readonly:
                write_json(self.folder / "reader.json", reader.settings())

    def __len__(self) -> int:
        """How many examples are in memory."""
        return int((self._kept.places.table[:, 0] >= 0).sum())

    def classes(self) -> dict[Label, int]:
        """Return how many examples of each label are in memory, in the order the labels were first taught."""
        with self._kept.lock:
            table = self._kept.places.table
            counts = np.bincount(table[table[:, 0] >= 0, 1], minlength=len(self._kept.labels))
            pairs = zip(self._kept.labels, counts.tolist(), strict=True)
            return {json.loads(name): count for name, count in pairs if count}

    def newest(self, count: int) -> dict[Label, list[int]]:
        """Return the numbers of up to `count` examples of each label, the newest first."""
        with self._kept.lock:
            table = self._kept.places.table
            ids = np.flatnonzero(table[:, 0] >= 0)[::-1]
            ids = ids[np.argsort(table[ids, 1], kind="stable")]
            starts = np.flatnonzero(np.diff(table[ids, 1], prepend=-1))
            groups = np.split(ids, starts[1:]) if len(ids) else []
            return {json.loads(self._kept.labels[table[g[0], 1]]): g[:count].tolist() for g in groups}

    def examples(
        self,
        label: Any = None,
        *,
        ids: Sequence[int] | None = None,
        before: int | None = None,
        last: int | None = None,
    ) -> list[Taught]:
        """Return examples that are in memory, the newest first.

        Args:
            label: only those that are taught as this.
            ids: only those with these numbers.
            before: only those with a smaller number than this, for reading on where a list ended.
            last: at most so many.
        """
        kept = self._kept
        with kept.lock:
            kept.check_open()
            table = kept.places.table
            chosen = table[:, 0] >= 0
            if label is not None:
                chosen &= table[:, 1] == self._numbered().get(label_name(label), NOWHERE)
            if ids is not None:
                chosen &= np.isin(np.arange(len(table)), ids)
            if before is not None:
                chosen[before:] = False
            found = np.flatnonzero(chosen)[::-1][:last]
            examples = kept.journal.read_examples(found)
            entries = {number: self._entry(number) for number in {each.entry for each in examples.values()}}
            return [Taught(*self._fields(examples[number], entries)) for number in found.tolist()]

    def history(self, last: int | None = None) -> list[Line]:
        """Return what was done, the oldest first: all of it, or the last entries."""
        kept = self._kept
        with kept.lock:
            kept.check_open()
            undone = self._undone()
            first = 1 if last is None else max(kept.now - last + 1, 1)
            return [
                Line(
                    id=entry.id,
                    when=_when(entry.time),
                    kind=entry.kind,
                    who=entry.who,
                    reason=entry.reason,
                    count=len(entry.changes),
                    labels=[json.loads(kept.labels[n]) for n in np.unique(entry.changes[:, LABEL])[:6] if n >= 0][:5],
                    undone=undone.get(entry.id),
                    detail=entry.detail,
                )
                for entry in kept.journal.read(first, kept.now)
            ]

    @property
    def entry(self) -> int:
        """The number of the last entry of the history that is in memory."""
        return self._kept.now

    @property
    def settings(self) -> dict[str, Any]:
        """What the folder was made with: capacity, keep, search, key_size, embedder."""
        return dict(self._kept.settings)

    @property
    def memory(self) -> Memory | None:
        """The memory; None before anything was taught. Not to be changed by hand."""
        return self._kept.memory

    def compact(self) -> None:
        """Write a snapshot now. It is done by itself now and then, and when the folder is closed."""
        self._kept.compact()

    def refresh(self) -> None:
        """Take up at once what another process has taught; a follower does so by itself within a second."""
        if self.readonly:
            self._kept.follow()

    def close(self) -> None:
        """Close the folder. To close it twice does nothing."""
        for fitting in list(self._fitting):
            fitting.join()
        if not self.readonly and not self._kept.closed:
            with self._kept.writing():
                self._keep_uses()
        self._kept.close()

    def __enter__(self) -> KeptClassifier:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        mode = ", readonly" if self.readonly else ""
        return f"<rarecall {str(self.folder)!r}: {len(self)} examples of {len(self.classes())} classes{mode}>"

    # ---- inside ----

    def _teach(
        self,
        kind: str,
        units: Floats,
        labels: list[Any],
        contents: list[tuple[str, bytes]],
        who: str | None,
        reason: str | None,
        confirm: bool,
    ) -> list[int]:
        """Choose slots, and commit."""
        kept = self._kept
        numbers, new = self._number(labels)
        settings = {} if "key_size" in kept.settings else {"key_size": units.shape[1], "embedder": self._embedder()}
        nearest = zip(numbers, *kept.nearest(units), strict=True) if confirm else ()
        right = {row: slot for row, (number, slot, its) in enumerate(nearest) if its == number}
        chosen, out = kept.choose(len(units) - len(right), list(right.values()))
        fresh = iter(chosen)
        slots = [right[row] if row in right else next(fresh) for row in range(len(units))]
        first, changes = len(kept.places) + 1, kept.places.new(slots, numbers, kept.now + 1)
        changes = np.concatenate([out, changes]) if len(out) else changes
        examples = [(*content, unit.tobytes()) for content, unit in zip(contents, units, strict=True)]
        detail = {"evicted": len(out)} if len(out) else {}
        kept.commit(
            kind, changes, (first, units), who=who or self.who, reason=reason, detail=detail, examples=examples,
            labels=new, settings=settings,
        )  # fmt: skip
        self._warn_if_full(out)
        return list(range(first, first + len(units)))

    def _answer(self, memory: Memory, units: Floats) -> list[Answer]:
        recall = memory(torch.from_numpy(units))
        self._refit(memory)
        read = self._reader(memory, recall)
        if self._kept.settings.get("expire"):
            self._uses |= dict.fromkeys(memory.sources[recall.slots[:, 0].clamp(min=0)].tolist(), time.time())
        same = (recall.similarities >= SAME) & (recall.slots >= 0)
        times = memory.times[recall.slots.clamp(min=0)].where(same, -1)
        newest = times.argmax(1)
        answers = []
        for row, unit in enumerate(units):
            pairs = zip(read.values[row].tolist(), read.probabilities[row].tolist(), strict=True)
            found = [(value, probability) for value, probability in pairs if value >= 0]
            familiarity = float(read.known[row])
            if same[row].any():  # it was taught itself
                value, familiarity = int(recall.values[row, newest[row]]), 1.0
                found = [(value, 1.0)] + [(other, 0.0) for other, _ in found if other != value]
            alternatives = [(json.loads(self._kept.labels[value]), probability) for value, probability in found]
            label, probability = alternatives[0] if alternatives else (None, 0.0)
            slots = recall.slots[row, :SLOTS_EXPLAINED]

            def explain(count: int, unit: Floats = unit, slots: Tensor = slots) -> list[Evidence]:
                return self._evidence(unit, slots[slots >= 0].numpy(), count)

            answers.append(Answer(label, probability, familiarity >= 0.5, familiarity, alternatives, explain))
        return answers

    def _evidence(self, unit: Floats, slots: Ints, count: int) -> list[Evidence]:
        kept = self._kept
        with kept.lock:
            kept.check_open()
            # A slot's examples are about as near as its key; the nearest slots have enough of them.
            members = kept.places.members(np.sort(slots))
            place = {slot: rank for rank, slot in enumerate(slots.tolist())}
            rank = np.array([place[slot] for slot in kept.places.table[members, 0].tolist()])
            members = members[np.argsort(rank, kind="stable")][: max(64, 4 * count)]
            found = [(float(each.key @ unit), each) for each in kept.journal.read_examples(members).values()]
            found.sort(key=lambda pair: (-pair[0], -pair[1].id))
            entries = {each.entry: self._entry(each.entry) for _, each in found[:count]}
            return [Evidence(*self._fields(each, entries), similarity) for similarity, each in found[:count]]

    def _fields(self, each: Example, entries: dict[int, Entry]) -> tuple[int, Any, Label, datetime, str | None]:
        """What `Taught` says of an example."""
        entry, label = entries[each.entry], json.loads(self._kept.labels[self._kept.places.table[each.id, 1]])
        return each.id, decode(each.kind, each.content), label, _when(entry.time), entry.who

    def _load_reader(self) -> None:
        """Take the fitted reader from its file, where it has one of this kind."""
        path = self.folder / "reader.json"
        changed = path.stat().st_mtime_ns if path.exists() else 0
        if changed != self._reader_file:
            self._reader_file, settings = changed, read_json(path)
            if settings is not None and settings["name"] == self._kept.settings["reader"]:
                self._reader = reading.from_settings(settings)

    def _refit(self, memory: Memory) -> None:
        """Fit the reader in the background where it is time; a follower takes it from its file."""
        if self.readonly:
            self._load_reader()
        elif not self._fitting and len(memory) >= FITTED_FROM and self._reader.is_stale(memory):
            self._fitting.append(threading.Thread(target=self._fit_in_background))
            self._fitting[0].start()

    def _fit_in_background(self) -> None:
        try:
            self.fit()
        except OSError as error:
            log.warning("The reader of %s was not kept: %s", self.folder, error)
        finally:
            self._fitting.clear()

    def _keep_uses(self) -> None:
        """Write to the journal when slots were last nearest to a question."""
        uses, self._uses = self._uses, {}
        if uses:
            there = set(self._kept.array("sources").tolist())
            all_uses = self._kept.settings.get("uses", {}) | {str(founder): when for founder, when in uses.items()}
            all_uses = {founder: when for founder, when in all_uses.items() if int(founder) in there}
            self._kept.commit("use", np.empty((0, 7), np.int64), settings={"uses": all_uses})

    def _labels(self) -> list[Label]:
        return [json.loads(name) for name in self._kept.labels]

    def _entry(self, number: int) -> Entry:
        [entry] = self._kept.journal.read(number, number)
        return entry

    def _undone(self) -> dict[int, int]:
        """The entries that are undone, and by which."""
        undone: dict[int, int] = {}
        for by, of in self._kept.journal.undos():
            again = [entry for entry, its in undone.items() if its == of]
            for entry in again:  # an undo was undone
                del undone[entry]
            undone[of] = by
        return undone

    def _resolve(self, ids: Ints, places: Ints) -> Ints:
        """Find other slots for examples whose old ones are of another label by now; return what that evicts."""
        kept, outs = self._kept, [np.empty((0, 7), np.int64)]
        for slot in np.unique(places[places[:, 0] >= 0, 0]):
            here = places[:, 0] == slot
            others = np.setdiff1d(kept.places.members(np.array([slot])), ids)
            if len(others) and (kept.places.table[others, 1] != places[here, 1][0]).any():
                chosen, out = kept.choose(1, np.unique(places[:, 0]).tolist())
                places[here, 0] = chosen[0]
                outs.append(out)
        return np.concatenate(outs)

    def _numbered(self) -> dict[str, int]:
        for number in range(len(self._numbers), len(self._kept.labels)):
            self._numbers[self._kept.labels[number]] = number
        return self._numbers

    def _number(self, labels: list[Any]) -> tuple[list[int], list[str]]:
        """The numbers of labels, and the names of those that are new."""
        known, new = self._numbered(), dict[str, int]()
        numbers = []
        for label in labels:
            name = label_name(label)
            number = known.get(name)
            numbers.append(new.setdefault(name, len(known) + len(new)) if number is None else number)
        return numbers, list(new)

    def _find(self, example: Any, id: int | Sequence[int] | None) -> Ints:
        """The numbers of the examples with this content, or with these numbers, that are not forgotten."""
        table = self._kept.places.table
        if id is not None:
            ids = np.atleast_1d(np.asarray(id, np.int64))
            if len(ids) and not (ids.min() >= 1 and ids.max() < len(table)):
                raise ValueError(f"Got example {ids.tolist()}; examples have the numbers 1 to {len(table) - 1}.")
        else:
            [content] = self._contents(self._examples(example, None, many=False)[0], None)
            ids = self._kept.journal.find_content(*content)
        return ids[table[ids, 1] != NOWHERE]

    def _examples(self, given: Any, keys: Any, many: bool) -> tuple[list[Any], bool]:
        """As a list, and whether there were many."""
        if self.embed is None and keys is None:
            if isinstance(given, str | bytes | Path):
                taught_by = self._kept.settings.get("embedder") or "none so far"
                raise TypeError(
                    f"Got {type(given).__name__} without an embedder (that of the folder: {taught_by}). Pass one: "
                    "rarecall.open(folder, embed=...); or the embeddings of the examples, keys=...."
                )
            array = np.asarray(given.detach().cpu() if isinstance(given, Tensor) else given, np.float32)
            if array.ndim not in (1, 2):
                raise ValueError(f"Got embeddings of shape {array.shape}; expected (key_size,) or (n, key_size).")
            return ([array], False) if array.ndim == 1 else (list(array), True)
        if isinstance(given, list | tuple | set) or (many and not isinstance(given, str | bytes)):
            return list(given), True
        if hasattr(given, "tolist") and type(given).__module__.startswith("pandas"):
            return given.tolist(), True
        return [given], False

    def _contents(self, examples: list[Any], keys: Any) -> list[tuple[str, bytes]]:
        """What is kept of examples; nothing of those that are their own embeddings."""
        if self.embed is None and keys is None:
            return [("none", b"")] * len(examples)
        return [encode(example, self._kept.settings["keep"]) for example in examples]

    def _units(self, examples: list[Any], keys: Any) -> Floats:
        """Embeddings of length 1, (n, key_size)."""
        if keys is None and self.embed is not None:
            with torch.no_grad():
                keys = self.embed(examples)
        elif keys is None:
            keys = np.stack(examples)
        keys = keys.detach().float().cpu().numpy() if isinstance(keys, Tensor) else np.asarray(keys, np.float32)
        keys = keys[None] if keys.ndim == 1 and len(examples) == 1 else keys
        size = self._kept.settings.get("key_size", keys.shape[-1] if keys.ndim else 0)
        if keys.shape != (len(examples), size) or size == 0:
            raise ValueError(f"Got embeddings of shape {keys.shape}; expected ({len(examples)}, {size or 'key_size'}).")
        wide = keys.astype(np.float64)
        lengths = np.sqrt(np.add.accumulate(wide * wide, axis=1)[:, -1:])
        if not np.isfinite(lengths).all():
            raise ValueError("Got embeddings that are nan or infinite; expected finite ones. Look at the embedder.")
        if not lengths.all():
            raise ValueError(f"Got {int((lengths == 0).sum())} embeddings that are all 0; they have no direction.")
        # What is of length 1 already, such as keys that were exported, keeps its bits.
        units: Floats = np.where(np.abs(lengths - 1) < 1e-6, keys, (wide / lengths).astype(np.float32))
        return units

    def _embedder(self) -> str | None:
        """The name of the embedder."""
        if self.embed is None:
            return None
        named = getattr(self.embed, "name", None)
        kind = self.embed if hasattr(self.embed, "__qualname__") else type(self.embed)
        return str(named) if named else f"{kind.__module__}:{kind.__qualname__}"

    def _check_embedder(self) -> None:
        """Refuse an embedder that gives other keys to what was taught."""
        kept = self._kept
        if self.embed is None or not len(kept.places):
            return
        taught_by = kept.settings.get("embedder")
        fingerprint, kept_one = getattr(self.embed, "fingerprint", None), kept.settings.get("fingerprint")
        problem = None
        if fingerprint is not None and kept_one is not None:
            problem = None if fingerprint == kept_one else f"its fingerprint is {fingerprint}, not {kept_one}"
        else:
            probes = [each for each in self._probes() if each.kind not in ("none", "sha256", "json")][:PROBES]
            if probes:
                again = self._units([decode(each.kind, each.content) for each in probes], None)
                similar = min(float(unit @ each.key) for unit, each in zip(again, probes, strict=True))
                if similar < SAME_EMBEDDER:
                    problem = f"what it gives for a taught example has a similarity of {similar:.3f} to what was kept"
            elif taught_by is not None and taught_by != self._embedder():
                problem = "and no example was kept that could be compared"
        if problem:
            raise ValueError(
                f"{self.folder} was taught with the embedder {taught_by}; {self._embedder()} is another: {problem}. "
                "Open it with the embedder it was taught with, or export the examples and teach them to a new folder."
            )

    def _probes(self) -> list[Any]:
        """Some of the examples that are kept, the oldest first."""
        there = np.flatnonzero(self._kept.places.table[:, 1] != NOWHERE)[: 10 * PROBES]
        return list(self._kept.journal.read_examples(there).values())

    def _keep_settings(self, given: dict[str, Any]) -> None:
        kept, none = self._kept, np.empty((0, 7), np.int64)
        fingerprint = getattr(self.embed, "fingerprint", None)
        given = given | ({"fingerprint": fingerprint} if fingerprint is not None else {})
        if kept.now == 0:
            given = {"format": 1} | DEFAULTS | given
        changed = {name: value for name, value in given.items() if kept.journal.settings().get(name) != value}
        if changed:
            with kept.writing():
                kind = "create" if kept.now == 0 else "settings"
                kept.commit(kind, none, who=self.who, detail=changed, settings=changed)

    def _warn_if_full(self, out: Ints) -> None:
        capacity = self._kept.settings["capacity"]
        if self._warned or capacity == "grow" or self._kept.memory is None:
            return
        filled = len(self._kept.memory)
        if filled >= NEARLY_FULL * int(capacity):
            self._warned = True
            oldest = "the slots touched least recently are being written over"
            say = oldest if len(out) else f"when it is full, {oldest}"
            warnings.warn(
                f"{self.folder} has filled {filled} of its {capacity} slots; {say}. To let it grow: "
                'rarecall.open(..., capacity="grow").',
                RuntimeWarning,
                stacklevel=4,
            )


def open(folder: str | Path, embed: Any = None, **options: Any) -> KeptClassifier:
    """Open a folder that keeps a taught classifier, or make it.

    Args:
        folder: made where there is none.
        embed: a function from a list of examples to (n, key_size); an object that has it as `encode`, such as a
            SentenceTransformer; or a name, see `rarecall.integrations.embedders.load`: "minilm", "efficientnet", ...
        options: as for `KeptClassifier`.
    """
    if isinstance(embed, str):
        from rarecall.integrations import embedders

        return KeptClassifier(folder, embedders.load(embed), **options)
    return KeptClassifier(folder, getattr(embed, "encode", embed), **options)


def _check_settings(given: dict[str, Any]) -> None:
    if given.get("reader", "blend") not in reading.READERS:
        raise ValueError(f"open got reader={given['reader']!r}; expected one of {', '.join(reading.READERS)}.")
    if given.get("expire", 0) < 0:
        raise ValueError(f"open got expire={given['expire']}; expected a number of days, 0 for never.")
    capacity = given.get("capacity", "grow")
    if capacity != "grow" and not (isinstance(capacity, int) and capacity > 0):
        raise ValueError(f'open got capacity={capacity!r}; expected "grow" or a number of slots.')
    if given.get("keep", "content") not in KEEP:
        raise ValueError(f"open got keep={given['keep']!r}; expected one of {', '.join(KEEP)}.")


def _is_scalar(label: Any) -> bool:
    return isinstance(label, str | int | float | bool | np.generic) or getattr(label, "ndim", None) == 0


@contextmanager
def _bar(total: int | None, progress: bool) -> Iterator[Callable[[int], object]]:
    """A progress bar, where there is a terminal and tqdm."""
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        progress = False
    if not progress:
        yield lambda count: None
        return
    with tqdm(total=total, unit=" examples", disable=None) as bar:
        yield bar.update


def _seconds(when: datetime | float | None) -> float | None:
    return when.timestamp() if isinstance(when, datetime) else when


def _when(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
