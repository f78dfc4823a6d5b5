"""Networks for images, of timm, torchvision or one's own, as embedders."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

# Mean and standard deviation of ImageNet's colours, by which nearly all published networks are trained.
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
MOST_PIXELS = 2**26  # of a picture that is decoded
# The share of a picture's width that is looked at a second time, where mostly stands what it is of; the bins of hue,
# saturation and value there; and the share of colours in a similarity. Chosen on validation photos of groceries.
MIDDLE, BINS, COLOUR = 0.7, (12, 4, 3), 0.15


class Backbone(nn.Module):
    """A network for images as an embedder: pictures to keys of length 1, for `rarecall.open` and `MemoryClassifier`.

    A key is the mean of the network's features, each made of length 1, of the whole picture and of its middle. Beside
    them stands a histogram of the colours of the middle, which most networks see past.

    Args:
        network: maps (n, 3, size, size) to (n, d), or to (n, d, h, w), of which the mean is taken.
        size: of the square that pictures are scaled to.
        mean: of each colour, subtracted; those of ImageNet by default.
        deviation: of each colour, divided by.
        batch: pictures that are embedded at once.
        colour: the share of colours in the similarity of two pictures; 0 leaves them out, and keys are (n, d).
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
        colour: float = COLOUR,
    ) -> None:
        super().__init__()
        if not 0 <= colour < 1:
            raise ValueError(f"Backbone got colour={colour}; expected from 0 to less than 1.")
        # Convolutions are faster on a CPU in this format.
        self.network = network.eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.size, self.batch, self.colour = size, batch, colour
        self.register_buffer("mean", torch.tensor(mean).view(3, 1, 1))
        self.register_buffer("deviation", torch.tensor(deviation).view(3, 1, 1))

    def forward(self, images: Sequence[Any]) -> Tensor:
        """Return (n, d + 144). images: paths, bytes of files, or PIL images."""
        if not len(images):
            raise ValueError("Backbone got no images; expected at least one.")
        parts = [images[start : start + self.batch] for start in range(0, len(images), self.batch)]
        return torch.cat([self._embed([picture(each) for each in part]) for part in parts])

    def _embed(self, pictures: Sequence[Any]) -> Tensor:
        views = [torch.stack([pixels(each, self.size, share) for each in pictures]) for share in (1.0, MIDDLE)]
        whole, middle = (functional.normalize(self._features(view)) for view in views)
        keys = functional.normalize(whole + middle)
        if not self.colour:
            return keys
        counted = torch.stack([colours(each) for each in pictures]).to(keys)
        return torch.cat([(1 - self.colour) ** 0.5 * keys, self.colour**0.5 * counted], 1)

    def _features(self, view: Tensor) -> Tensor:
        scaled = (view.to(self.mean) / 255 - self.mean) / self.deviation
        features: Tensor = self._run(scaled.contiguous(memory_format=torch.channels_last))
        return features.mean((2, 3)) if features.ndim == 4 else features

    def _run(self, scaled: Tensor) -> Tensor:
        features: Tensor = self.network(scaled)
        return features


def picture(image: Any) -> Any:
    """Return a PIL image in RGB, as its camera says that it lies. image: a path, the bytes of a file, or a PIL image.

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
            return picture(file)
    return ImageOps.exif_transpose(image).convert("RGB")


def pixels(image: Any, size: int, share: float = 1.0) -> Tensor:
    """Return the middle square of a picture, (3, size, size) uint8.

    Args:
        image: a path, the bytes of a file, or a PIL image.
        share: of the picture's width and height that is taken.
    """
    return torch.from_numpy(_square(image, size, share)).permute(2, 0, 1)


def colours(image: Any) -> Tensor:
    """Return how much of a picture's middle has which colour, (144,): square roots of shares, of length 1."""
    hsv = _square(image, 64, MIDDLE, "HSV").reshape(-1, 3).astype(np.int64) * BINS // 256
    place = (hsv[:, 0] * BINS[1] + hsv[:, 1]) * BINS[2] + hsv[:, 2]
    return torch.from_numpy(np.bincount(place, minlength=math.prod(BINS)) / len(place)).sqrt().float()


def _square(image: Any, size: int, share: float, mode: str = "RGB") -> np.ndarray[Any, Any]:
    from PIL import Image, ImageOps

    square = ImageOps.fit(picture(image), (size, size), Image.Resampling.BICUBIC, bleed=(1 - share) / 2)
    return np.array(square.convert(mode))
