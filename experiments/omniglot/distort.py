"""Drawings as another hand might have drawn them: turned, stretched, leaned, moved and bent a little."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def distort(
    drawings: Tensor,
    *,
    turn: float = 12.0,
    stretch: float = 0.2,
    lean: float = 0.25,
    move: float = 0.12,
    bend: float = 0.06,
    untouched: float = 0.1,
) -> Tensor:
    """(n, 1, height, width) -> the same shape, each drawing by random numbers of its own.

    Args:
        drawings: 0 is paper.
        turn: at most so many degrees.
        stretch: each side by at most a factor of e^stretch.
        lean: at most this slope.
        move: at most this part of half a side.
        bend: standard deviation, in half sides, of 4 x 4 points by which the plane is bent.
        untouched: this share of the drawings stays as it is.
    """
    n, _, height, width = drawings.shape

    def within(most: float, *shape: int) -> Tensor:
        return (torch.rand(n, *shape) * 2 - 1) * most

    angle, slope = within(math.radians(turn)), within(lean)
    across, down = within(stretch).exp(), within(stretch).exp()
    cos, sin = angle.cos(), angle.sin()
    rows = (
        torch.stack([cos * across, slope * cos * across - sin * down], -1),
        torch.stack([sin * across, slope * sin * across + cos * down], -1),
    )
    affine = torch.cat([torch.stack(rows, -2), within(move, 2, 1)], -1)  # (n, 2, 3)
    bends = torch.randn(n, 2, 4, 4) * bend
    stays = (torch.rand(n) < untouched).view(n, 1, 1)
    affine = torch.where(stays, torch.eye(2, 3), affine)
    bends = bends.masked_fill(stays.unsqueeze(3), 0.0)
    grid = F.affine_grid(affine, [n, 1, height, width], align_corners=False)
    grid = grid + F.interpolate(bends, size=(height, width), mode="bicubic", align_corners=True).permute(0, 2, 3, 1)
    return F.grid_sample(drawings, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
