"""Gradients from a recall back to its queries, though the memory has changed meanwhile."""

import copy

import pytest
import torch

from rarecall import Memory, Recall
from tests.helpers import train, unit


@pytest.fixture
def memory(new_memory) -> Memory:
    memory = new_memory(key_size=12, capacity=60, k=9)
    train(memory, 30, seed=0)
    return memory


def gradient(recall: Recall, query: torch.Tensor) -> torch.Tensor:
    """A gradient that goes through every normalised query, every similarity and every weight."""
    there = recall.similarities.isfinite()
    total = recall.similarities[there].square().sum() + (recall.weights * torch.arange(9.0)).sum()
    return torch.autograd.grad(total + recall.query[:, 0].sum(), query)[0]


def load_other_keys(memory: Memory) -> None:
    state = copy.deepcopy(memory.state_dict())
    memory.load_state_dict(state | {"keys": -state["keys"]})


CHANGES = {
    "updates": lambda memory: train(memory, 3, seed=1),
    "many updates": lambda memory: train(memory, 200, seed=1),
    "write": lambda memory: memory.write(unit(60, 12), torch.arange(60)),
    "forget": lambda memory: memory.forget(slots=memory(unit(5, 12)).slots.flatten()),
    "reset": lambda memory: memory.reset(),
    "reset and updates": lambda memory: (memory.reset(), train(memory, 20, seed=2)),
    "load": load_other_keys,
    "another type": lambda memory: memory.double() if memory.keys.dtype == torch.float32 else memory.float(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_it_is_of_the_keys_as_they_were(memory, change) -> None:
    query = unit(7, 12).requires_grad_()
    expected = gradient(memory(query), query)
    recall = memory(query)
    change(memory)
    assert torch.allclose(gradient(recall, query), expected, atol=1e-5)


def test_it_is_that_of_the_formula(memory) -> None:
    query = unit(7, 12).requires_grad_()
    recall = memory(query)
    keys = memory.keys[recall.slots].float()
    unit_query = torch.nn.functional.normalize(query, dim=1)
    similarities = (unit_query[:, None] * keys).sum(2)
    weights = (memory.inverse_temperature * similarities).softmax(1)
    total = similarities.square().sum() + (weights * torch.arange(9.0)).sum() + unit_query[:, 0].sum()
    expected = torch.autograd.grad(total, query)[0]
    torch.testing.assert_close(gradient(recall, query), expected, atol=2e-4, rtol=1e-3)


def test_of_several_recalls_between_updates(memory) -> None:
    query = unit(7, 12).requires_grad_()
    recalls, expected = [], []
    for step in range(4):
        expected.append(gradient(memory(query), query))
        recalls.append(memory(query))
        train(memory, 2, seed=step)
    assert not torch.equal(expected[0], expected[1])
    for recall, right in zip(recalls, expected, strict=True):
        assert torch.equal(gradient(recall, query), right)


def test_no_more_is_kept_than_was_found(memory) -> None:
    query = unit(2, 12).requires_grad_()
    recall = memory(query)
    history = recall.history
    train(memory, 1000, seed=1)
    assert len(history._slots) <= recall.slots.numel()
    assert sum(len(slots) for slots, _ in history._changes) <= 1024
    assert len(memory._state.followers) == 1
    del recall, history
    assert not memory._state.followers


def test_nothing_is_kept_without_a_gradient(memory) -> None:
    recall = memory(unit(2, 12))
    with torch.no_grad():
        other = memory(unit(2, 12).requires_grad_())
    assert not memory._state.followers
    for each in (recall, other):
        assert each.history is None
        assert not each.weights.requires_grad


def test_a_copy_has_no_gradients_to_come(memory) -> None:
    query = unit(2, 12).requires_grad_()
    recall = memory(query)
    assert not copy.deepcopy(memory)._state.followers
    assert len(memory._state.followers) == 1
    assert recall.weights.requires_grad


def test_with_a_gradient_and_without_all_numbers_are_the_same(memory) -> None:
    query, target = unit(30, 12), torch.randint(25, (30,))
    plain, differentiable = memory(query), memory(query.clone().requires_grad_())
    for name in ("query", "slots", "similarities", "values", "weights"):
        assert torch.equal(getattr(plain, name), getattr(differentiable, name).detach())
    loss, differentiable_loss = memory.loss(plain, target), memory.loss(differentiable, target)
    assert torch.equal(loss, differentiable_loss.detach())
    assert not loss.requires_grad
    assert differentiable_loss.requires_grad
