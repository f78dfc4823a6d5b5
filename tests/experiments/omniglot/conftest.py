"""A small Omniglot of our own, so that the tests need neither a network nor the data."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from experiments.omniglot import data
from experiments.omniglot.data import Omniglot


def png(seed: int, size: int = data.DRAWN_SIZE) -> bytes:
    """Two crossing bars whose places follow from the character, moved a little by the drawing."""
    character, drawing = divmod(seed, data.DRAWINGS)
    places = np.random.default_rng(character).integers(15, size - 15, 2) + drawing % 3
    image = np.full((size, size), 255, np.uint8)
    image[places[0] - 4 : places[0] + 4] = 0
    image[:, places[1] - 4 : places[1] + 4] = 0
    file = io.BytesIO()
    Image.fromarray(image).save(file, "png")
    return file.getvalue()


def pack(path: Path, part: str, characters: list[str], first: int, drawings: int = data.DRAWINGS) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for place, character in enumerate(characters):
            for drawing in range(drawings):
                seed = (first + place) * data.DRAWINGS + drawing
                archive.writestr(f"images_{part}/{character}/{first + place:04d}_{drawing:02d}.png", png(seed))


BACKGROUND = [f"Alpha/character{i:02d}" for i in range(1, 21)]
EVALUATION = [f"Beta/character{i:02d}" for i in range(1, 21)]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty characters of two alphabets."""
    folder = tmp_path_factory.mktemp("data")
    pack(folder / "omniglot" / "images_background.zip", "background", BACKGROUND, 0)
    pack(folder / "omniglot" / "images_evaluation.zip", "evaluation", EVALUATION, 20)
    return folder


@pytest.fixture(scope="session")
def small(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Omniglot:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RARECALL_CACHE", str(tmp_path_factory.mktemp("cache")))
        return data.load(folder, quiet=True)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RARECALL_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def random_network() -> torch.nn.Module:
    from rarecall.models.residual import ResidualNet

    return ResidualNet(widths=(4, 4, 4)).eval()
