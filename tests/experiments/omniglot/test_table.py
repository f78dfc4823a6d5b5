from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torch import nn

from experiments import results
from experiments.omniglot import plots
from experiments.omniglot.data import Omniglot
from experiments.omniglot.episodes import MemoryLearner
from experiments.omniglot.evaluate import evaluate
from experiments.omniglot.lifelong import lifelong
from experiments.omniglot.models import PIXELS, RECIPES
from experiments.omniglot.table import PAPER, table


@pytest.fixture(scope="module")
def made(small: Omniglot, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    few_shot = {"model": "pixels"} | evaluate(PIXELS, small, characters="all", episodes=2)
    results.write(
        folder / "a.json", few_shot, results.origin("python -m experiments.omniglot evaluate --pixels", seed=5)
    )
    learner = MemoryLearner(nn.Flatten(), key_size=784)
    kept = lifelong(learner, small, repeats=1, classes=12, lags=(10, 20), events=30, quiet=True)
    training = {"on": "train", "steps": 9, "seed": 1}
    results.write(folder / "b.json", {"model": "ours", "training": training} | kept, results.origin("lifelong", seed=0))
    (folder / "c.json").write_text('{"experiment": "another"}')
    return folder


def test_the_table_has_every_model_and_says_where_the_figures_come_from(made: Path) -> None:
    printed = table(made)
    for title, _ in PAPER.values():
        assert title in printed
    assert "| Matching Network | 98.1 / not trained |" in printed
    assert "`python -m experiments.omniglot evaluate --pixels`, seed 5, commit" in printed
    assert "trained on train, 9 steps, seed 1" in printed
    assert "AUROC of confidence" in printed
    assert set(PAPER) == {"pixels", "joined", *RECIPES}


def test_a_result_names_no_machine_and_no_folder(made: Path) -> None:
    result = results.read_all(made, "omniglot")[0]
    assert {"command", "seed", "commit", "machine", "split", "figures"} <= result.keys()
    assert set(result["machine"]) == {"processor", "cores", "python", "torch"}
    assert str(made) not in (made / "a.json").read_text()


def test_plots_are_drawn_in_grey(made: Path, tmp_path: Path) -> None:
    for path in plots.draw(made, tmp_path / "plots"):
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("RGB"))
        assert (pixels == pixels[:, :, :1]).all()
        assert pixels.min() < 100


def test_nothing_to_draw_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"Run `python -m experiments\.omniglot lifelong` first"):
        plots.draw(tmp_path, tmp_path / "plots")
    assert "not trained" in table(tmp_path)


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        results.write(tmp_path / "no" / "a.json", {}, results.origin("", seed=0))
