"""Asking a trained network, which writes its own output and changes nothing."""

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
    """What a network wrote for some examples.

    Attributes:
        right: (n,) bool, the whole sequence.
        digits: (n, digits) bool, each digit.
        by_memory: (n, digits) bool, the memory's own answers, or None without a memory.
        confidence: (n, digits), of these.
        source: (n, digits) int64, the training examples that they came from.
    """

    right: Tensor
    digits: Tensor
    by_memory: Tensor | None = None
    confidence: Tensor | None = None
    source: Tensor | None = None


@torch.no_grad()
def ask(network: Network, examples: Examples, batch: int = 250, quiet: bool = True) -> Answers:
    """Runs free over the examples, and changes nothing."""
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
    back = torch.cat(order).argsort()  # to the order of the examples
    return Answers(**{name: torch.cat([part[name] for part in parts])[back] for name in parts[0]})


@torch.no_grad()
def refill(
    run: dict[str, Any], network: Network, data: Data, capacity: int, *, passes: int = 2, quiet: bool = True
) -> Network:
    """The same network with a new memory that was shown the training examples: no training, only updates.

    As in its training, it writes on from its own output, or from the right one.

    In a first pass, every fourth new digit finds another number's key that happens to have its value, and is averaged
    into it in place of a slot of its own. A second pass writes those that are still answered wrong.
    """
    if network.memory is None:
        raise ValueError("refill got a network without a memory; there is nothing to fill.")
    filled = make_network(run["model"], network.memory.key_size, capacity)
    filled.load_state_dict(dict(network.named_parameters()), strict=False)
    filled.eval()
    generator = torch.Generator().manual_seed(0)
    batch = min(64, max(1, capacity // data.task.longest))  # whatever misses finds a slot
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
    """A share in per cent with its 95% confidence interval, and of how many; None where there are none."""
    count = len(right)
    if count == 0:
        return {"mean": None, "interval": None, "asked": 0}
    mean = right.double().mean().item()
    interval = 1.96 * (mean * (1 - mean) / count) ** 0.5
    return {"mean": round(100 * mean, 2), "interval": round(100 * interval, 2), "asked": count}
