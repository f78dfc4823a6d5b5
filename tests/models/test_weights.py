from __future__ import annotations

from pathlib import Path

import pytest
import torch

import rarecall.models
from rarecall.models import weights
from rarecall.models.convnet import ConvNet
from rarecall.models.residual import ResidualNet


@pytest.mark.parametrize("network", [ResidualNet(8, widths=(4, 6, 8)), ConvNet(8, channels=(4, 8), padding=0)])
def test_one_line_loads_what_was_saved_in_half_precision(network: torch.nn.Module, tmp_path: Path) -> None:
    network.eval()
    weights.save(network, tmp_path / "w.safetensors")
    loaded = rarecall.models.load(tmp_path / "w.safetensors")
    assert not loaded.training
    drawings = torch.rand(3, 1, 28, 28)
    assert loaded(drawings).dtype == torch.float32
    torch.testing.assert_close(loaded(drawings), network(drawings), rtol=0.02, atol=0.02)


def test_weights_that_are_not_there_are_told() -> None:
    with pytest.raises(FileNotFoundError, match="There are no weights omnigolt; expected a path or one of"):
        rarecall.models.load("omnigolt")


def test_weights_of_an_unknown_network_are_told(tmp_path: Path) -> None:
    weights.save(torch.nn.Linear(2, 2), tmp_path / "w.safetensors")
    with pytest.raises(ValueError, match="of the network 'Linear'; expected one of"):
        rarecall.models.load(tmp_path / "w.safetensors")


def test_weights_of_other_shapes_are_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="of another network than ResidualNet"):
        weights.load_into(ResidualNet(8), ResidualNet(16).state_dict(), tmp_path / "w.safetensors")
