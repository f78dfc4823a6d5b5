from __future__ import annotations

from pathlib import Path

import pytest

from experiments import results
from experiments.synthetic import plots
from experiments.synthetic.table import table

SHARE = {"mean": 72.5, "interval": 0.9, "asked": 10_000}
NONE = {"mean": None, "interval": None, "asked": 0}
COMMON = {"number": SHARE, "length": SHARE}
RESULT = {
    "experiment": "synthetic",
    "model": "neural-gpu with memory",
    "preset": "paper",
    "training": {"seed": 5, "steps": 9, "batch": 64, "anew": True, "commit": "abc"},
    "figures": {
        "test": SHARE,
        "by times seen": {"0": NONE, "1": SHARE},
        "by digit": {"output": [90.0, 91.0], "memory": [89.0, 90.0]},
        "length 60": SHARE,
        "inside": {
            "nearest": COMMON,
            "random": COMMON,
            "same number where it was in training": SHARE,
            "confidence": {"right": 0.9, "wrong": None},
            "right by confidence": [{"from": 0.0, **NONE}, {"from": 0.9, **SHARE}],
        },
        "by capacity": {"100": SHARE, "500000": SHARE},
    },
}
ORIGIN = {"command": "python -m experiments.synthetic evaluate", "seed": 5, "commit": "0123456789abcdef", "machine": {}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    results.write(tmp_path / "synthetic-a.json", RESULT, ORIGIN)
    (tmp_path / "synthetic-a-training.jsonl").write_text(
        '{"step": 50, "numbers": 64.0, "longest": 16.0, "memory_1": 0.2, "output_1": 0.2, "right": 0.0}\n'
        '{"step": 100, "numbers": 128.0, "longest": 16.0, "memory_1": 0.9, "right": 0.5, "validation": 0.1}\n'
    )
    return tmp_path


def test_the_table_has_the_papers_figures_and_ours(folder: Path) -> None:
    lines = table(folder).splitlines()
    assert "| Extended Neural GPU with memory | 71.3 | 72.5 ± 0.9 |" in lines
    assert "| Hamming nearest neighbour | 0.1 | not measured |" in lines
    assert "## The paper's task, surroundings drawn anew in each epoch" in lines
    assert "| slots | 100 | 500000 |" in lines
    assert any("0123456789ab" in line and "drawn anew" in line for line in lines)


def test_the_two_settings_have_a_table_each(folder: Path) -> None:
    fixed = RESULT | {"training": RESULT["training"] | {"anew": False, "hide": 1.0}}
    fixed["figures"] = RESULT["figures"] | {"test": SHARE | {"mean": 60.0}}
    results.write(folder / "synthetic-b.json", fixed, ORIGIN)
    told = table(folder)
    assert "| Extended Neural GPU with memory | 71.3 | 72.5 ± 0.9 |" in told.splitlines()
    assert "| Extended Neural GPU with memory | 71.3 | 60.0 ± 0.9 |" in told.splitlines()
    assert "As and Bs fixed and up to 100% of them hidden" in told


def test_plots_are_drawn(folder: Path, tmp_path: Path) -> None:
    names = [path.name for path in plots.draw(folder, tmp_path / "plots")]
    assert names == ["synthetic-a-training.png", "synthetic-confidence.png", "synthetic-capacity.png"]
    assert all((tmp_path / "plots" / name).stat().st_size > 1000 for name in names)


def test_nothing_to_draw_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="Train and evaluate first"):
        plots.draw(tmp_path, tmp_path / "plots")
