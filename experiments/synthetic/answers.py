"""Free-running inference with a trained network, and filling its memory without training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from experiments.synthetic.networks import Network, make_network
from experiments.synthetic.task import Data, Examples, batches


@dataclass(frozen=True, eq=False)
class Answers:
    """Correctness of a network's output on some examples.

    Attributes:
        right: (n,) bool, whether the whole sequence is correct.
        digits: (n, digits) bool, whether each digit is correct.
        by_memory: (n, digits) bool, whether the memory's own answer is correct; None without a memory.
        confidence: (n, digits), confidence of the memory's answers.
        source: (n, digits) int64, training examples that the memory's answers came from, -1 for none.
    """

    right: Tensor
    digits: Tensor
    by_memory: Tensor | None = None
    confidence: Tensor | None = None
    source: Tensor | None = None


@torch.no_grad()
def ask(network: Network, examples: Examples, batch: int = 250, quiet: bool = True) -> Answers:
    """Run the network on its own output (no teacher forcing). Changes nothing."""
    network.eval()
    parts: list[dict[str, Tensor]] = []
    order = list(batches(examples, batch))
    for which in tqdm(order, desc="asking", disable=quiet):
        asked = examples[which]
        decoded = network(asked.inputs)
        right = decoded.output == asked.outputs
        part = {"right": right.all(1), "digits": asked.of_digits(right)}
        if decoded.recall is not None and network.memory is not None:
            recall = decoded.recall
            part["by_memory"] = asked.of_digits(recall.value == asked.outputs)
            part["confidence"] = asked.of_digits(recall.confidence)
            nearest = asked.of_digits(recall.slots[..., 0])
            part["source"] = torch.where(nearest < 0, -1, network.memory.sources[nearest.clamp(min=0)])
        parts.append(part)
    back = torch.cat(order).argsort()  # back to the order of the examples
    return Answers(**{name: torch.cat([part[name] for part in parts])[back] for name in parts[0]})


@torch.no_grad()
def refill(
    run: dict[str, Any], network: Network, data: Data, capacity: int, *, passes: int = 2, quiet: bool = True
) -> Network:
    """Return the same network with a new memory filled with the training examples, by updates without training.

    As in its training, the network continues from its own output or from the correct one (teacher forcing).

    In the first pass, the nearest key of every fourth new digit belongs to another number but has the same value, so
    the query is averaged into it instead of getting a slot of its own. A second pass writes those that are still wrong.
    """
    if network.memory is None:
        raise ValueError("refill got a network without a memory; expected one with a memory.")
    filled = make_network(run["model"], network.memory.key_size, capacity)
    filled.load_state_dict(dict(network.named_parameters()), strict=False)
    filled.eval()
    generator = torch.Generator().manual_seed(0)
    batch = min(64, max(1, capacity // data.task.longest))  # every query that misses gets a slot
    order = [which for _ in range(passes) for which in batches(data.training, batch, generator)]
    for which in tqdm(order, desc=f"{capacity} slots", disable=quiet):
        shown = data.training[which]
        recall = filled(shown.inputs, shown.outputs if run["forced"] == 1 else None).recall
        assert filled.memory is not None
        assert recall is not None
        source = which[:, None].expand_as(shown.outputs)
        filled.memory.update(recall, shown.outputs, source=source, generator=generator)
    return filled


def per_cent(right: Tensor) -> dict[str, Any]:
    """Return a proportion in per cent with its 95% confidence interval and its count; None if the count is 0."""
    count = len(right)
    if count == 0:
        return {"mean": None, "interval": None, "asked": 0}
    mean = right.double().mean().item()
    interval = 1.96 * (mean * (1 - mean) / count) ** 0.5
    return {"mean": round(100 * mean, 2), "interval": round(100 * interval, 2), "asked": count}
