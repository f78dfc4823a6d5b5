"""Networks for use with a memory, and trained weights."""

from rarecall.models.convnet import ConvNet
from rarecall.models.gnmt import GNMT
from rarecall.models.neural_gpu import NeuralGPU
from rarecall.models.residual import ResidualNet
from rarecall.models.seq2seq import Seq2Seq
from rarecall.models.weights import load

__all__ = ["GNMT", "ConvNet", "NeuralGPU", "ResidualNet", "Seq2Seq", "load"]
