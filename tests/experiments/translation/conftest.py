"""A toy language, and a network that learns it in seconds.

    be likes fox now      FI mag fuchs jetzt

There are many names, and each has a translation that follows from nothing: so a network has to remember it.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from experiments.training import Pace
from experiments.translation import networks
from experiments.translation.state import Data, Run
from experiments.translation.text import Files, Text
from experiments.translation.train import prepare, train
from experiments.translation.vocabulary import Vocabulary, learn

WORDS = {"sees": "sieht", "hears": "hoert", "likes": "mag", "fox": "fuchs", "dog": "hund", "bird": "vogel"}
WORDS |= {"now": "jetzt", "then": "dann"}
_SYLLABLES = [first + second for first in "bdfgkl" for second in "aeiou"]
NAMES = dict(zip(_SYLLABLES, random.Random(0).sample([name.upper() for name in _SYLLABLES], 30), strict=True))
# Names that no sentence of training has; the vocabulary has their pieces.
NEW = {"za": "BA", "ze": "DO", "zi": "FU", "zo": "GI", "zu": "KE"}
RUN = Run(
    pieces=420, units=64, layers=2, capacity=4000, steps=6, tokens=200, rate=3e-3, dropout=0.0, smoothing=0.0, seed=3
)
QUIET = Pace(report=2, measure=4, quiet=True)


def sentences(count: int, seed: int, names: dict[str, str] = NAMES) -> Text:
    """Sentences such as "be likes fox now"."""
    draw = random.Random(seed)
    sources, targets = [], []
    for _ in range(count):
        name = draw.choice(list(names))
        rest = [draw.choice(some) for some in (("sees", "hears", "likes"), ("fox", "dog", "bird"), ("now", "then"))]
        sources.append(" ".join([name, *rest]))
        targets.append(" ".join([names[name], *(WORDS[word] for word in rest)]))
    return Text(sources, targets, (count,))


def vocabulary() -> Vocabulary:
    known, new = sentences(300, seed=1), sentences(60, seed=1, names=NEW)
    return learn(Text(known.sources + new.sources, known.targets + new.targets, (360,)), RUN.pieces, quiet=True)


def write(text: Text, folder: Path, name: str) -> tuple[Path, Path]:
    paths = folder / f"{name}.en", folder / f"{name}.de"
    for path, lines in zip(paths, (text.sources, text.targets), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines))
    return paths


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("translation")
    write(sentences(300, seed=1), folder, "training")
    return folder


@pytest.fixture(scope="session")
def data(home: Path) -> Data:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RARECALL_CACHE", str(home / "cache"))
        files = Files((home / "training.en",), (home / "training.de",), (1,), "toy")
        return prepare(files, sentences(12, seed=2), vocabulary(), quiet=True)[0]


@pytest.fixture(scope="session", params=[False, True], ids=["paper", "cpu"])
def learned(data: Data, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """A network with memory that has learned the language, built as that of the one preset or of the other."""
    torch.manual_seed(0)
    out = tmp_path_factory.mktemp("learned")
    text = sentences(300, seed=1)
    run = replace(RUN, steps=250, rate=1e-2, text=text.digest, trained_on="toy", vocabulary=data.vocabulary.digest)
    run = replace(run, shortcut=request.param, ask=request.param, trust=request.param, seed=1)
    assert train(run, data, out, Pace(report=50, measure=1000, save=1000, quiet=True))
    return out / "network.safetensors"


@pytest.fixture
def trained(learned: Path) -> networks.Trained:
    return networks.read(learned)


@pytest.fixture(autouse=True)
def _cache(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RARECALL_CACHE", str(home / "cache"))
