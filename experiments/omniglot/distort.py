"""Data augmentation: random rotation, scaling, shear, translation and elastic deformation of drawings."""

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
    """Distort each drawing independently.

    Args:
        drawings: (n, 1, height, width), 0 is background.
        turn: maximum rotation in degrees.
        stretch: maximum scaling of each side, as a factor of e^stretch.
        lean: maximum shear.
        move: maximum translation, relative to half a side.
        bend: standard deviation of the displacements of a 4 x 4 grid of control points, relative to half a side.
        untouched: fraction of the drawings that is left unchanged.

    Returns:
        (n, 1, height, width)
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
