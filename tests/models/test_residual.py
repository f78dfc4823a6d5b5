import pytest
import torch

from rarecall.models.residual import ResidualNet


def test_drawings_become_queries() -> None:
    network = ResidualNet(key_size=16, widths=(4, 6, 8)).eval()
    drawings = torch.rand(5, 1, 28, 28)
    assert network(drawings).shape == (5, 16)
    torch.testing.assert_close(network(drawings)[2:3], network(drawings[2:3]))


def test_settings_make_a_network_of_the_same_shapes() -> None:
    network = ResidualNet(key_size=16, widths=(4, 6, 8))
    ResidualNet(**network.settings()).load_state_dict(network.state_dict())


@pytest.mark.parametrize("shape", [(2, 1, 32, 32), (2, 3, 28, 28), (1, 28, 28)])
def test_drawings_of_another_size_are_told(shape) -> None:
    with pytest.raises(ValueError, match=r"expected \(n, 1, 28, 28\)"):
        ResidualNet()(torch.zeros(shape))
