"""Networks for images as embedders."""

from __future__ import annotations

import importlib.util
import io
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

image_module = pytest.importorskip("PIL.Image")

from rarecall.integrations import images  # noqa: E402
from rarecall.integrations.images import Backbone, colours, pixels  # noqa: E402

KEPT: list[torch.library.Library] = []  # what it declares lasts as long as it does


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "red.png"
    image_module.new("RGB", (40, 20), (255, 0, 0)).save(path)
    return path


def test_a_path_bytes_and_an_image_are_read_alike(picture: Path) -> None:
    expected = pixels(picture, 8)
    assert expected.shape == (3, 8, 8)
    assert expected.float().mean((1, 2)).tolist() == [255, 0, 0]
    for same in (str(picture), picture.read_bytes(), image_module.open(picture)):
        assert torch.equal(pixels(same, 8), expected)
        assert torch.equal(colours(same), colours(picture))


def test_the_middle_is_looked_at_by_itself_and_has_its_colours_counted() -> None:
    image = image_module.new("RGB", (100, 100), (255, 0, 0))
    image.paste((0, 0, 255), (15, 15, 50, 85))  # the left half of the middle
    assert pixels(image, 7, 0.7)[2].float().mean() == pytest.approx(255 / 2, abs=20)
    counted = colours(image)
    assert counted.shape == (144,)
    assert float(counted.norm()) == pytest.approx(1)
    assert counted.square().topk(2).values.tolist() == pytest.approx([0.5, 0.5], abs=0.05)
    network = nn.AdaptiveAvgPool2d(1)
    by_features, with_colours = Backbone(network, size=8, colour=0), Backbone(network, size=8, colour=0.25)
    other = image_module.new("RGB", (9, 9), (0, 255, 0))  # shares no colour
    (a, b), (c, d) = by_features([image, other]), with_colours([image, other])
    assert a.shape == (3,)
    assert float(a.norm()) == pytest.approx(1)
    assert float(c @ d) == pytest.approx(0.75 * float(a @ b))
    with pytest.raises(ValueError, match=r"colour=1\.0; expected from 0 to less than 1"):
        Backbone(network, colour=1.0)


def test_a_picture_lies_as_its_camera_says() -> None:
    image = image_module.new("RGB", (4, 4), (0, 0, 0))
    image.paste((255, 255, 255), (0, 0, 4, 2))  # white above
    exif = image_module.Exif()
    exif[0x0112] = 3  # upside down
    file = io.BytesIO()
    image.save(file, "jpeg", exif=exif, quality=100)
    assert pixels(file.getvalue(), 4)[:, -1].float().mean() > 200


def test_a_picture_that_announces_too_much_is_not_decoded(picture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "MOST_PIXELS", 799)
    with pytest.raises(ValueError, match="40 x 20; expected at most 799"):
        pixels(picture, 8)


@pytest.mark.parametrize("flat", [True, False])
def test_backbone_embeds_in_batches_as_by_itself(picture: Path, flat: bool) -> None:
    network = nn.Sequential(nn.Conv2d(3, 5, 3), *([nn.AdaptiveAvgPool2d(1), nn.Flatten()] if flat else []))
    embed = Backbone(network, size=8, batch=2)
    blue = image_module.new("RGB", (9, 9), (0, 0, 255))
    with torch.no_grad():
        together = embed([picture, blue, picture])
        assert together.shape == (3, 5 + 144)
        assert torch.allclose(together[1:2], embed([blue]))
    assert torch.allclose(together[0], together[2])
    with pytest.raises(ValueError, match="no images"):
        embed([])


@pytest.fixture
def torchvision() -> Any:
    """The library, also beside a torch for CPUs only: the wheels of PyPI are for CUDA, and their operators do not load.

    Installed beside such a torch it breaks transformers, so it is not part of [dev]. To run these tests:

        pip install --no-deps --target FOLDER timm torchvision==0.28.0
        PYTHONPATH=FOLDER pytest tests/test_images.py

    torchvision registers what the results of two operators look like when it is imported, so they are declared first.
    The operators themselves are for detection, which no backbone needs.
    """
    if importlib.util.find_spec("timm") is None:
        pytest.skip("timm is not installed: see the fixture")
    try:
        import torchvision
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        KEPT.append(library)
        import torchvision
    return torchvision


def test_backbone_of_torchvision(picture: Path, torchvision: Any) -> None:
    network = torchvision.models.resnet18()
    network.fc = nn.Identity()
    with torch.no_grad():
        assert Backbone(network, size=64)([picture, picture]).shape == (2, 512 + 144)


def test_backbone_of_timm(picture: Path, torchvision: Any) -> None:
    import timm

    embed = Backbone(timm.create_model("resnet18", num_classes=0), size=64)
    with torch.no_grad():
        assert embed([picture]).shape == (1, 512 + 144)
