import pytest
import torch
from torch import Tensor

from rarecall import Memory, NeighbourAttention, Recall, RecallEmbedding, Trust
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


def test_nothing_is_trusted_where_nothing_is_known(memory) -> None:
    recall, logits = memory(unit(2, 4)), torch.randn(2, 5)
    assert torch.equal(Trust(4)(recall), torch.zeros(2))
    torch.testing.assert_close(Trust(4).mix(logits, recall), logits.log_softmax(-1))


def test_network_and_memory_are_mixed_as_far_as_the_memory_is_trusted(memory) -> None:
    teach(memory, unit(5, 4), ids(0, 3, 3, 1, 0))
    recall, logits, trust = memory(unit(6, 4)), torch.randn(6, 5), Trust(4)
    by = trust(recall)[:, None]
    weights = (1 - recall.similarities + 0.001) ** -4
    weights = weights / weights.sum(-1, keepdim=True)
    says = torch.stack([(weights * (recall.values == value)).sum(-1) for value in range(5)], -1)
    mixed = trust.mix(logits, recall).exp()
    torch.testing.assert_close(mixed, (1 - by) * logits.softmax(-1) + by * says)
    torch.testing.assert_close(mixed.sum(-1), torch.ones(6))
    trust.caution += 1
    assert (trust(recall) < by[:, 0]).all()


def fit(trust: Trust, says: Tensor, recall: Recall, right: Tensor, rate: float) -> None:
    optimizer = torch.optim.Adam(trust.parameters(), lr=rate)
    for _ in range(300):
        loss = trust.loss(says, recall, right).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def test_trust_learns_from_agreement_and_nearness_what_the_confidence_does_not_tell() -> None:
    memory = Memory(key_size=8, capacity=100, k=50)
    near = unit(1, 8)
    teach(memory, near + 0.001 * torch.randn(20, 8), torch.zeros(20).long())  # twenty that agree, none of them alone
    teach(memory, -near, ids(1))
    recall = memory(torch.cat((near.expand(8, -1), unit(200, 8))))
    assert recall.confidence[0] < 0.5
    # Where the memory is near it is right; elsewhere the right value is one that it does not hold.
    trust, right = Trust(8), torch.where(recall.similarities[:, 0] > 0.95, 0, 2)
    says = torch.full((208,), 0.1).log()
    fit(trust, says, recall, right, rate=0.01)
    assert trust(recall)[right == 0].min() > 0.9 > 0.1 > trust(recall)[right == 2].mean()


def test_trust_learns_from_the_query_where_the_memory_is_right() -> None:
    memory, trust = Memory(key_size=8, capacity=100, k=5), Trust(8)
    keys = unit(60, 8)
    memory.write(keys, torch.arange(60))
    # All are equally near, and alone with their value. The memory is right on one side of the space only.
    recall, inside = memory(keys), keys[:, 0] > 0
    right, says = torch.where(inside, torch.arange(60), 99), torch.full((60,), 0.1).log()
    fit(trust, says, recall, right, rate=0.02)
    assert trust(recall)[inside].mean() > 0.8 > 0.2 > trust(recall)[~inside].mean()


def test_trust_without_a_key_size_does_not_read_the_query() -> None:
    memory, trust = Memory(key_size=8, capacity=100, k=1), Trust()
    keys = unit(60, 8)
    memory.write(keys, torch.arange(60))
    recall, inside = memory(keys), keys[:, 0] > 0
    fit(trust, torch.full((60,), 0.1).log(), recall, torch.where(inside, torch.arange(60), 99), rate=0.02)
    torch.testing.assert_close(trust(recall), trust(recall)[:1].expand(60), rtol=0, atol=1e-3)


def test_by_the_loss_of_trust_the_query_learns_what_to_ask_and_the_network_nothing(memory) -> None:
    teach(memory, unit(5, 4), torch.arange(5))
    query, logits, trust = unit(2, 4).requires_grad_(), torch.randn(2, 5, requires_grad=True), Trust(4)
    recall, says = memory(query), logits.log_softmax(-1)[:, 0]
    second = recall.values[:, 1]
    trust.loss(says, recall, second).sum().backward()
    assert query.grad is not None
    nearer = memory((query - 0.1 * query.grad).detach())
    assert (trust.memory_prob(nearer, second) > trust.memory_prob(recall, second)).all()
    assert logits.grad is None
    assert all(weight.grad is not None for weight in trust.parameters())


def test_attention_to_neighbours_reads_keys_values_and_weights() -> None:
    memory = Memory(4, 20, k=6)
    memory.write(torch.randn(12, 4), torch.arange(12) % 3)
    layer = NeighbourAttention(4, values=3, size=8, neighbours=5, heads=2)
    query = torch.randn(2, 3, 4, requires_grad=True)
    read = layer(memory(query))
    assert read.shape == (2, 3, 8)
    read.square().sum().backward()
    assert (query.grad.flatten(0, 1).norm(dim=1) > 0).all()
    assert all(parameter.grad.abs().sum() > 0 for parameter in layer.parameters() if parameter.ndim > 1)


def test_attention_to_one_neighbour_is_its_value() -> None:
    memory = Memory(4, 20)
    memory.write(torch.eye(4), torch.arange(4))
    layer = NeighbourAttention(4, values=4, size=8, neighbours=1)
    expected = layer.result(layer.embedding(torch.arange(4)))
    torch.testing.assert_close(layer(memory(torch.eye(4) + 0.01)), expected)


def test_attention_where_memory_knew_nothing_is_zero() -> None:
    layer, memory = NeighbourAttention(4, values=4, size=8, neighbours=9), Memory(4, 20, k=3)
    assert (layer(memory(torch.randn(2, 4))) == 0).all()
    recall = memory(torch.randn(2, 4))
    memory.write(torch.eye(4)[:2], torch.tensor([0, 9]))
    with pytest.raises(ValueError, match="out of date"):
        layer(recall)
    with pytest.raises(ValueError, match="the value 9; it has 4 embeddings"):
        layer(memory(torch.randn(2, 4)))
    with pytest.raises(ValueError, match="size=9, heads=4"):
        NeighbourAttention(4, values=4, size=9)
