"""The two networks of the paper's second table."""

from __future__ import annotations

from experiments.synthetic.task import SYMBOLS
from rarecall import Memory
from rarecall.models.neural_gpu import NeuralGPU
from rarecall.models.seq2seq import Seq2Seq

Network = NeuralGPU | Seq2Seq
MODELS = ("neural-gpu", "seq2seq")


def make_network(model: str, units: int, capacity: int) -> Network:
    """Return a new network.

    Args:
        model: one of MODELS.
        units: channels of the Neural GPU or units per layer of seq2seq; also the key dimension of the memory.
        capacity: slots of the memory; 0 for no memory.
    """
    memory = Memory(units, capacity) if capacity else None
    if model == "neural-gpu":
        return NeuralGPU(SYMBOLS, channels=units, memory=memory)
    if model == "seq2seq":
        return Seq2Seq(SYMBOLS, units=units, memory=memory)
    raise ValueError(f"There is no model {model!r}; expected one of {', '.join(MODELS)}.")
