import copy

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from rarecall import Memory, native, native_rules, neighbours, rules
from tests.helpers import ids, teach, train, unit


@pytest.fixture
def memory() -> Memory:
    memory = Memory(key_size=12, capacity=60, k=9)
    train(memory, 30, seed=0)
    return memory


def recall_natively(query, slots, exclude, memory) -> tuple[torch.Tensor, ...]:
    found = native.loaded().ask(memory.key_size, memory.k, query, exclude)
    native_rules.recall(found, slots, memory)
    return found.slots, found.similarities, found.values, found.weights


def gradient(recall, query) -> torch.Tensor:
    """A gradient that goes through every similarity and every weight."""
    everything = recall.similarities.isfinite()
    total = recall.similarities[everything].square().sum() + (recall.weights * torch.arange(9.0)).sum()
    return torch.autograd.grad(total, query)[0]


CHANGES = {
    "updates": lambda memory: train(memory, 3, seed=1),
    "many updates": lambda memory: train(memory, 200, seed=1),
    "forget": lambda memory: memory.forget(slots=memory(unit(5, 12)).slots.flatten()),
    "reset": lambda memory: memory.reset(),
    "reset and updates": lambda memory: (memory.reset(), train(memory, 20, seed=2)),
    "load": lambda memory: memory.load_state_dict({name: -t for name, t in copy.deepcopy(memory).state_dict().items()}),
    "double": lambda memory: memory.double(),
}


class TestTheGradient:
    @pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
    @pytest.mark.parametrize("extension", [True, False])
    def test_is_of_the_keys_as_they_were(self, memory, change, extension, monkeypatch) -> None:
        query = unit(7, 12).requires_grad_()
        expected = gradient(memory(query), query)
        recall = memory(query)
        change(memory)
        if not extension:
            monkeypatch.setattr(neighbours, "extension", lambda: None)
        assert torch.allclose(gradient(recall, query), expected, atol=1e-5)

    def test_of_several_recalls_between_updates(self, memory) -> None:
        query = unit(7, 12).requires_grad_()
        recalls, expected = [], []
        for step in range(4):
            expected.append(gradient(memory(query), query))
            recalls.append(memory(query))
            train(memory, 2, seed=step)
        assert not torch.equal(expected[0], expected[1])
        for recall, right in zip(recalls, expected, strict=True):
            assert torch.equal(gradient(recall, query), right)

    def test_no_more_is_kept_than_was_found(self, memory) -> None:
        query = unit(2, 12).requires_grad_()
        recall = memory(query)
        [known] = memory.histories.open
        history = known()
        train(memory, 2000, seed=1)
        assert len(history._slots) <= recall.slots.numel()
        assert sum(len(slots) for slots, _ in history._changes) <= 1024
        del recall, history
        assert not memory.histories.open

    def test_nothing_is_kept_without_a_gradient(self, memory) -> None:
        recall = memory(unit(2, 12))
        with torch.no_grad():
            other = memory(unit(2, 12).requires_grad_())
        assert not memory.histories.open
        assert not recall.weights.requires_grad
        assert not other.weights.requires_grad

    def test_a_copy_has_no_gradients_to_come(self, memory) -> None:
        query = unit(2, 12).requires_grad_()
        recall = memory(query)
        assert not copy.deepcopy(memory).histories.open
        assert len(memory.histories.open) == 1
        assert recall.weights.requires_grad


needs_extension = pytest.mark.skipif(native.extension() is None, reason="the extension was not built")


