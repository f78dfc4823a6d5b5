import copy

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


NAMES = ("query", "slots", "similarities", "values", "weights", "value", "confidence")


@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 5, 4), (0, 4), (2, 0, 4)])
def test_it_is_the_same_with_and_without_a_gradient(memory, shape) -> None:
    query = unit(*shape)
    with_gradient, without = memory(query.clone().requires_grad_()), memory(query)
    for name in NAMES:
        tensor, expected = getattr(without, name), getattr(with_gradient, name)
        assert torch.equal(tensor, expected.detach())
        assert tensor.shape == (shape[:-1] if name in ("value", "confidence") else (*shape[:-1], tensor.shape[-1]))
        assert getattr(without, name) is tensor or name in ("value", "confidence")  # made once
        assert name in repr(without) or name in ("value", "confidence")
    target = torch.randint(5, 9, shape[:-1])
    torch.testing.assert_close(memory.loss(without, target), memory.loss(with_gradient, target).detach())


def test_its_tensors_outlive_it_and_the_next_recalls(memory) -> None:
    query = unit(3, 4)
    value, weights = memory(query).value, memory(query).weights
    expected = value.clone(), weights.clone()
    for _ in range(50):
        memory(unit(3, 4))
    assert torch.equal(value, expected[0])
    assert torch.equal(weights, expected[1])


def test_a_copy_has_tensors_of_its_own(memory) -> None:
    recall = memory(unit(2, 3, 4), exclude=torch.ones(2, 3, dtype=torch.int64))
    other = copy.copy(recall)
    for name in (*NAMES, "exclude"):
        assert torch.equal(getattr(copy.deepcopy(recall), name), getattr(recall, name))
        assert torch.equal(getattr(other, name), getattr(recall, name))
    memory.update(other, torch.full((2, 3), 5))


def test_there_is_nothing_else_in_it(memory) -> None:
    with pytest.raises(AttributeError, match="no attribute 'key'"):
        _ = memory(unit(1, 4)).key


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
    with pytest.raises(ValueError, match=r"recall 1 .*one memory that was not updated"):
        Recall.stack([recall, memory(unit(2, 4))])
