"""Forgetting what was not used for long."""

from __future__ import annotations

import time

import numpy as np
from torch import Tensor

from rarecall.store.kept_memory import KeptMemory
from rarecall.store.slots import NO_CHANGES, Ints

CHECKED_EVERY = 3600.0  # seconds between two looks for what has expired
DAY = 86400.0


class Expiry:
    """When slots were last nearest to a question, by their founders, and what was not used for too long."""

    def __init__(self, kept: KeptMemory) -> None:
        self._kept, self._uses, self._looked = kept, dict[int, float](), 0.0

    @property
    def days(self) -> float:
        """The setting: after so many days what was not used is forgotten; 0: never."""
        return float(self._kept.settings["expire"])

    @property
    def is_due(self) -> bool:
        """Whether it is time to look again."""
        return time.time() - self._looked > CHECKED_EVERY

    def use(self, founders: Tensor) -> None:
        """Note that slots were the nearest to a question."""
        if self.days:
            self._uses |= dict.fromkeys(founders.tolist(), time.time())

    def save(self) -> None:
        """Write the uses to the journal."""
        uses, self._uses = self._uses, {}
        if uses:
            there = set(self._kept.array("sources").tolist())
            all_uses = self._kept.settings.get("uses", {}) | {str(founder): when for founder, when in uses.items()}
            all_uses = {founder: when for founder, when in all_uses.items() if int(founder) in there}
            self._kept.commit("use", NO_CHANGES, settings={"uses": all_uses})

    def expired(self) -> Ints:
        """Return the numbers of the examples whose slots were not used for longer than the setting says."""
        kept, self._looked = self._kept, time.time()
        if not self.days or kept.memory is None:
            return np.empty(0, np.int64)
        self.save()
        uses, times, table = kept.settings.get("uses", {}), kept.journal.times(), kept.places.table
        ids = np.flatnonzero(table[:, 0] >= 0)
        founders = kept.array("sources")[table[ids, 0]].tolist()
        # A slot was last used when its newest example came, or when it was last the nearest.
        newest = kept.array("times")[table[ids, 0]].tolist()
        last = [max(times[entry], uses.get(str(f), 0.0)) for entry, f in zip(newest, founders, strict=True)]
        return ids[np.array(last) < time.time() - self.days * DAY]
