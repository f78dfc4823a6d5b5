"""Drawings of characters as examples: brought to the size and place of Omniglot's, for the network trained on them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rarecall.models.weights import load

if TYPE_CHECKING:
    from PIL import Image

# One of three networks trained alike; joined they are a little more accurate, and three times as slow.
WEIGHTS = "omniglot-residual-0"
# Pixels: the network's input, and the larger of width and height of a drawing in it. Of 17 to 24, 19 to 22 were best on
# the validation characters: 91.6% right of 172 classes shown once; 91.5% as Omniglot has them.
SIZE, EXTENT = 28, 20
KEPT = 8 * SIZE  # side of a drawing that is kept
INK = 48  # of 255: paler than that is paper


class Drawings(nn.Module):
    """The residual network trained on Omniglot: drawings to (n, 256), of length 1."""

    key_size = 256
    kind = "drawing"  # what `rarecall serve` takes as examples

    def __init__(self) -> None:
        super().__init__()
        self.network = load(WEIGHTS)
        self.requires_grad_(False).eval()

    def forward(self, drawings: Sequence[Any]) -> Tensor:
        """drawings: paths, bytes of files, or PIL images; dark on light or light on dark, of any size."""
        from PIL import Image

        inputs = []
        for each in drawings:
            each = io.BytesIO(each) if isinstance(each, bytes) else each
            image = each if isinstance(each, Image.Image) else Image.open(each)
            small = normalised(image).resize((SIZE, SIZE), Image.Resampling.BOX)
            inputs.append(torch.from_numpy(np.array(small)))
        return functional.normalize(self.network(torch.stack(inputs)[:, None].float() / 255), dim=1)


def normalised(image: Image.Image) -> Image.Image:
    """Return a drawing in the middle of KEPT x KEPT pixels, as large as Omniglot's; ink is 255.

    Raises:
        ValueError: nothing is drawn.
    """
    from PIL import Image

    ink = 255 - np.asarray(image.convert("L"))
    if ink.mean() > 127:  # light on dark
        ink = 255 - ink
    rows, columns = np.nonzero(ink.max(1) > INK)[0], np.nonzero(ink.max(0) > INK)[0]
    if not len(rows):
        raise ValueError("Nothing is drawn on the image.")
    top, bottom, left, right = rows[0], rows[-1] + 1, columns[0], columns[-1] + 1
    side = max(bottom - top, right - left) * SIZE / EXTENT
    x, y = (left + right - side) / 2, (top + bottom - side) / 2
    window = (x, y, x + side, y + side)
    return Image.fromarray(ink).transform((KEPT, KEPT), Image.Transform.EXTENT, window, Image.Resampling.BICUBIC)
