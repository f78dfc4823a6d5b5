"""The full task and a small one, and how each model is trained on them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from experiments.synthetic.task import Task
from experiments.synthetic.train import Run


@dataclass(frozen=True)
class Preset:
    """A task, the memory for it, and for how long to train.

    Attributes:
        task: what is to be learned.
        units: of each model.
        capacity: slots of the memory.
        steps: of a run.
        short: the greatest length while not all numbers take part.
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
        # With 256 units, seq2seq learns so few numbers by heart.
        {"neural-gpu": 32, "seq2seq": 64},
        capacity=60_000,
        steps=3_000,
        short=12,
    ),
}
# The Neural GPU learns from its own output: with the right one on its tape, it would ask the memory with what it is to
# find. Seq2seq asks with what its attention found in the input, so that it may learn from the right output, all places
# at once.
FORCED = {"neural-gpu": 0.0, "seq2seq": 1.0}
RATE = {"neural-gpu": 3e-3, "seq2seq": 1e-3}


def make_run(preset: str, model: str, *, memory: bool, **chosen: Any) -> Run:
    """A preset's run of a model.

    Args:
        preset: a name in PRESETS.
        model: "neural-gpu" or "seq2seq".
        memory: whether it has one.
        chosen: fields of `Run` in place of the preset's; None leaves the preset's.
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
    """The name of a task's preset, whatever its seed; "own" where it has none."""
    for name, preset in PRESETS.items():
        if asdict(replace(preset.task, seed=task["seed"])) == task:
            return name
    return "own"
