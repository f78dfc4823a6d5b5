"""The classifier of a folder: `rarecall.open`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from rarecall import reading
from rarecall.kept import changes
from rarecall.kept.answering import Answering
from rarecall.kept.embedding import Embedding
from rarecall.kept.expiry import Expiry
from rarecall.kept.records import Answer, Evidence, Line, Taught, when
from rarecall.memory import Memory
from rarecall.report import Report, report
from rarecall.search import SEARCHES
from rarecall.store import exchange
from rarecall.store.content import KEEP, encode
from rarecall.store.kept_memory import KeptMemory
from rarecall.store.labels import Label
from rarecall.store.slots import LABEL, NO_CHANGES, NOWHERE, Floats, Ints

NEARLY_FULL = 0.9  # of a fixed capacity: from here on a warning says so
DEFAULTS: dict[str, Any] = {"capacity": "grow", "keep": "content", "search": "exact", "reader": "blend", "expire": 0}
IMPORTED = 8192  # examples in a commit of an import


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
        self._warned = False
        try:
            self._embedding = Embedding(embed, self._kept)
            self._embedding.check()
            self._expiry = Expiry(self._kept)
            self._answering = Answering(self._kept, self._expiry)
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
        one_label = not isinstance(label, list | tuple) and getattr(label, "ndim", 0) == 0
        examples, many = self._embedding.examples(example, keys, many=not one_label)
        labels = [label] * len(examples) if one_label else list(label)
        if len(labels) != len(examples):
            raise ValueError(f"teach got {len(examples)} examples and {len(labels)} labels; expected one for each.")
        if not examples:
            return []
        units, contents = self._embedding.units(examples, keys), self._embedding.contents(examples, keys)
        with self._kept.writing():
            ids = self._teach("teach", units, labels, contents, who, reason)
            if self._expiry.is_due:
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
        with self._kept.writing():
            ids = self._find(example, id)
            if not len(ids):
                raise KeyError("relabel found no such example: teach it, or use correct, which does either.")
            changes.relabel(self._kept, ids, label, who=who or self.who, reason=reason)
            return len(ids)

    def rename(self, label: Any, to: Any, *, who: str | None = None, reason: str | None = None) -> int:
        """Give a class another name. Where another class has it already, the two become one.

        The keys stay as they are: every slot of the class has another value. `undo` takes it back.

        Returns:
            How many examples have another label now.
        """
        kept = self._kept
        with kept.writing():
            number = kept.labels.number(label)
            ids = np.flatnonzero(kept.places.table[:, 1] == number)
            if number == NOWHERE or not len(ids):
                raise KeyError(f"rename found nothing that is taught as {label!r}.")
            changes.rename(kept, ids, to, who=who or self.who, reason=reason)
            return len(ids)

    def correct(
        self, example: Any, label: Any, *, keys: Any = None, who: str | None = None, reason: str | None = None
    ) -> None:
        """Say what the right answer is: what was taught of this example is relabelled; if nothing was, it is taught."""
        with self._kept.writing():
            if len(self._find(example, None)):
                self.relabel(example, label, who=who, reason=reason)
            else:
                self.teach(example, label, keys=keys, who=who, reason=reason)

    def forget(
        self,
        *,
        label: Any = None,
        example: Any = None,
        id: int | Sequence[int] | None = None,
        who: str | None = None,
        before: datetime | str | float | None = None,
        after: datetime | str | float | None = None,
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
            before: when it was taught: before this time, a datetime, ISO 8601 text or seconds since 1970.
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
                chosen &= table[:, 1] == kept.labels.number(label)
            if example is not None or id is not None:
                chosen &= np.isin(np.arange(len(table)), self._find(example, id))
            if {"who", "before", "after"} & set(asked):
                first, end = _seconds(after, -np.inf), _seconds(before, np.inf)
                taught = kept.journal.taught()
                fits = [i for i, at, its_who in taught if first <= at < end and (who is None or its_who == who)]
                chosen &= np.isin(np.arange(len(table)), fits)
            ids = np.flatnonzero(chosen)
            if len(ids):
                changes.forget(kept, ids, asked, who=by or self.who, reason=reason)
            return len(ids)

    def undo(self, entry: int | None = None, *, who: str | None = None, reason: str | None = None) -> int:
        """Take back an entry of the history: by default the last one that is not an undo and was not undone.

        What was forgotten is forgotten for good: an undo of that restores nothing, and says so in the log. An undo is
        undone by its number.

        Returns:
            How many examples are back in the place that they had before.
        """
        with self._kept.writing():
            return changes.undo(self._kept, entry, who=who or self.who, reason=reason)

    def expire(self) -> int:
        """Forget what was not used for longer than the folder's setting `expire`; return how many examples.

        It is done by itself when the folder is opened and closed, and every hour while it is taught.
        """
        with self._kept.writing():
            old = self._expiry.expired()
            if len(old):
                changes.forget(self._kept, old, ["age"], reason=f"not used for {self._expiry.days:g} days")
            return len(old)

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
        with exchange.progress_bar(total, progress) as advance:
            for some in parts:
                given = some.examples if some.examples is not None else [None] * len(some.labels)
                units = self._embedding.units(given, some.keys)
                contents = [encode(each, self._kept.settings["keep"]) for each in given]
                with self._kept.writing():
                    self._teach("import", units, some.labels, contents, who, reason)
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
                some = ids[start : start + IMPORTED]
                found = self._answering.taught(some[kept.places.table[some, 0] >= 0])
            for taught, key in found:
                yield vars(taught) | {"key": key}

    def merge(self, other: str | Path | KeptClassifier, *, reason: str | None = None, progress: bool = True) -> int:
        """Teach all that another folder holds in memory, each example in a slot of its own; return how many.

        When and by whom an example was taught is kept. The history says when it came here; so does `expire`.
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
        with exchange.progress_bar(len(other), progress) as advance:
            while some := list(islice(rows, IMPORTED)):
                contents = [encode(row["example"], mine["keep"]) for row in some]
                taught = [(row["when"].timestamp(), row["who"]) for row in some]
                keys, labels = np.stack([row["key"] for row in some]), [row["label"] for row in some]
                with self._kept.writing():
                    self._teach("merge", keys, labels, contents, None, reason, taught)
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
        questions, many = self._embedding.examples(question, keys)
        memory = self._kept.memory
        if memory is None or not questions:
            answers = [Answer(None, 0.0, False, 0.0, [], lambda count: []) for _ in questions]
        else:
            answers = self._answering.answer(memory, self._embedding.units(questions, keys))
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
        self._answering.fit()

    def __len__(self) -> int:
        """How many examples are in memory."""
        return int((self._kept.places.table[:, 0] >= 0).sum())

    def classes(self) -> dict[Label, int]:
        """Return how many examples of each label are in memory, in the order the labels were first taught."""
        kept = self._kept
        with kept.lock:
            table = kept.places.table
            counts = np.bincount(table[table[:, 0] >= 0, 1], minlength=len(kept.labels)).tolist()
            return {kept.labels[number]: count for number, count in enumerate(counts) if count}

    def newest(self, count: int) -> dict[Label, list[int]]:
        """Return the numbers of up to `count` examples of each label, the newest first."""
        with self._kept.lock:
            table = self._kept.places.table
            ids = np.flatnonzero(table[:, 0] >= 0)[::-1]
            ids = ids[np.argsort(table[ids, 1], kind="stable")]
            starts = np.flatnonzero(np.diff(table[ids, 1], prepend=-1))
            groups = np.split(ids, starts[1:]) if len(ids) else []
            return {self._kept.labels[table[g[0], 1]]: g[:count].tolist() for g in groups}

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
                chosen &= table[:, 1] == kept.labels.number(label)
            if ids is not None:
                chosen &= np.isin(np.arange(len(table)), ids)
            if before is not None:
                chosen[before:] = False
            return [taught for taught, _ in self._answering.taught(np.flatnonzero(chosen)[::-1][:last])]

    def history(self, last: int | None = None) -> list[Line]:
        """Return what was done, the oldest first: all of it, or the last entries."""
        kept = self._kept
        with kept.lock:
            kept.check_open()
            undone = changes.undone_by(kept)
            first = 1 if last is None else max(kept.now - last + 1, 1)
            return [
                Line(
                    id=entry.id,
                    when=when(entry.time),
                    kind=entry.kind,
                    who=entry.who,
                    reason=entry.reason,
                    count=len(entry.changes),
                    labels=[kept.labels[n] for n in np.unique(entry.changes[:, LABEL])[:7] if n >= 0][:6],
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
        self._answering.finish()
        if not self.readonly and not self._kept.closed:
            with self._kept.writing():
                self._expiry.save()
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
        taught: list[tuple[float | None, str | None]] | None = None,
    ) -> list[int]:
        kept, settings = self._kept, dict[str, Any]()
        if "key_size" not in kept.settings:
            settings = {"key_size": units.shape[1], "embedder": self._embedding.name}
        said = {"who": who or self.who, "reason": reason}
        ids = changes.teach(kept, kind, units, labels, contents, taught=taught, settings=settings, **said)
        self._warn_if_full()
        return ids

    def _find(self, example: Any, id: int | Sequence[int] | None) -> Ints:
        """The numbers of the examples with this content, or with these numbers, that are not forgotten."""
        table = self._kept.places.table
        if id is not None:
            ids = np.unique(np.asarray(id, np.int64))
            if len(ids) and not (ids[0] >= 1 and ids[-1] < len(table)):
                raise ValueError(f"Got example {ids.tolist()}; examples have the numbers 1 to {len(table) - 1}.")
        else:
            ids = self._embedding.find(example)
        return ids[table[ids, 1] != NOWHERE]

    def _keep_settings(self, given: dict[str, Any]) -> None:
        kept, fingerprint = self._kept, self._embedding.fingerprint
        given = given | ({"fingerprint": fingerprint} if fingerprint is not None else {})
        if kept.now == 0:
            given = {"format": 1} | DEFAULTS | given
        changed = {name: value for name, value in given.items() if kept.journal.settings().get(name) != value}
        if changed:
            with kept.writing():
                kind = "create" if kept.now == 0 else "settings"
                kept.commit(kind, NO_CHANGES, who=self.who, detail=changed, settings=changed)

    def _warn_if_full(self) -> None:
        capacity, memory = self._kept.settings["capacity"], self._kept.memory
        if self._warned or capacity == "grow" or memory is None or len(memory) < NEARLY_FULL * int(capacity):
            return
        self._warned = True
        times = self._kept.array("times")
        oldest = self._kept.labels[self._kept.array("values")[np.where(times < 0, self.entry, times).argmin()]]
        warnings.warn(
            f"{self.folder} has filled {len(memory)} of its {capacity} slots. A full one writes over those that were "
            f"touched least recently, the first of them now a slot of {oldest!r}; the history says what was evicted. "
            'To let it grow: rarecall.open(..., capacity="grow").',
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
    if given.get("search", "exact") not in SEARCHES:
        raise ValueError(f"open got search={given['search']!r}; expected one of {', '.join(SEARCHES)}.")
    if given.get("reader", "blend") not in reading.READERS:
        raise ValueError(f"open got reader={given['reader']!r}; expected one of {', '.join(reading.READERS)}.")
    if given.get("expire", 0) < 0:
        raise ValueError(f"open got expire={given['expire']}; expected a number of days, 0 for never.")
    capacity = given.get("capacity", "grow")
    if capacity != "grow" and not (isinstance(capacity, int) and capacity > 0):
        raise ValueError(f'open got capacity={capacity!r}; expected "grow" or a number of slots.')
    if given.get("keep", "content") not in KEEP:
        raise ValueError(f"open got keep={given['keep']!r}; expected one of {', '.join(KEEP)}.")


def _seconds(when: datetime | str | float | None, default: float) -> float:
    when = datetime.fromisoformat(when) if isinstance(when, str) else when
    return default if when is None else when.timestamp() if isinstance(when, datetime) else when
