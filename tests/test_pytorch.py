"""Memory fits PyTorch."""

import copy
import io

import pytest
import torch
from torch import nn

from rarecall import Memory, MemoryClassifier
from tests.helpers import assert_same, ids, snapshot, teach, train, unit


@pytest.fixture(params=["exact", "lsh"])
def memory(request) -> Memory:
    memory = Memory(key_size=16, capacity=50, k=5, search=request.param)
    train(memory, 30, seed=0)
    return memory


def go_on(memory: Memory) -> dict[str, torch.Tensor]:
    train(memory, 30, seed=1)
    return snapshot(memory)


def test_a_state_dict_holds_everything(memory) -> None:
    resumed = Memory(key_size=16, capacity=50, k=5, search=type(memory.search)(16, 50))
    resumed.load_state_dict(memory.state_dict())
    assert_same(snapshot(memory), snapshot(resumed))
    assert_same(go_on(memory), go_on(resumed))


def test_a_state_dict_within_a_network_loads_too(memory) -> None:
    network = MemoryClassifier(nn.Linear(3, 16), memory)
    file = io.BytesIO()
    torch.save(network.state_dict(), file)
    file.seek(0)
    other = MemoryClassifier(nn.Linear(3, 16), Memory(16, 50, k=5, search=type(memory.search)(16, 50)))
    other.load_state_dict(torch.load(file, weights_only=True))
    assert_same(go_on(network.memory), go_on(other.memory))


def test_deepcopy_is_a_memory_of_its_own(memory) -> None:
    before = snapshot(memory)
    other = copy.deepcopy(memory)
    after = go_on(other)
    assert_same(before, snapshot(memory))
    assert_same(after, go_on(memory))
    with pytest.raises(ValueError, match="another memory"):
        other.update(memory(unit(1, 16)), ids(1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_any_floating_type_may_ask(memory, dtype) -> None:
    query = unit(4, 16).to(dtype).requires_grad_()
    recall = memory(query)
    assert recall.similarities.dtype == torch.float32
    memory.loss(recall, ids(1, 2, 3, 4)).backward()
    assert query.grad.dtype == dtype
    memory.update(recall, ids(1, 2, 3, 4))
    assert memory.keys.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_any_integer_type_may_be_a_value(memory, dtype) -> None:
    other, query, numbers = copy.deepcopy(memory), unit(6, 16), torch.tensor([[0, 1, 2], [40, 41, 42]])
    for each, ids_given in ((memory, numbers), (other, numbers.to(dtype))):
        recall = each(query.view(2, 3, 16), exclude=ids_given)
        each.loss(recall, ids_given)
        each.update(recall, ids_given, source=ids_given, generator=torch.Generator().manual_seed(0))
    assert_same(snapshot(memory), snapshot(other))
    assert torch.equal(
        memory.loss(memory(query), numbers.view(-1)), other.loss(other(query), numbers.view(-1).to(dtype))
    )


@pytest.mark.parametrize("convert", [nn.Module.half, nn.Module.bfloat16, lambda module: module.to(torch.float16)])
def test_a_network_of_half_precision_keeps_its_keys(memory, convert) -> None:
    before = snapshot(memory)
    network = convert(nn.Sequential(nn.Linear(3, 16), memory))
    assert network[0].weight.dtype != torch.float32
    assert_same(before, snapshot(memory))
    train(memory, 5, seed=2)


def test_autocast_does_not_round_similarities(memory) -> None:
    query = unit(8, 16)
    expected = memory(query)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        recall = memory(query)
        loss = memory.loss(recall, torch.full((8,), 3))
    assert torch.equal(recall.similarities, expected.similarities)
    assert torch.equal(loss, memory.loss(expected, torch.full((8,), 3)))


def test_autocast_does_not_change_what_an_update_leaves(memory) -> None:
    """Of a search too: a hash of rounded keys would be another than that of the query that looks for them."""
    other = copy.deepcopy(memory)
    train(memory, 10, seed=5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        train(other, 10, seed=5)
    assert_same(snapshot(memory), snapshot(other))


def test_inference_mode_leaves_a_memory_that_learns_on(memory) -> None:
    with torch.inference_mode():
        train(memory, 30, seed=3)
        memory.forget(value=1)
    train(memory, 30, seed=4)


# torch.compile itself does what torch warns of.
@pytest.mark.filterwarnings("ignore")
def test_a_compiled_training_step_does_what_the_plain_one_does() -> None:
    def run(compiled: bool) -> tuple[dict[str, torch.Tensor], list[torch.Tensor]]:
        torch.manual_seed(0)
        network, memory = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 8)), Memory(8, 20, k=4)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)

        def step(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            recall = memory(network(x))
            loss = memory.loss(recall, target)
            memory.update(recall, target)
            return loss

        run_step = torch.compile(step) if compiled else step
        for _ in range(5):
            loss = run_step(torch.randn(7, 6), torch.randint(3, (7,)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return snapshot(memory), [p.detach().clone() for p in network.parameters()]

    (plain, weights), (compiled, compiled_weights) = run(False), run(True)
    torch.testing.assert_close(compiled, plain)
    torch.testing.assert_close(compiled_weights, weights)


@pytest.mark.filterwarnings("ignore")
def test_compiled_code_reads_a_recall_that_has_no_gradient() -> None:
    memory = Memory(8, 20, k=4)
    teach(memory, unit(12, 8), torch.arange(12))

    @torch.no_grad()
    def answer(query: torch.Tensor) -> tuple[torch.Tensor, ...]:
        recall = memory(2 * query)
        return recall.value + 1, 2 * recall.confidence, recall.slots

    query = unit(3, 8)
    torch.testing.assert_close(torch.compile(answer)(query), answer(query))


def test_its_repr_shows_settings_and_how_full_it_is() -> None:
    memory = Memory(key_size=4, capacity=10, k=3, search="lsh")
    teach(memory, torch.eye(4), ids(1, 2, 3, 4))
    text = repr(memory)
    assert "key_size=4, capacity=10, k=3, margin=0.1" in text
    assert "filled=4 (40%)" in text
    assert "LSHSearch(tables=" in text
