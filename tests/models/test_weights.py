from __future__ import annotations

from pathlib import Path

import pytest
import torch

import rarecall.models
from rarecall import Memory
from rarecall.models import weights
from rarecall.models.convnet import ConvNet
from rarecall.models.gnmt import GNMT
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


def test_weights_on_top_of_others_hold_only_what_they_add(tmp_path: Path) -> None:
    below = GNMT(symbols=30, start=1, end=2, units=8, layers=2)
    above = GNMT(symbols=30, start=1, end=2, units=8, layers=2, memory=Memory(8, capacity=5), ask=True, trust=True)
    above.load_state_dict(below.state_dict(), strict=False)
    above.memory.write(torch.randn(3, 8), torch.arange(3))
    weights.save(below, tmp_path / "below.safetensors")
    weights.save(above, tmp_path / "above.safetensors", on=tmp_path / "below.safetensors")
    weights.save(above, tmp_path / "whole.safetensors")
    assert (tmp_path / "above.safetensors").stat().st_size < (tmp_path / "whole.safetensors").stat().st_size / 2
    loaded, whole = (rarecall.models.load(tmp_path / f"{name}.safetensors").state_dict() for name in ("above", "whole"))
    assert loaded.keys() == whole.keys()
    assert all(torch.equal(loaded[name], whole[name]) for name in whole)
    weights.save(GNMT(symbols=30, start=1, end=2, units=8, layers=2), tmp_path / "below.safetensors")
    with pytest.raises(ValueError, match=r"needs .*below\.safetensors beside it, with the SHA-256"):
        rarecall.models.load(tmp_path / "above.safetensors")
    (tmp_path / "below.safetensors").unlink()
    with pytest.raises(ValueError, match="Copy both files together"):
        rarecall.models.load(tmp_path / "above.safetensors")
