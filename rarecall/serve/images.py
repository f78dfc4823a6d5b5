"""Uploaded images: decoded within bounds, made small, and drawings made to look like those the network knows."""

from __future__ import annotations

import base64
import binascii
import io
import threading

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from rarecall.serve.security import Refused

FORMATS = ("PNG", "JPEG", "WEBP", "GIF")
PIXELS = 24_000_000  # of an upload, before it is made smaller: at most 100 MB while it is decoded
DECODERS = threading.BoundedSemaphore(2)  # images that are decoded at once
PICTURE, LONGEST = 256, 1024  # pixels: the sides of a picture that is kept, at most
DRAWING = 224  # pixels: the side of a drawing that is kept, eight times that of the network's input
SIZE, EXTENT = 28, 20  # pixels: the network's input, and the larger of width and height of a drawing in it
INK = 48  # of 255: paler than that is paper


def decode(text: str) -> Image.Image:
    """Return an image from base64 or a data URL; see `open_image`."""
    header, comma, data = text.partition(",")
    data = data if comma and header.startswith("data:image/") else text
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise Refused(400, "The image is not base64 or a data URL.") from None
    return open_image(raw)


def open_image(raw: bytes) -> Image.Image:
    """Decode an image file, RGB on white, turned as the camera says, no larger than is kept.

    Raises:
        Refused: it is not an image, or has too many pixels.
    """
    with DECODERS:
        try:
            with Image.open(io.BytesIO(raw), formats=FORMATS) as image:
                width, height = image.size
                if width * height > PIXELS or min(width, height) < 1:
                    raise Refused(413, f"The image has {width} x {height} pixels; expected at most {PIXELS} in all.")
                image.draft("RGB", (2 * PICTURE, 2 * PICTURE))  # of a JPEG, no more is decoded than needed
                scale = min(PICTURE / min(image.size), LONGEST / max(image.size))
                if scale < 1:
                    image.thumbnail((round(image.width * scale) or 1, round(image.height * scale) or 1))
                turned = ImageOps.exif_transpose(image).convert("RGBA")
        except Refused:
            raise
        except (Image.DecompressionBombError, Image.DecompressionBombWarning):
            raise Refused(413, f"The image has far too many pixels; expected at most {PIXELS}.") from None
        except Exception as error:  # whatever a decoder says to broken bytes
            raise Refused(
                400, f"The image cannot be read ({type(error).__name__}); expected PNG, JPEG, WebP or GIF."
            ) from None
    paper = Image.new("RGBA", turned.size, "white")
    paper.alpha_composite(turned)
    return paper.convert("RGB")


def to_jpeg(image: Image.Image) -> bytes:
    """Return the file of a picture that is kept, without what the camera noted."""
    file = io.BytesIO()
    image.save(file, "JPEG", quality=90)
    return file.getvalue()


def to_drawing(image: Image.Image) -> bytes:
    """Return a PNG of DRAWING x DRAWING pixels: dark ink on white paper, in the middle, as large as Omniglot's.

    Raises:
        Refused: nothing is drawn.
    """
    ink = 255 - np.asarray(image.convert("L"))
    if ink.mean() > 127:  # light on dark
        ink = 255 - ink
    rows, columns = np.nonzero(ink.max(1) > INK)[0], np.nonzero(ink.max(0) > INK)[0]
    if not len(rows):
        raise Refused(400, "Nothing is drawn on the image.")
    top, bottom, left, right = rows[0], rows[-1] + 1, columns[0], columns[-1] + 1
    side = max(bottom - top, right - left) * SIZE / EXTENT
    x, y = (left + right - side) / 2, (top + bottom - side) / 2
    window = (x, y, x + side, y + side)
    drawn = Image.fromarray(ink).transform((DRAWING, DRAWING), Image.Transform.EXTENT, window, Image.Resampling.BICUBIC)
    file = io.BytesIO()
    ImageOps.invert(drawn).save(file, "PNG", optimize=True)
    return file.getvalue()


def drawing_pixels(png: bytes) -> Tensor:
    """Return the network's input of a drawing that `to_drawing` made, (1, 28, 28) float, ink is 1."""
    with Image.open(io.BytesIO(png), formats=("PNG",)) as image:
        small = ImageOps.invert(image.convert("L")).resize((SIZE, SIZE), Image.Resampling.BOX)
    return torch.from_numpy(np.array(small)).float().div(255)[None]
