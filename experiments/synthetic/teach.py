"""python -m experiments.synthetic teach --weights weights/synthetic-neural-gpu-memory.safetensors

Numbers that are in no training example are shown once after training, without any change of the weights, and are then
asked for in other surroundings. A network without memory can only guess them.
"""

from __future__ import annotations

from typing import Any

import torch

from experiments.synthetic.answers import ask, per_cent
from experiments.synthetic.networks import Network
from experiments.synthetic.task import Data, Examples, Task, batches


def teach(network: Network, run: dict[str, Any], *, numbers: int = 1000, seed: int = 0) -> dict[str, Any]:
    """Show new numbers to a trained network, which changes its memory, and measure its answers before and after.

    Args:
        network: a trained network.
        run: settings of its training, from its file.
        numbers: number of new numbers, each shown in one example.
        seed: random seed of the numbers and their surroundings.

    Returns:
        A result: shares of fully correct sequences of the new numbers, and of the validation examples (numbers of the
        whole range), before and after the new ones were shown.
    """
    data = Data(Task(**run["task"]))
    generator = torch.Generator().manual_seed(seed)
    every = torch.arange(2, data.task.symbols + 1)
    new = every[data.times_seen(every) == 0]
    if len(new) < numbers:
        raise ValueError(f"teach got numbers={numbers}; only {len(new)} are in no training example. Ask for fewer.")
    new = new[torch.randperm(len(new), generator=generator)[:numbers]]
    shown, asked = data.draw(new, generator), data.draw(new, generator)
    known = data.validation[~torch.isin(data.validation.x, new)]
    figures: dict[str, Any] = {"before": per_cent(ask(network, asked).right)}
    figures["validation before"] = per_cent(ask(network, known).right)
    if network.memory is not None:
        figures["slots before"] = len(network.memory)
        _show(network, run, shown, generator)
    figures["new numbers"] = per_cent(ask(network, asked).right)
    figures["validation after"] = per_cent(ask(network, known).right)
    return {"experiment": "synthetic new numbers", "figures": figures}


@torch.no_grad()
def _show(network: Network, run: dict[str, Any], examples: Examples, generator: torch.Generator) -> None:
    """Update the memory in one pass, as in training: with the network's own output, or with teacher forcing."""
    assert network.memory is not None
    network.eval()
    for which in batches(examples, 64, generator):
        shown = examples[which]
        recall = network(shown.inputs, shown.outputs if run["forced"] == 1 else None).recall
        assert recall is not None
        network.memory.update(recall, shown.outputs, generator=generator)
