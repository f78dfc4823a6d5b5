"""Networks for images, of timm, torchvision or one's own, as embedders."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

# Mean and standard deviation of ImageNet's colours, by which nearly all published networks are trained.
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
MOST_PIXELS = 2**26  # of a picture that is decoded


class Backbone(nn.Module):
    """A network for images as an embedder: pictures to (n, d), for `rarecall.open` and `MemoryClassifier`.

    Args:
        network: maps (n, 3, size, size) to (n, d), or to (n, d, h, w), of which the mean is taken.
        size: of the square that pictures are scaled to.
        mean: of each colour, subtracted; those of ImageNet by default.
        deviation: of each colour, divided by.
        batch: pictures that are embedded at once.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(
        self,
        network: nn.Module,
        *,
        size: int = 224,
        mean: Sequence[float] = MEAN,
        deviation: Sequence[float] = DEVIATION,
        batch: int = 32,
    ) -> None:
        super().__init__()
        self.network, self.size, self.batch = network.eval(), size, batch
        self.register_buffer("mean", torch.tensor(mean).view(3, 1, 1))
        self.register_buffer("deviation", torch.tensor(deviation).view(3, 1, 1))

    def forward(self, images: Sequence[Any]) -> Tensor:
        """images: paths, bytes of files, or PIL images."""
        if not len(images):
            raise ValueError("Backbone got no images; expected at least one.")
        parts = [images[start : start + self.batch] for start in range(0, len(images), self.batch)]
        return torch.cat([self._embed(torch.stack([pixels(each, self.size) for each in part])) for part in parts])

    def _embed(self, colours: Tensor) -> Tensor:
        features: Tensor = self.network((colours.to(self.mean) / 255 - self.mean) / self.deviation)
        return features.mean((2, 3)) if features.ndim == 4 else features


def pixels(image: Any, size: int) -> Tensor:
    """Return the middle square of a picture, (3, size, size) uint8. image: a path, the bytes of a file, or a PIL image.

    A file is decoded only where its header announces at most 2**26 pixels.
    """
    from PIL import Image, ImageOps

    if isinstance(image, bytes | bytearray | memoryview):
        image = io.BytesIO(image)
    if isinstance(image, str | os.PathLike | io.BytesIO):
        with Image.open(image) as file:
            if file.width * file.height > MOST_PIXELS:
                raise ValueError(
                    f"Got a picture of {file.width} x {file.height}; expected at most {MOST_PIXELS} pixels."
                )
            return pixels(file, size)
    image = ImageOps.exif_transpose(image).convert("RGB")
    return torch.from_numpy(np.array(ImageOps.fit(image, (size, size), Image.Resampling.BICUBIC))).permute(2, 0, 1)
