from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from experiments.synthetic.networks import make_network
from experiments.synthetic.task import Task
from experiments.synthetic.teach import teach

# About a third of the numbers are in no training example.
RUN: dict[str, Any] = {"task": asdict(Task(symbols=60, digits=3, shortest=4, longest=6, training=60, test=20))}


@pytest.mark.parametrize(("model", "forced"), [("neural-gpu", 0.0), ("seq2seq", 1.0)])
def test_new_numbers_are_written_to_the_memory_and_weights_stay(model: str, forced: float) -> None:
    network = make_network(model, 8, 1000)
    before = {name: parameter.clone() for name, parameter in network.named_parameters()}
    result = teach(network, RUN | {"forced": forced}, numbers=10)
    assert network.memory is not None
    assert result["figures"]["slots before"] == 0
    assert len(network.memory) > 0
    assert result["figures"]["new numbers"]["asked"] == 10
    for name, parameter in network.named_parameters():
        assert parameter.equal(before[name])


def test_without_a_memory_nothing_changes() -> None:
    figures = teach(make_network("seq2seq", 8, 0), RUN | {"forced": 1.0}, numbers=10)["figures"]
    assert figures["before"] == figures["new numbers"]
    assert figures["validation before"] == figures["validation after"]


def test_more_numbers_than_there_are_new_ones_are_told() -> None:
    task = asdict(replace(Task(**RUN["task"]), training=2000))
    with pytest.raises(ValueError, match="only 0 are in no training example"):
        teach(make_network("seq2seq", 8, 0), {"task": task, "forced": 1.0}, numbers=1)