@needs_extension
@given(
    n=st.integers(0, 9),
    found=st.integers(0, 20),
    key_size=st.sampled_from([1, 3, 8, 33]),
    k=st.integers(1, 20),
    excluding=st.booleans(),
    equal=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_the_extension_finds_the_neighbours_that_torch_finds(n, found, key_size, k, excluding, equal, seed) -> None:
    torch.manual_seed(seed)
    memory = Memory(key_size, 50, k=k)
    memory.keys.copy_(unit(50, key_size))
    if equal:
        memory.keys[10:30] = memory.keys[30]
    memory.values.copy_(torch.randint(-1, 5, (50,)))
    memory.sources.copy_(torch.randint(-1, 5, (50,)))
    query = unit(n, key_size)
    slots = torch.rand(n, 50).argsort(1)[:, : min(found, k)]
    slots = slots.masked_fill(torch.rand(slots.shape) < 0.2, -1)
    exclude = torch.randint(-1, 5, (n,)) if excluding else None
    by_torch = rules.recall(query, slots, exclude, memory)
    by_extension = recall_natively(query, slots, exclude, memory)
    for expected, tensor in zip(by_torch, by_extension, strict=True):
        assert expected.shape == tensor.shape == (n, k)
        assert expected.dtype == tensor.dtype
    # Where torch rounds one of two equal similarities otherwise, their order may differ.
    assert torch.allclose(by_torch[1], by_extension[1], atol=1e-6)
    assert torch.allclose(by_torch[3], by_extension[3], atol=1e-4)
    assert torch.equal(by_torch[0].sort().values, by_extension[0].sort().values)
    there = by_extension[0] >= 0
    assert torch.equal(by_extension[2][there], memory.values[by_extension[0][there]])
    assert (by_extension[2][~there] == -1).all()


@needs_extension
@pytest.mark.parametrize("inverse_temperature", [0.01, 40, 1000])
def test_weights_of_the_extension_are_a_softmax(inverse_temperature) -> None:
    memory = Memory(8, 500, k=300, inverse_temperature=inverse_temperature)
    memory.keys.copy_(unit(500, 8))
    memory.values.copy_(torch.arange(500))
    for found in (1, 7, 8, 300):
        slots = torch.rand(20, 500).argsort(1)[:, :found]
        _, similarities, _, weights = recall_natively(unit(20, 8), slots, None, memory)
        expected = (inverse_temperature * similarities.double()).softmax(1)
        torch.testing.assert_close(weights.double(), expected, rtol=2e-5, atol=1e-30)
        assert (weights[:, found:] == 0).all()


@needs_extension
@pytest.mark.parametrize("spread", [0, 1e-6, 1e-3, 1])
def test_the_extension_sorts_by_similarity_and_then_by_slot(spread) -> None:
    """Of many equally similar slots, too, and of such as hardly differ; above and below 0."""
    memory = Memory(2, 3000, k=3000)
    angles = torch.randint(40, (3000,)) * spread + 1.5
    memory.keys.copy_(torch.stack([angles.cos(), angles.sin()], 1))
    memory.values.copy_(torch.arange(3000))
    slots, similarities, values, _ = recall_natively(torch.eye(2), torch.rand(2, 3000).argsort(1), None, memory)
    for row in range(2):
        found = list(zip((-similarities[row]).tolist(), slots[row].tolist(), strict=True))
        assert found == sorted(found)
    assert torch.equal(slots.sort().values, torch.arange(3000).expand(2, -1))
    assert torch.equal(values, slots)


def filled(capacity: int, taught: int, values: int) -> Memory:
    memory = Memory(key_size=5, capacity=capacity, k=4, age_noise=0.0)  # the two draw other noise
    for _ in range(taught):
        memory.update(memory(unit(2, 5)), torch.randint(0, values, (2,)), source=torch.randint(0, 5, (2,)))
    return memory


@needs_extension
@given(
    n=st.integers(0, 12),
    values=st.integers(1, 4),
    taught=st.integers(0, 12),
    capacity=st.integers(12, 20),
    sources=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_the_extension_updates_as_torch_does(n, values, taught, capacity, sources, seed) -> None:
    torch.manual_seed(seed)
    memory = filled(capacity, taught, values)
    memory.forget(value=0)
    other = copy.deepcopy(memory)
    query = unit(n, 5)
    query[torch.rand(n) < 0.02] = 0.0
    known = min(len(memory), 3)
    nearest = (
        (memory.values >= 0).nonzero().squeeze(1)[torch.randint(0, known, (n,))] if known else torch.full((n,), -1)
    )
    answer = memory.values[nearest] if known else nearest
    opposite = (torch.rand(n) < 0.1) & (nearest >= 0)
    query[opposite] = -memory.keys[nearest[opposite]]
    target = torch.where((torch.rand(n) < 0.5) & (answer >= 0), answer, torch.randint(0, values, (n,)))
    source = torch.randint(-1, 9, (n,)) if sources else None

    def change(update, memory) -> torch.Tensor | str:
        try:
            slots, values = nearest[:, None].expand(n, memory.k), answer[:, None].expand(n, memory.k)
            rows = query, slots, torch.zeros(n, memory.k), values, None
            return update(memory, rows, target, source, torch.Generator().manual_seed(seed % 2**32))
        except ValueError as error:
            return str(error)

    by_torch, by_extension = change(rules.update, memory), change(native_rules.update, other)
    if isinstance(by_torch, str):
        assert by_extension == by_torch
    else:
        assert torch.equal(by_torch, by_extension)
    for name, tensor in memory.state_dict().items():
        if name == "keys":  # a sum that nearly cancels has a direction of rounding errors
            others = torch.ones(capacity, dtype=torch.bool).index_fill_(0, nearest[opposite], False)
            assert torch.allclose(tensor[others], other.keys[others], atol=1e-4)
        else:
            assert torch.equal(tensor, other.state_dict()[name]), name
    assert other.clock.used == memory.clock.used
    assert len(other) == len(memory)


@needs_extension
def test_the_extension_draws_the_slot_to_be_written_as_the_formula_does() -> None:
    """The slot of the largest age + r, r in [0, 2.5), of four that are 3, 2, 1 and 0 updates old."""
    memory = Memory(key_size=4, capacity=4, k=1, age_noise=2.5)
    for value, key in enumerate(torch.eye(4)):
        teach(memory, key[None], ids(value))
    trials, counts = 1500, torch.zeros(4)
    for _ in range(trials):
        other = copy.deepcopy(memory)
        teach(other, -torch.ones(1, 4), ids(9))
        counts[other.values == 9] += 1
    direct = (torch.tensor([3, 2, 1, 0]) + 2.5 * torch.rand(200_000, 4)).argmax(1).bincount(minlength=4) / 200_000
    deviation = (direct * (1 - direct) / trials).sqrt()
    assert ((counts / trials - direct).abs() <= 4 * deviation + 1e-9).all()


@needs_extension
@given(
    n=st.integers(0, 9),
    values=st.integers(1, 6),
    taught=st.integers(0, 9),
    masked=st.booleans(),
    excluding=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_the_extension_has_the_loss_and_gradient_of_torch(n, values, taught, masked, excluding, seed) -> None:
    torch.manual_seed(seed)
    memory = filled(20, taught, values)
    query = unit(n, 5).requires_grad_()
    exclude = torch.randint(-1, 5, (n,)) if excluding else None
    recall = memory(query, exclude=exclude)
    mask = torch.rand(n) < 0.7 if masked else None
    target = torch.randint(0, values + 1, (n,))
    parts = recall.rows(), target, mask, memory
    by_torch, by_extension = rules.margin_loss(*parts), native_rules.margin_loss(*parts)
    torch.testing.assert_close(by_torch, by_extension)
    gradients = [
        torch.autograd.grad(loss, query, retain_graph=True, allow_unused=True)[0] for loss in (by_torch, by_extension)
    ]
    torch.testing.assert_close(*gradients)


def test_with_room_for_gradients_or_without_all_is_the_same(memory) -> None:
    memory = filled(20, 15, 4)
    query, target = unit(30, 5), torch.randint(0, 5, (30,))
    plain, differentiable = memory(query), memory(query.clone().requires_grad_())
    for name in ("query", "slots", "similarities", "values", "weights"):
        assert torch.equal(getattr(plain, name), getattr(differentiable, name).detach())
    loss, differentiable_loss = memory.loss(plain, target), memory.loss(differentiable, target)
    assert torch.equal(loss, differentiable_loss.detach())
    assert not loss.requires_grad
    assert differentiable_loss.requires_grad
    with torch.no_grad():
        assert not memory(query.clone().requires_grad_()).similarities.requires_grad


def test_two_queries_in_opposite_directions_leave_the_key(memory) -> None:
    memory = Memory(key_size=2, capacity=4, k=1)
    teach(memory, torch.tensor([[1.0, 0.0]]), ids(3))
    teach(memory, torch.tensor([[0.6, 0.8], [0.6, -0.8]]), ids(3, 3))
    assert torch.allclose(memory.keys[0], torch.tensor([1.0, 0.0]))
