"""python -m experiments.synthetic evaluate --weights runs/a/network.safetensors --out results/synthetic-a.json

Measure the percentage of fully correct sequences, as in the paper, without teacher forcing; also by how often a number
occurred in training, by digit, at a greater length, and by the capacity of the memory.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import Any

from torch import Tensor

from experiments.synthetic import hamming
from experiments.synthetic.answers import Answers, ask, per_cent, refill
from experiments.synthetic.inspection import look_inside
from experiments.synthetic.networks import Network
from experiments.synthetic.task import Data, Examples, Task
from rarecall import storage
from rarecall.models import weights
from rarecall.models.neural_gpu import NeuralGPU
from rarecall.models.seq2seq import Seq2Seq

LONGER = 60


def evaluate(
    network: Network, run: dict[str, Any], *, capacities: tuple[int, ...] = (), quiet: bool = False
) -> dict[str, Any]:
    """Return all published figures, in per cent.

    Args:
        network: the trained network.
        run: settings of its training, from its file.
        capacities: capacities of further memories to fill and measure.
        quiet: show no progress bars.
    """
    data = Data(Task(**run["task"]))
    answers = ask(network, data.test, quiet=quiet)
    figures = figures_of(answers, data, data.test)
    longer = Data(replace(data.task, shortest=LONGER, longest=LONGER, test=min(1000, data.task.test)))
    figures[f"length {LONGER}"] = per_cent(ask(network, longer.test, quiet=quiet).right)
    if network.memory is not None:
        figures["slots"] = len(network.memory)
        filled = refill(run, network, data, network.memory.capacity, quiet=quiet)
        refilled = ask(filled, data.test, quiet=quiet)
        figures["inside"] = look_inside(refilled, data) | {
            "slots": len(filled.memory or ()),
            "test": per_cent(refilled.right),
        }
        figures["by capacity"] = {
            str(capacity): per_cent(ask(refill(run, network, data, capacity, quiet=quiet), data.test).right)
            for capacity in capacities
        }
    return {"experiment": "synthetic", "figures": figures}


def evaluate_hamming(task: Task) -> dict[str, Any]:
    """Return the figures of the Hamming nearest neighbour."""
    data = Data(task)
    right = hamming.answer(data.test, data.training) == data.test.outputs
    answers = Answers(right.all(1), data.test.of_digits(right))
    return {"experiment": "synthetic", "figures": figures_of(answers, data, data.test)}


def figures_of(answers: Answers, data: Data, examples: Examples) -> dict[str, Any]:
    """Return percentages of fully correct sequences, and of correct digits by position."""
    seen = data.times_seen(examples.x)
    figures: dict[str, Any] = {"test": per_cent(answers.right)}
    groups = {"0": seen == 0, "1": seen == 1, "2": seen == 2, "3 or more": seen >= 3}
    figures["by times seen"] = {name: per_cent(answers.right[group]) for name, group in groups.items()}
    figures["by digit"] = {"output": _means(answers.digits)}
    if answers.by_memory is not None:
        figures["by digit"]["memory"] = _means(answers.by_memory)
    return figures


def network_of(path: str | os.PathLike[str]) -> tuple[Network, dict[str, Any]]:
    """Load a trained network and the settings of its training."""
    _, header = storage.read(path, kind="network")
    run = json.loads(header.get("run", "{}"))
    if not {"task", "model", "capacity"} <= run.keys():
        raise ValueError(
            f"{path} does not hold a network of the synthetic task; expected a file written by its training."
        )
    network = weights.load(path)
    assert isinstance(network, NeuralGPU | Seq2Seq)
    return network, run | {"commit": header.get("commit", "unknown")}


def _means(right: Tensor) -> list[float]:
    return [round(100 * share, 2) for share in right.double().mean(0).tolist()]
