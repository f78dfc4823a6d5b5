"""A life of a folder in steps that follow from a seed, for those who kill it on the way."""

import contextlib
import hashlib
import warnings

import numpy as np

import rarecall

WORDS = [f"word{i}" for i in range(30)]
LABELS = ["lost", "stolen", "swallowed", 7]
SIZE = 16


def encode(texts):
    keys = np.zeros((len(texts), SIZE), np.float32)
    for row, text in enumerate(texts):
        for word in text.split():
            seed = int(hashlib.md5(word.encode()).hexdigest()[:8], 16)
            keys[row] += np.random.default_rng(seed).normal(size=SIZE)
    return keys


def open_folder(folder, **options):
    warnings.simplefilter("ignore", RuntimeWarning)
    return rarecall.open(folder, embed=encode, **options)


def step(kept, number, seed=0):
    """Do one thing, which is one entry or none: the same for the same number, seed and state."""
    random = np.random.default_rng([seed, number])
    text = f"{' '.join(random.choice(WORDS, 3))} nr{number}x"
    there = np.flatnonzero(kept._kept.places.table[:, 1] >= 0)
    kind = random.choice(["teach", "batch", "relabel", "forget", "undo", "compact"], p=[0.4, 0.2, 0.12, 0.1, 0.1, 0.08])
    if kind == "teach":
        kept.teach(text, LABELS[random.integers(4)], who=f"who{random.integers(5)}", reason="a step")
    elif kind == "batch":
        texts = [f"{text} part{i}" for i in range(random.integers(1, 9))]
        kept.teach(texts, [LABELS[i] for i in random.integers(4, size=len(texts))])
    elif kind == "relabel" and len(there):
        kept.relabel(None, LABELS[random.integers(4)], id=int(random.choice(there)))
    elif kind == "forget" and len(there):
        kept.forget(id=random.choice(there, min(len(there), int(random.integers(1, 5))), replace=False).tolist())
    elif kind == "undo":
        with contextlib.suppress(ValueError):  # later entries changed its examples
            kept.undo()
    elif kind == "compact":
        kept.compact()


def state(kept):
    """All that a folder holds, without the times of day: for comparing bit for bit."""
    digest = hashlib.sha256()
    if kept.memory is not None:
        slots = kept.memory.slots()
        for name in slots._fields:
            digest.update(getattr(slots, name).numpy().tobytes())
        digest.update(b"%d" % int(kept.memory.now))
    digest.update(kept._kept.places.table.tobytes())
    digest.update(repr(kept._kept.labels.names).encode())
    return digest.hexdigest()


def everything(kept):
    """The same with all that was kept of examples and entries; reads all of the journal."""
    lines = [(line.id, line.kind, line.who, line.reason, line.count, line.detail) for line in kept.history()]
    there = np.flatnonzero(kept._kept.places.table[:, 1] >= 0)
    examples = kept._kept.journal.read_examples(there)
    contents = [(each.id, each.who, each.kind, each.content, each.key.tobytes()) for each in examples.values()]
    return state(kept), hashlib.sha256(repr([lines, sorted(contents)]).encode()).hexdigest()
