"""The convolutional network of the paper, whose output is a query to the memory."""

from __future__ import annotations

from torch import Tensor, nn


class ConvNet(nn.Module):
    """Two pairs of 3x3 convolutions, each pair followed by a max-pooling, then two fully connected layers.

    There is no batch normalisation: a query does not depend on the batch that it came in.

    Args:
        key_size: numbers in a query, and in the fully connected layer before it.
        channels: of the first pair of convolutions and of the second.
        dropout: share of the numbers dropped between the fully connected layers (the paper does not tell its share).
        image_size: pixels of a side of an image.
        padding: pixels added around an image before a convolution (the paper does not tell): 1 keeps its size; 0 takes
            off two, which leaves half of the work.

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
    ) -> None:
        super().__init__()
        first, second = channels
        self.key_size, self.channels, self.dropout = key_size, channels, dropout
        self.image_size, self.padding = image_size, padding
        shrunk = 4 * (1 - padding)  # pixels that two convolutions take off a side
        last = ((image_size - shrunk) // 2 - shrunk) // 2
        self.layers = nn.Sequential(
            nn.Conv2d(1, first, 3, padding=padding),
            nn.ReLU(),
            nn.Conv2d(first, first, 3, padding=padding),
            nn.ReLU(),
            nn.MaxPool2d(2),  # (batch, first, 14, 14) of an image of 28 x 28, or 12 x 12 without padding
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
        # Without batch normalisation the weights have to keep the activations at one size from layer to layer.
        for layer in self.layers:
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)

    def settings(self) -> dict[str, object]:
        """What makes a network of the same shapes: `ConvNet(**settings)`."""
        names = ("key_size", "channels", "dropout", "image_size", "padding")
        return {name: getattr(self, name) for name in names}

    def forward(self, images: Tensor) -> Tensor:
        """Images: (batch, 1, image_size, image_size) -> queries: (batch, key_size)."""
        if images.shape[1:] != (1, self.image_size, self.image_size):
            raise ValueError(
                f"ConvNet got images of shape {tuple(images.shape)}; expected (batch, 1, {self.image_size}, "
                f"{self.image_size}). Resize them, or make the network with another image_size."
            )
        return self.layers(images)
