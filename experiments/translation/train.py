"""python -m experiments.translation train --preset cpu --out runs/translation

Train a network. `experiments.training` describes the files of a run.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

from experiments.results import commit
from experiments.training import CHECKPOINT, Pace, go
from experiments.translation import networks
from experiments.translation.frozen import Frozen
from experiments.translation.pairs import encode
from experiments.translation.state import Data, Run, State
from experiments.translation.text import Files, Text, read
from experiments.translation.vocabulary import Vocabulary, learn


def prepare(files: Files, development: Text, pieces: int | Vocabulary, *, quiet: bool = False) -> tuple[Data, str]:
    """Read the text, learn its vocabulary if none is given, and encode it. Also returns the text's digest."""
    text = read(files.sources, files.targets)
    vocabulary = learn(text, pieces, quiet=quiet) if isinstance(pieces, int) else pieces
    return Data(encode(text, vocabulary, cached=True, quiet=quiet), development, vocabulary), text.digest


def train(
    run: Run,
    data: Data,
    out: str | os.PathLike[str],
    pace: Pace | None = None,
    begin: networks.Trained | None = None,
) -> bool:
    """Train, resuming from the checkpoint in `out` if there is one. Returns False if it was interrupted.

    Args:
        run: settings of the run.
        data: the texts.
        out: folder of the run.
        pace: how often to report, measure and save.
        begin: a trained network of the same shapes and vocabulary to initialise with.
    """
    out = Path(out)
    started_from = commit()  # files on disk may change during the run
    state = (Frozen if run.frozen else State)(run, data, begin)
    out.mkdir(parents=True, exist_ok=True)
    if (out / CHECKPOINT).is_file():
        state.read(out / CHECKPOINT)
    ended = go(
        state,
        run.steps,
        state.forward_one,
        out,
        pace or Pace(report=50, measure=1000, save=500),
        title="translation with memory" if run.capacity else "translation",
        measure=state.validate,
        shown=("loss", "gain", "tokens_per_second", "memory_right", "bleu"),
    )
    if ended:
        about = asdict(run) | {"pairs": len(data.training)} | ({"plans": state.plans} if state.plans else {})
        trained = networks.Trained(state.network, data.vocabulary, about, started_from)
        networks.save(trained, out / "network.safetensors")
    return ended
