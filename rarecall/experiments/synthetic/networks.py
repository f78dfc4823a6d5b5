"""The two networks of the paper's second table, at the paper's sizes."""

from __future__ import annotations

from rarecall import Memory
from rarecall.experiments.synthetic.task import SYMBOLS
from rarecall.models.neural_gpu import NeuralGPU
from rarecall.models.seq2seq import Seq2Seq

Network = NeuralGPU | Seq2Seq
MODELS = ("neural-gpu", "seq2seq")


def make_network(model: str, capacity: int) -> Network:
    """A network with a memory of so many slots, or with none where there are 0."""
    if model == "neural-gpu":
        return NeuralGPU(SYMBOLS, channels=32, memory=Memory(32, capacity) if capacity else None)
    if model == "seq2seq":
        return Seq2Seq(SYMBOLS, units=256, memory=Memory(256, capacity) if capacity else None)
    raise ValueError(f"There is no model {model!r}; expected one of {', '.join(MODELS)}.")
