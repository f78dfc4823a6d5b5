"""A life-long memory for PyTorch networks: shown something once, it answers from it ever after.

>>> import torch
>>> from rarecall import Memory
>>> memory = Memory(key_size=3, capacity=100)
>>> shown = torch.eye(3)                                  # (batch, key_size)
>>> memory.update(memory(shown), torch.tensor([7, 8, 9]))
>>> memory(torch.tensor([0.1, 0.9, 0.0])).value           # (): the value of the nearest key
tensor(8)
"""

from rarecall.classifier import Explanation, MemoryClassifier, Prediction
from rarecall.kept import Answer, Evidence, KeptClassifier, open
from rarecall.layers import NeighbourAttention, RecallEmbedding, Trust
from rarecall.memory import Memory
from rarecall.reading import Blend, Nearest, Reading, Vote
from rarecall.recall import Recall
from rarecall.search import AutoSearch, ExactSearch, Search

__all__ = [
    "Answer",
    "AutoSearch",
    "Blend",
    "Evidence",
    "ExactSearch",
    "Explanation",
    "KeptClassifier",
    "Memory",
    "MemoryClassifier",
    "Nearest",
    "NeighbourAttention",
    "Prediction",
    "Reading",
    "Recall",
    "RecallEmbedding",
    "Search",
    "Trust",
    "Vote",
    "open",
]
__version__ = "0.1.0"
