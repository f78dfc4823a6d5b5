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
        whiten: how far to equalise their proportions as well, see `normalise`.

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
        whiten: float = 0.0,
    ) -> None:
        super().__init__()
        first, second = channels
        self.key_size, self.channels, self.dropout = key_size, channels, dropout
        self.image_size, self.padding, self.radius, self.whiten = image_size, padding, radius, whiten
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
        names = ("key_size", "channels", "dropout", "image_size", "padding", "radius", "whiten")
        return {name: getattr(self, name) for name in names}

    def forward(self, images: Tensor) -> Tensor:
        """Return the queries of images, (batch, 1, image_size, image_size) -> (batch, key_size)."""
        if images.shape[1:] != (1, self.image_size, self.image_size):
            raise ValueError(
                f"ConvNet got images of shape {tuple(images.shape)}; expected (batch, 1, {self.image_size}, "
                f"{self.image_size}). Resize them, or create the network with another image_size."
            )
        return self.layers(images if self.radius is None else normalise(images, self.radius, self.whiten))


def normalise(images: Tensor, radius: float, whiten: float = 0.0) -> Tensor:
    """Bring each image to one position and size, and optionally closer to one proportion.

    The centre of mass comes to the middle, and the image is resampled (bilinear); what leaves it is lost.

    Args:
        images: (batch, 1, size, size); 0 is background.
        radius: root mean square distance of the ink from the middle afterwards, in pixels.
        whiten: power, from 0 to 1, by which the ink's standard deviations along its two principal axes are made equal:
            0 keeps the proportions, 1 makes every drawing as wide as high (a whitening of its pixels' positions).
            A direction is scaled by a factor of `MAX_SCALE` at most.
    """
    size = images.shape[-1]
    places = torch.arange(size, device=images.device) - (size - 1) / 2
    ink = images.detach().squeeze(1).float()
    ink = ink / ink.sum((1, 2), keepdim=True).clamp(min=torch.finfo(ink.dtype).tiny)
    middle = torch.stack((ink.sum(1) @ places, ink.sum(2) @ places), -1)  # (batch, 2): x, y
    x, y = (places - offset[:, None] for offset in middle.unbind(-1))  # (batch, size)
    xy = torch.einsum("nyx,ny,nx->n", ink, y, x)
    xx, yy = (ink.sum(1) * x**2).sum(1), (ink.sum(2) * y**2).sum(1)
    spread, axes = torch.linalg.eigh(torch.stack((xx, xy, xy, yy), -1).unflatten(-1, (2, 2)))
    variance = spread.clamp(min=0)  # along each axis, (batch, 2)
    scale = variance.mean(1, keepdim=True) ** (0.5 * (1 - whiten)) * variance ** (0.5 * whiten)
    scale = (scale * 2**0.5 / radius).clamp(1 / MAX_SCALE, MAX_SCALE)
    matrix = axes * scale[:, None] @ axes.mT
    grid = F.affine_grid(
        torch.cat((matrix, middle[..., None] * (2 / size)), -1), list(images.shape), align_corners=False
    )
    return F.grid_sample(images, grid.to(images.dtype), align_corners=False)
