"""Presets: the full task and a small one, with the training settings of each model."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from experiments.synthetic.task import Task
from experiments.synthetic.train import Run


@dataclass(frozen=True)
class Preset:
    """A task, with the sizes and training length for it.

    Attributes:
        task: the task.
        units: units of each model.
        capacity: slots of the memory.
        steps: training steps.
        short: maximum length before the last level of the curriculum.
    """

    task: Task
    units: dict[str, int]
    capacity: int
    steps: int
    short: int


PRESETS = {
    "paper": Preset(Task(), {"neural-gpu": 32, "seq2seq": 256}, capacity=500_000, steps=10_000, short=16),
    "small": Preset(
        Task(symbols=4_000, digits=6, shortest=7, longest=16, training=10_000, test=2_000),
        # With 256 units, seq2seq memorises this few numbers in its weights.
        {"neural-gpu": 32, "seq2seq": 64},
        capacity=60_000,
        steps=3_000,
        short=12,
    ),
}
# Fraction of teacher forcing. The Neural GPU is trained on its own output: with the correct one on its tape, its query
# would contain the answer. The query of seq2seq is its attention over the input, so teacher forcing is possible, and
# all positions are computed at once.
FORCED = {"neural-gpu": 0.0, "seq2seq": 1.0}
RATE = {"neural-gpu": 3e-3, "seq2seq": 1e-3}


def make_run(preset: str, model: str, *, memory: bool, **chosen: Any) -> Run:
    """Return the settings of a run.

    Args:
        preset: a name in PRESETS.
        model: "neural-gpu" or "seq2seq".
        memory: whether it has a memory.
        chosen: fields of `Run` that replace the preset's, unless they are None.
    """
    of_preset = PRESETS[preset]
    run = Run(
        of_preset.task,
        model,
        of_preset.units[model],
        of_preset.capacity,
        of_preset.steps,
        rate=RATE[model],
        forced=FORCED[model],
        short=of_preset.short,
    )
    run = replace(run, **{name: value for name, value in chosen.items() if value is not None})
    return run if memory else replace(run, capacity=0)


def preset_of(task: dict[str, int]) -> str:
    """Return the name of a task's preset, regardless of its seed; "own" if there is none."""
    for name, preset in PRESETS.items():
        if asdict(replace(preset.task, seed=task["seed"])) == task:
            return name
    return "own"
