import pytest
import torch

from rarecall import Memory, RecallEmbedding
from tests.helpers import ids, teach, unit


@pytest.fixture
def memory() -> Memory:
    return Memory(key_size=4, capacity=8, k=3)


def test_the_value_is_embedded_and_multiplied_by_the_confidence(memory) -> None:
    teach(memory, unit(5, 4), torch.arange(5))
    layer = RecallEmbedding(values=5, size=6)
    recall = memory(unit(2, 3, 4))
    assert layer(recall).shape == (2, 3, 6)
    torch.testing.assert_close(layer(recall), layer.embedding.weight[recall.value] * recall.confidence[..., None])


def test_what_is_not_known_is_zero(memory) -> None:
    assert torch.equal(RecallEmbedding(5, 6)(memory(unit(2, 4))), torch.zeros(2, 6))


def test_gradients_reach_the_embedding_and_the_query(memory) -> None:
    teach(memory, unit(5, 4), torch.arange(5))
    layer, query = RecallEmbedding(5, 6), unit(2, 4).requires_grad_()
    layer(memory(query)).square().sum().backward()
    assert layer.embedding.weight.grad.abs().sum() > 0
    assert query.grad.abs().sum() > 0


def test_a_value_without_an_embedding_is_an_error(memory) -> None:
    teach(memory, unit(1, 4), ids(5))
    with pytest.raises(ValueError, match="value 5; it has 5 embeddings"):
        RecallEmbedding(5, 6)(memory(unit(1, 4)))


def test_an_embedding_can_be_shared() -> None:
    shared = torch.nn.Embedding(7, 5)
    layer = RecallEmbedding(7, 5, shared)
    assert [id(weight) for weight in layer.parameters()] == [id(shared.weight)]
    with pytest.raises(ValueError, match=r"shape \(7, 5\); expected \(8, 5\)"):
        RecallEmbedding(8, 5, shared)
