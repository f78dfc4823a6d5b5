"""The networks of the experiments, and their trained weights."""

from rarecall.models.convnet import ConvNet
from rarecall.models.residual import ResidualNet
from rarecall.models.weights import load

__all__ = ["ConvNet", "ResidualNet", "load"]
