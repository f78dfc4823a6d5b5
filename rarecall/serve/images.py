"""Uploaded images: decoded within bounds, and made small."""

from __future__ import annotations

import base64
import binascii
import io
import threading

from PIL import Image, ImageOps

from rarecall.integrations.drawings import normalised
from rarecall.serve.security import Refused

FORMATS = ("PNG", "JPEG", "WEBP", "GIF")
PIXELS = 24_000_000  # of an upload, before it is made smaller: at most 100 MB while it is decoded
DECODERS = threading.BoundedSemaphore(2)  # images that are decoded at once
PICTURE, LONGEST = 256, 1024  # pixels: the sides of a picture that is kept, at most


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
    """Return the file of a drawing that is kept, dark on light, in the middle, as large as Omniglot's.

    Raises:
        Refused: nothing is drawn.
    """
    try:
        drawn = ImageOps.invert(normalised(image))
    except ValueError as error:
        raise Refused(400, str(error)) from None
    file = io.BytesIO()
    drawn.save(file, "PNG", optimize=True)
    return file.getvalue()
