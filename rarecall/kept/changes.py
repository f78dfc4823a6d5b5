"""What is done to a folder: each change chooses places for examples, and is one entry of the journal.

All of it is called by one who holds the folder's lock, `KeptMemory.writing`. `said` is who does it, and why.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from rarecall.store.kept_memory import KeptMemory
from rarecall.store.labels import Label
from rarecall.store.slots import ENTRY, EXAMPLE, LABEL, NO_CHANGES, NOWHERE, OLD_ENTRY, OLD_SLOT, SLOT, Floats, Ints

log = logging.getLogger("rarecall")

UNDOABLE = ("teach", "import", "relabel", "merge")


def teach(
    kept: KeptMemory,
    kind: str,
    units: Floats,
    labels: Sequence[Any],
    contents: Sequence[tuple[str, bytes]],
    *,
    taught: Sequence[tuple[float | None, str | None]] | None = None,
    settings: dict[str, Any] | None = None,
    **said: Any,
) -> list[int]:
    """Teach new examples.

    Args:
        kept: whom.
        kind: "teach": an example whose nearest neighbour has its label confirms that slot. "import" or "merge": each
            gets a slot of its own, and none is searched for.
        units: (n, key_size), the keys.
        labels: n of them.
        contents: kinds and bytes of the examples.
        taught: when and by whom they were taught, where that was before.
        settings: to be set with it.
        said: see above.

    Returns:
        Their numbers.
    """
    numbers, new = kept.labels.numbers(labels)
    nearest = zip(numbers, *kept.nearest(units), strict=True) if kind == "teach" else ()
    confirmed = {row: slot for row, (number, slot, its) in enumerate(nearest) if its == number}
    chosen, out = kept.choose(len(units) - len(confirmed), list(confirmed.values()))
    fresh = iter(chosen)
    slots = [confirmed[row] if row in confirmed else next(fresh) for row in range(len(units))]
    first, changes = len(kept.places) + 1, kept.places.new(slots, numbers, kept.now + 1)
    changes = np.concatenate([out, changes]) if len(out) else changes
    taught = [(None, None)] * len(units) if taught is None else taught
    rows = zip(taught, contents, units, strict=True)
    examples = [(*before, *content, unit.tobytes()) for before, content, unit in rows]
    detail = {"evicted": _count(kept, out)} if len(out) else {}
    kept.commit(kind, changes, (first, units), examples=examples, labels=new, settings=settings, detail=detail, **said)
    return list(range(first, first + len(units)))


def relabel(kept: KeptMemory, ids: Ints, label: Any, **said: Any) -> None:
    """Teach examples as another label, in slots that no other example shares, so that they are what answers."""
    [number], new = kept.labels.numbers([label])
    assert kept.memory is not None
    keys = [key.tobytes() for key in kept.journal.read_keys(ids, kept.memory.key_size)]
    chosen, out = kept.choose(len(set(keys)))
    slot_of = dict(zip(dict.fromkeys(keys), chosen, strict=True))
    places = np.array([[slot_of[key], number, kept.now + 1] for key in keys])
    out = out[~np.isin(out[:, EXAMPLE], ids)]
    changes = np.concatenate([out, kept.places.changed(ids, places)])
    kept.commit("relabel", changes, labels=new, **said)


def rename(kept: KeptMemory, ids: Ints, to: Any, **said: Any) -> None:
    """Give examples another label where they are: all that their slots have."""
    [number], new = kept.labels.numbers([to])
    places = kept.places.table[ids]
    places[:, 1] = number
    kept.commit("relabel", kept.places.changed(ids, places), labels=new, **said)


def forget(kept: KeptMemory, ids: Ints, by: list[str], **said: Any) -> None:
    """Forget examples for good; `by` says how they were chosen."""
    changes = kept.places.changed(ids, np.full((len(ids), 3), NOWHERE))
    kept.commit("forget", changes, forgotten=ids.tolist(), detail={"by": by}, **said)


def undo(kept: KeptMemory, entry: int | None, **said: Any) -> int:
    """Take back an entry, by default the last that can be; return how many examples are back in their place."""
    undone = undone_by(kept)
    if entry is None:
        candidates = (each for each in range(kept.now, 0, -1) if each not in undone)
        entry = next((each for each in candidates if kept.journal.entry(each).kind in (*UNDOABLE, "forget")), None)
        if entry is None:
            return 0
    if not 1 <= entry <= kept.now:
        raise ValueError(f"undo got entry {entry}; the history has entries 1 to {kept.now}.")
    if entry in undone:
        raise ValueError(f"Entry {entry} is undone already: to do it again, undo entry {undone[entry]}.")
    of = kept.journal.entry(entry)
    if of.kind not in (*UNDOABLE, "undo"):
        log.warning("Entry %d (%s) cannot be undone: what was forgotten is gone for good.", entry, of.kind)
        return 0
    changes = of.changes[kept.places.table[of.changes[:, EXAMPLE], 1] != NOWHERE]
    if not np.array_equal(kept.places.table[changes[:, EXAMPLE]], changes[:, SLOT : ENTRY + 1]):
        raise ValueError(f"Entry {entry} cannot be undone: later entries changed its examples. Undo those.")
    ids, places = changes[:, EXAMPLE], changes[:, OLD_SLOT : OLD_ENTRY + 1].copy()
    places[:, 1] = np.where(places[:, 1] == NOWHERE, changes[:, LABEL], places[:, 1])
    out = _find_other_slots(kept, ids, places)
    kept.commit("undo", np.concatenate([out, kept.places.changed(ids, places)]), detail={"entry": entry}, **said)
    return len(ids)


def undone_by(kept: KeptMemory) -> dict[int, int]:
    """Return the entries that are undone, and by which."""
    undone: dict[int, int] = {}
    for by, of in kept.journal.undos():
        again = [entry for entry, its in undone.items() if its == of]
        for entry in again:  # an undo was undone
            del undone[entry]
        undone[of] = by
    return undone


def _count(kept: KeptMemory, out: Ints) -> list[tuple[Label, int]]:
    """Return how many examples of each label go out of memory."""
    return [(kept.labels[number], count) for number, count in Counter(out[:, LABEL].tolist()).items()]


def _find_other_slots(kept: KeptMemory, ids: Ints, places: Ints) -> Ints:
    """Change the places of examples whose old slots are of another label by now; return what that evicts."""
    slots = np.unique(places[places[:, 0] >= 0, 0])
    others = np.setdiff1d(kept.places.members(slots), ids)
    holds = dict(zip(*kept.places.table[others, :2].T.tolist(), strict=True))
    taken = [slot for slot in slots.tolist() if slot in holds and holds[slot] != places[places[:, 0] == slot, 1][0]]
    if not taken:
        return NO_CHANGES
    chosen, out = kept.choose(len(taken), slots.tolist())
    where = {slot: places[:, 0] == slot for slot in taken}
    for slot, other in zip(taken, chosen, strict=True):
        places[where[slot], 0] = other
    return out
