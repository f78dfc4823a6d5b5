"""Questions to a folder: answers by its reader, and the taught examples that decided them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rarecall import reading
from rarecall.kept.expiry import Expiry
from rarecall.kept.records import Answer, Evidence, Taught, when
from rarecall.memory import Memory
from rarecall.store.content import decode
from rarecall.store.folder import read_json, write_json
from rarecall.store.journal import Example
from rarecall.store.kept_memory import KeptMemory
from rarecall.store.labels import Label
from rarecall.store.slots import Floats, Ints

log = logging.getLogger("rarecall")

SAME = 1 - 4e-6  # from this cosine similarity on, two keys are of the same example, as float32 rounds
SLOTS_EXPLAINED = 16  # nearest slots whose examples are looked at for an explanation
FITTED_FROM = 64  # slots: the reader of fewer is as it was made


class Answering:
    """The reader of a folder, fitted in the background, and answers by it.

    Args:
        kept: who is asked.
        expiry: is told what was the nearest.
    """

    def __init__(self, kept: KeptMemory, expiry: Expiry) -> None:
        self._kept, self._expiry = kept, expiry
        self._path = kept.folder / "reader.json"
        self._reader, self._loaded = reading.make(kept.settings["reader"]), 0
        self._busy, self._fitting = threading.Lock(), threading.Thread()  # held while a reader is fitted, by whom
        self._load()

    def answer(self, memory: Memory, units: Floats) -> list[Answer]:
        """Return the answers to questions, (n, key_size)."""
        recall = memory(torch.from_numpy(units))
        self._refit(memory)
        read = self._reader(memory, recall)
        self._expiry.use(memory.sources[recall.slots[:, 0].clamp(min=0)])
        same = (recall.similarities >= SAME) & (recall.slots >= 0)
        newest = memory.times[recall.slots.clamp(min=0)].where(same, -1).argmax(1)
        answers = []
        for row, unit in enumerate(units):
            pairs = zip(read.values[row].tolist(), read.probabilities[row].tolist(), strict=True)
            found = [(value, probability) for value, probability in pairs if value >= 0]
            familiarity = float(read.known[row])
            if same[row].any():  # it was taught itself
                value, familiarity = int(recall.values[row, newest[row]]), 1.0
                found = [(value, 1.0)] + [(other, 0.0) for other, _ in found if other != value]
            alternatives = [(self._kept.labels[value], probability) for value, probability in found]
            label, probability = alternatives[0] if alternatives else (None, 0.0)
            slots = recall.slots[row, :SLOTS_EXPLAINED]

            def explain(count: int, unit: Floats = unit, slots: Tensor = slots) -> list[Evidence]:
                return self._evidence(unit, slots[slots >= 0].numpy(), count)

            answers.append(Answer(label, probability, familiarity >= 0.5, familiarity, alternatives, explain))
        return answers

    def taught(self, ids: Ints | Sequence[int]) -> list[tuple[Taught, Floats]]:
        """Return examples with these numbers, in this order, and their keys."""
        found = self._kept.journal.read_examples(ids)
        return [(Taught(*self._fields(found[id])), found[id].key) for id in np.asarray(ids).tolist()]

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
            return [Evidence(*self._fields(each), similarity) for similarity, each in found[:count]]

    def _fields(self, each: Example) -> tuple[int, Any, Label, datetime, str | None]:
        """What `Taught` says of an example."""
        label = self._kept.labels[self._kept.places.table[each.id, 1]]
        return each.id, decode(each.kind, each.content), label, when(each.time), each.who

    # ---- the reader ----

    def fit(self) -> None:
        """Fit the reader to what was taught, and keep it."""
        memory = self._kept.memory
        if memory is not None:
            reader = reading.make(self._kept.settings["reader"])
            reader.fit(memory)
            self._reader = reader
            if not self._kept.readonly:
                write_json(self._path, reader.settings())

    def finish(self) -> None:
        """Wait for a reader that is being fitted."""
        if self._fitting.is_alive():
            self._fitting.join()

    def _load(self) -> None:
        """Take the fitted reader from its file, where it has one of this kind."""
        changed = self._path.stat().st_mtime_ns if self._path.exists() else 0
        if changed != self._loaded:
            self._loaded, settings = changed, read_json(self._path)
            if settings is not None and settings["name"] == self._kept.settings["reader"]:
                self._reader = reading.from_settings(settings)

    def _refit(self, memory: Memory) -> None:
        """Fit the reader in the background where it is time; a follower takes it from its file."""
        if self._kept.readonly:
            self._load()
        elif len(memory) >= FITTED_FROM and self._reader.is_stale(memory) and self._busy.acquire(blocking=False):
            self._fitting = threading.Thread(target=self._fit_in_background)
            self._fitting.start()

    def _fit_in_background(self) -> None:
        try:
            self.fit()
        except OSError as error:
            log.warning("The reader of %s was not kept: %s", self._kept.folder, error)
        finally:
            self._busy.release()
