import pytest
import torch
from torch import nn

from rarecall.models.convnet import ConvNet, normalise


def test_by_default_it_is_the_network_of_the_paper() -> None:
    network = ConvNet()
    weights = [tuple(p.shape) for p in network.parameters() if p.dim() > 1]
    assert weights == [(64, 1, 3, 3), (64, 64, 3, 3), (128, 64, 3, 3), (128, 128, 3, 3), (256, 128 * 7 * 7), (256, 256)]
    assert sum(isinstance(layer, nn.MaxPool2d) for layer in network.modules()) == 2
    assert not any(isinstance(layer, nn.BatchNorm2d) for layer in network.modules())
    assert network(torch.rand(2, 1, 28, 28)).shape == (2, 256)


def test_a_smaller_one_for_smaller_images() -> None:
    network = ConvNet(key_size=10, channels=(4, 8), image_size=20)
    assert network(torch.rand(3, 1, 20, 20)).shape == (3, 10)


def test_a_query_does_not_depend_on_its_batch() -> None:
    network = ConvNet(16, channels=(4, 8), dropout=0.0)
    images = torch.rand(5, 1, 28, 28)
    torch.testing.assert_close(network(images)[2:3], network(images[2:3]))


def test_dropout_acts_in_training_only() -> None:
    network, images = ConvNet(16, channels=(4, 8), dropout=0.5), torch.rand(2, 1, 28, 28)
    assert not torch.equal(network(images), network(images))
    network.eval()
    assert torch.equal(network(images), network(images))


def test_activations_keep_their_size() -> None:
    queries = ConvNet(dropout=0.0)(torch.rand(8, 1, 28, 28))
    assert 0.1 < queries.std() < 10


def test_gradients_reach_every_parameter() -> None:
    network = ConvNet(16, channels=(4, 8), dropout=0.0)
    network(torch.rand(4, 1, 28, 28)).square().sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in network.parameters())


@pytest.mark.parametrize("shape", [(2, 28, 28), (2, 3, 28, 28), (2, 1, 105, 105)])
def test_images_of_another_shape_are_refused(shape) -> None:
    with pytest.raises(ValueError, match=r"expected \(batch, 1, 28, 28\)"):
        ConvNet()(torch.zeros(shape))


def test_a_normalising_network_does_not_see_where_a_drawing_is() -> None:
    network = ConvNet(16, channels=(4, 8), dropout=0.0, radius=5.0)
    image = torch.zeros(1, 1, 28, 28)
    image[0, 0, 10:15, 9:19] = torch.rand(5, 10)
    queries = network(torch.cat([image, image.roll((-6, 4), (2, 3))]))
    torch.testing.assert_close(queries[0], queries[1], rtol=1e-4, atol=1e-4)
    assert ConvNet(**network.settings()).radius == 5.0


def test_images_are_scaled_to_one_radius() -> None:
    small, large = torch.zeros(2, 1, 1, 28, 28).unbind()
    small[..., 4:10, 16:22], large[..., 10:22, 3:15] = 1.0, 1.0
    small, large = normalise(small, radius=4.9), normalise(large, radius=4.9)
    torch.testing.assert_close(large[..., 8:20, 8:20], torch.ones(1, 1, 12, 12), rtol=0, atol=0.1)
    assert (small - large).abs().mean() < 0.05
    torch.testing.assert_close(normalise(torch.zeros(2, 1, 28, 28), radius=7.0), torch.zeros(2, 1, 28, 28))
