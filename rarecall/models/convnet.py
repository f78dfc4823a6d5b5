"""The paper's convolutional network; its output is a query to the memory."""

from __future__ import annotations

import torch
from torch import Tensor, nn


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
        centred: centre the images first, see `centre` (the paper does not state how it normalises its input).

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
        centred: bool = False,
    ) -> None:
        super().__init__()
        first, second = channels
        self.key_size, self.channels, self.dropout = key_size, channels, dropout
        self.image_size, self.padding, self.centred = image_size, padding, centred
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
        names = ("key_size", "channels", "dropout", "image_size", "padding", "centred")
        return {name: getattr(self, name) for name in names}

    def forward(self, images: Tensor) -> Tensor:
        """Return the queries of images, (batch, 1, image_size, image_size) -> (batch, key_size)."""
        if images.shape[1:] != (1, self.image_size, self.image_size):
            raise ValueError(
                f"ConvNet got images of shape {tuple(images.shape)}; expected (batch, 1, {self.image_size}, "
                f"{self.image_size}). Resize them, or create the network with another image_size."
            )
        return self.layers(centre(images) if self.centred else images)


def centre(images: Tensor) -> Tensor:
    """Shift each image by whole pixels to bring its centre of mass to the middle, as was done for MNIST.

    What leaves the image on one side enters on the opposite one.

    Args:
        images: (batch, 1, size, size); 0 is background.
    """
    size = images.shape[-1]
    pixels = torch.arange(size, device=images.device)
    ink = images.detach().squeeze(1).float()
    mass = ink.sum((1, 2)).clamp(min=torch.finfo(ink.dtype).tiny)

    def moved(by_line: Tensor) -> Tensor:  # (batch, size), ink per row or column -> where each pixel comes from
        offset = (by_line * (pixels - (size - 1) / 2)).sum(1) / mass
        return (pixels + offset.round().long()[:, None]) % size

    rows, columns = moved(ink.sum(2)), moved(ink.sum(1))
    batch = torch.arange(len(images), device=images.device)[:, None, None]
    return images[batch, 0, rows[:, :, None], columns[:, None, :]].unsqueeze(1)
