"""The network of the convolutional baselines (Vinyals et al. 2016): four blocks of 64 filters."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Convolutions(nn.Module):
    """(n, 1, 28, 28) -> (n, size). Each block: 3 x 3 convolution, batch normalisation, ReLU, 2 x 2 pooling.

    Args:
        filters: filters per block.
        last_pooled: whether the last block pools. If not, features of 3 x 3 positions remain: `size` is 9 * filters.
    """

    def __init__(self, filters: int = 64, *, last_pooled: bool = True) -> None:
        super().__init__()
        self.size = filters if last_pooled else 9 * filters
        modules: list[nn.Module] = []
        for inputs, pooled in ((1, True), (filters, True), (filters, True), (filters, last_pooled)):
            # Pooling before the normalisation leaves a quarter of its work.
            modules += [nn.Conv2d(inputs, filters, 3, padding=1, bias=False), nn.MaxPool2d(2 if pooled else 1)]
            modules += [nn.BatchNorm2d(filters), nn.ReLU()]
        self.layers = nn.Sequential(*modules, nn.Flatten())
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, drawings: Tensor) -> Tensor:
        if drawings.dim() != 4 or drawings.shape[1:] != (1, 28, 28):
            raise ValueError(f"Convolutions got drawings of shape {tuple(drawings.shape)}; expected (n, 1, 28, 28).")
        return self.layers(drawings.contiguous(memory_format=torch.channels_last))
