import pytest
import torch

from rarecall import Memory, Recall
from tests.helpers import ids, teach, unit


@pytest.fixture
def memory() -> Memory:
    memory = Memory(key_size=4, capacity=8, k=3)
    teach(memory, torch.eye(4), ids(5, 6, 7, 8), source=ids(1, 2, 3, 4))
    return memory


def test_the_steps_of_a_decoder_become_one_recall(memory) -> None:
    query = unit(2, 5, 4)  # (batch, time, key_size)
    steps = [memory(query[:, t]) for t in range(5)]
    stacked = Recall.stack(steps, dim=1)
    whole = memory(query)
    for name in ("query", "slots", "similarities", "values", "weights", "value", "confidence"):
        torch.testing.assert_close(getattr(stacked, name), getattr(whole, name))
    assert stacked.exclude is None
    target = torch.randint(5, 9, (2, 5))
    torch.testing.assert_close(memory.loss(stacked, target), memory.loss(whole, target))
    memory.update(stacked, target)


def test_gradients_flow_through_a_stack(memory) -> None:
    query = unit(3, 2, 4).requires_grad_()
    loss = memory.loss(Recall.stack([memory(q) for q in query], dim=0), torch.full((3, 2), 5))
    loss.backward()
    assert query.grad.abs().sum() > 0


@pytest.mark.parametrize(("dim", "shape"), [(0, (5, 2)), (1, (2, 5)), (-1, (2, 5)), (-2, (5, 2))])
def test_dim_counts_the_leading_dimensions(memory, dim, shape) -> None:
    stacked = Recall.stack([memory(unit(2, 4), exclude=ids(1, 2)) for _ in range(5)], dim=dim)
    assert stacked.value.shape == stacked.exclude.shape == shape
    assert stacked.slots.shape == (*shape, 3)


def test_errors(memory) -> None:
    with pytest.raises(ValueError, match="no recalls"):
        Recall.stack([])
    recall = memory(unit(2, 4))
    with pytest.raises(ValueError, match=r"dim=2; recalls of shape \(2,\) stack along -2\.\.1"):
        Recall.stack([recall], dim=2)
    with pytest.raises(ValueError, match=r"\(2,\), recall 1 has \(3,\)"):
        Recall.stack([recall, memory(unit(3, 4))])
    with pytest.raises(ValueError, match="`exclude` in all or in none"):
        Recall.stack([recall, memory(unit(2, 4), exclude=ids(1, 2))])
    teach(memory, unit(1, 4), ids(1))
    with pytest.raises(ValueError, match="different memories or times: recall 1"):
        Recall.stack([recall, memory(unit(2, 4))])
