from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from experiments import results
from experiments.omniglot.plots import draw
from experiments.tables import NOT_RUN, OMNIGLOT, SYNTHETIC, TRANSLATION, tables

ORIGIN: dict[str, Any] = {
    "command": "rarecall x",
    "seed": 0,
    "commit": "0123456789abcdef",
    "machine": results.machine(),
}


def write(folder: Path, name: str, result: dict[str, Any]) -> None:
    (folder / f"{name}.json").write_text(json.dumps(ORIGIN | result))


def test_without_results_every_row_of_ours_says_that_it_was_not_run(tmp_path: Path) -> None:
    printed = tables(tmp_path)
    for rows in (OMNIGLOT, SYNTHETIC, TRANSLATION):
        for row in rows:
            assert f"| {row[1]} |" in printed
    assert f"98.4 / {NOT_RUN} | 99.6 / {NOT_RUN} | 95.0 / {NOT_RUN} | 98.6 / {NOT_RUN}" in printed
    assert f"| 71.3 | {NOT_RUN} | {NOT_RUN} |" in printed


def test_a_figure_below_the_paper_s_is_marked(tmp_path: Path) -> None:
    figures = {"5-way 1-shot": {"mean": 98.5, "interval": 0.2}, "5-way 5-shot": {"mean": 99.5, "interval": 0.1}}
    training = {"on": "trainval", "steps": 7, "seed": 3}
    result = {"experiment": "omniglot", "model": "paper", "training": training, "figures": {"upright": figures}}
    write(tmp_path, "a", result)
    printed = tables(tmp_path)
    assert "98.4 / 98.50 ± 0.20 | 99.6 / 99.50* ± 0.10 | 95.0 / – |" in printed
    assert "7 steps on trainval, seed 3; `rarecall x`, commit 0123456789ab" in printed


def test_the_two_settings_of_the_synthetic_task_are_not_mixed(tmp_path: Path) -> None:
    for anew, mean in ((True, 90.0), (False, 60.0)):
        training = {"steps": 5, "batch": 64, "seed": 0, "anew": anew}
        figures = {"test": {"mean": mean, "interval": 0.5}}
        result = {"experiment": "synthetic", "preset": "paper", "model": "neural-gpu with memory"}
        write(tmp_path, str(mean), result | {"training": training, "figures": figures})
    assert "| Extended Neural GPU with memory | 71.3 | 60.0 ± 0.5 | 90.0 ± 0.5 |" in tables(tmp_path)


def test_the_published_results_have_a_row_each() -> None:
    models = {row[0] for row in OMNIGLOT}
    assert {result["model"] for result in results.read_all(results.FOLDER, "omniglot")} <= models


def test_learning_curves_are_drawn_beside_the_published_plots(tmp_path: Path) -> None:
    drawn = {path.name for path in draw(results.FOLDER, tmp_path)}
    assert {f"{path.stem}.png" for path in results.FOLDER.glob("omniglot-*-training.jsonl")} <= drawn
