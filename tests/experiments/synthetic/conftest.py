"""A task and networks that are small enough for a test."""

from __future__ import annotations

import pytest

from rarecall import Memory
from rarecall.experiments.synthetic import answers, evaluate, train
from rarecall.experiments.synthetic.networks import Network
from rarecall.experiments.synthetic.task import SYMBOLS, Task
from rarecall.models.neural_gpu import NeuralGPU
from rarecall.models.seq2seq import Seq2Seq

TASK = Task(symbols=60, digits=3, shortest=4, longest=7, training=100, test=40)


def make_network(model: str, capacity: int) -> Network:
    if model == "seq2seq":
        return Seq2Seq(SYMBOLS, units=8, memory=Memory(8, capacity) if capacity else None)
    return NeuralGPU(SYMBOLS, channels=6, memory=Memory(6, capacity) if capacity else None)


@pytest.fixture
def _small_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (answers, evaluate, train):
        monkeypatch.setattr(module, "make_network", make_network)
