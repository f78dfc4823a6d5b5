"""An ensemble of networks: their queries are concatenated."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Joined(nn.Module):
    """Concatenate the normalised queries of several networks.

    The cosine of two joined queries is the mean of the networks' cosines. Networks that were trained independently make
    different errors, so the mean is more accurate than each of them.

    Args:
        networks: each has a `key_size`, and maps the same inputs to queries (n, key_size).
    """

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.key_size = sum(network.key_size for network in networks)  # type: ignore[misc]

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([F.normalize(network(x), dim=-1) for network in self.networks], dim=-1)
