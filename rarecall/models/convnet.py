"""The paper's convolutional network; its output is a query to the memory."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

MAX_SCALE = 2.0  # a dot is not scaled to the size of a letter


class ConvNet(nn.Module):
    """Two pairs of 3x3 convolutions, each pair followed by a max-pooling, then two fully connected layers.

    There is no batch normalisation: a query does not depend on the other examples of its batch.

    Args:
        key_size: query dimension, and width of the fully connected layer before it.
        channels: channels of the first and of the second pair of convolutions.
        dropout: dropout probability between the fully connected layers (not specified in the paper).
        image_size: side of an image in pixels.
        padding: padding of the convolutions (not specified in the paper): 1 keeps the size; 0 removes two pixels per
            convolution, which halves the work.
        radius: first bring the images to one position and to this size, see `normalise` (the paper does not state how
            it normalises its input). None: take them as they are.

    Example:
        >>> import torch
        >>> network = ConvNet(key_size=256)
        >>> network(torch.zeros(32, 1, 28, 28)).shape
        torch.Size([32, 256])
    """

    def __init__(
        self,
        key_size: int = 256,
        channels: tuple[int, int] = (64, 128),
        dropout: float = 0.5,
        image_size: int = 28,
        padding: int = 1,
        radius: float | None = None,
    ) -> None:
        super().__init__()
        first, second = channels
        self.key_size, self.channels, self.dropout = key_size, channels, dropout
        self.image_size, self.padding, self.radius = image_size, padding, radius
        shrunk = 4 * (1 - padding)  # pixels that two convolutions remove from a side
        last = ((image_size - shrunk) // 2 - shrunk) // 2
        self.layers = nn.Sequential(
            nn.Conv2d(1, first, 3, padding=padding),
            nn.ReLU(),
            nn.Conv2d(first, first, 3, padding=padding),
            nn.ReLU(),
            nn.MaxPool2d(2),  # (batch, first, 14, 14) for images of 28 x 28, or 12 x 12 without padding
            nn.Conv2d(first, second, 3, padding=padding),
            nn.ReLU(),
            nn.Conv2d(second, second, 3, padding=padding),
            nn.ReLU(),
            nn.MaxPool2d(2),  # (batch, second, 7, 7), or 4 x 4
            nn.Flatten(),
            nn.Linear(second * last**2, key_size),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(key_size, key_size),
        )
        # Without batch normalisation the initialisation has to preserve the scale of the activations.
        for layer in self.layers:
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)

    def settings(self) -> dict[str, object]:
        """Return the arguments that create a network of the same shapes, `ConvNet(**settings)`."""
        names = ("key_size", "channels", "dropout", "image_size", "padding", "radius")
        return {name: getattr(self, name) for name in names}

    def forward(self, images: Tensor) -> Tensor:
        """Return the queries of images, (batch, 1, image_size, image_size) -> (batch, key_size)."""
        if images.shape[1:] != (1, self.image_size, self.image_size):
            raise ValueError(
                f"ConvNet got images of shape {tuple(images.shape)}; expected (batch, 1, {self.image_size}, "
                f"{self.image_size}). Resize them, or create the network with another image_size."
            )
        return self.layers(images if self.radius is None else normalise(images, self.radius))


def normalise(images: Tensor, radius: float) -> Tensor:
    """Bring each image to one position and size, as was done for MNIST.

    The centre of mass comes to the middle, and the image is resampled (bilinear); what leaves it is lost.

    Args:
        images: (batch, 1, size, size); 0 is background.
        radius: root mean square distance of the ink from the middle afterwards, in pixels. Images are scaled by a
            factor of `MAX_SCALE` at most.
    """
    size = images.shape[-1]
    places = torch.arange(size, device=images.device) - (size - 1) / 2
    ink = images.detach().squeeze(1).float()
    by_row, by_column = ink.sum(2), ink.sum(1)  # (batch, size)
    mass = by_row.sum(1).clamp(min=torch.finfo(ink.dtype).tiny)
    y, x = (by_row * places).sum(1) / mass, (by_column * places).sum(1) / mass
    around = ((by_row + by_column) * places**2).sum(1) / mass - y**2 - x**2
    scale = (around.clamp(min=0).sqrt() / radius).clamp(1 / MAX_SCALE, MAX_SCALE)
    steps = places * (2 / size)
    rows, columns = (scale[:, None] * steps + 2 / size * offset[:, None] for offset in (y, x))
    grid = torch.stack(torch.broadcast_tensors(columns[:, None, :], rows[:, :, None]), -1)
    return F.grid_sample(images, grid, align_corners=False)
