"""Memory fits PyTorch."""

import contextlib
import copy
import io

import pytest
import torch
from torch import nn

from rarecall import Memory, MemoryClassifier
from tests.helpers import SEARCHES, assert_same, check_found, ids, snapshot, teach, train, unit
from tests.processes import in_a_process


@pytest.fixture(params=["exact", "hash"])
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
    memory = Memory(key_size=4, capacity=10, k=3, search="hash")
    teach(memory, torch.eye(4), ids(1, 2, 3, 4))
    text = repr(memory)
    assert "key_size=4, capacity=10, k=3, margin=0.1" in text
    assert "filled=4 (40%)" in text
    assert "HashSearch(tables=" in text


@pytest.mark.parametrize("search", SEARCHES)
class TestOfEveryBackend:
    def test_a_full_memory_first_taught_in_inference_mode_learns_on_outside_it(self, new_memory, search) -> None:
        memory = new_memory(16, 40, k=4, search=search)
        with torch.inference_mode():
            for _ in range(3):
                teach(memory, unit(40, 16), torch.arange(40))
            memory.forget(value=3)
        check_found(memory)
        query = unit(5, 16).requires_grad_()
        recall = memory(query)
        memory.loss(recall, torch.arange(5)).backward()
        memory.update(recall, torch.arange(5))
        train(memory, 30, seed=4)
        memory.forget(value=1)
        with torch.inference_mode():
            train(memory, 10, seed=5)
        train(memory, 10, seed=6)
        check_found(memory)

    @pytest.mark.parametrize("made_before", [True, False])
    def test_the_default_type_of_torch_changes_nothing(self, new_memory, search, made_before) -> None:
        dtype = new_memory(16, 40).keys.dtype
        before = torch.get_default_dtype()
        try:
            memory = new_memory(16, 40, k=4, search=search) if made_before else None
            torch.set_default_dtype(torch.float64)
            memory = memory or new_memory(16, 40, k=4, search=search)
            train(memory, 20, seed=0)
            teach(memory, unit(5, 16).float(), torch.arange(5))
            assert memory.keys.dtype == dtype
            query = unit(5, 16).requires_grad_()
            recall = memory(query)
            assert recall.similarities.dtype == recall.weights.dtype == dtype
            memory.loss(recall, torch.arange(5)).backward()
            memory.update(recall, torch.arange(5))
            memory.write(unit(2, 16), ids(1, 2))
            check_found(memory)
        finally:
            torch.set_default_dtype(before)

    @pytest.mark.parametrize("other", [{"key_size": 12}, {"capacity": 30}, {"capacity": 50}])
    def test_a_state_dict_of_another_size_changes_nothing(self, new_memory, search, other) -> None:
        settings = {"key_size": 16, "capacity": 40, "k": 4, "search": search}
        memory, source = new_memory(**settings), new_memory(**(settings | other))
        train(memory, 10, seed=0)
        train(source, 10, seed=1)
        before = {name: getattr(memory, name).clone() for name in BUFFERS}
        for strict in (True, False):
            with pytest.raises(RuntimeError, match="size mismatch"):
                memory.load_state_dict(source.state_dict(), strict=strict)
            for name, tensor in before.items():
                assert torch.equal(getattr(memory, name), tensor), name
            check_found(memory)
        train(memory, 10, seed=2)
        check_found(memory)

    @pytest.mark.parametrize(
        ("name", "row"),
        [
            ("keys", float("nan")),
            ("keys", 1e35),
            ("values", -2),
            ("counts", -1),
            ("times", 2**63 - 1),
            ("sources", -2),
            ("now", -1),
        ],
    )
    def test_a_state_dict_that_cannot_be_is_refused(self, new_memory, search, name, row) -> None:
        memory = new_memory(16, 40, k=4, search=search)
        train(memory, 10, seed=0)
        good = copy.deepcopy(memory.state_dict())
        bad = copy.deepcopy(good)
        bad[name].view(-1)[0] = row

        def load_and_ask() -> None:
            memory.load_state_dict(bad)
            memory(unit(2, 16))

        with pytest.raises((ValueError, RuntimeError), match=name.removesuffix("s")):
            load_and_ask()
        memory.load_state_dict(good)
        check_found(memory)

    def test_part_of_a_state_dict_is_taken_in(self, new_memory, search) -> None:
        memory = new_memory(16, 40, k=4, search=search)
        teach(memory, unit(30, 16), torch.arange(30))
        memory(unit(2, 16))
        values = memory.values.clone()
        values[:30] = torch.arange(100, 130)
        memory.load_state_dict({"values": values}, strict=False)
        assert torch.equal(memory(memory.keys[:30]).value, values[:30])
        keys = memory.keys.clone()
        keys[:30] = keys[:30].flip(0)
        memory.load_state_dict({"keys": keys}, strict=False)
        assert torch.equal(memory(keys[:30]).value, values[:30])
        memory.loss(memory(unit(2, 16)), ids(100, 101))
        check_found(memory)

    def test_an_averaged_model_has_the_memory_of_the_model(self, new_memory, search) -> None:
        network = MemoryClassifier(nn.Linear(3, 16), new_memory(16, 40, k=4, search=search))
        averaged = torch.optim.swa_utils.AveragedModel(network)
        for seed in range(3):
            train(network.memory, 5, seed=seed)
            averaged.update_parameters(network)
            memory = averaged.module.memory
            assert len(memory) == len(network.memory) > 0
            if search != "auto":  # whose lists depend on the order in which keys came
                query = unit(6, 16)
                assert torch.equal(memory(query).slots, network.memory(query).slots)
            assert torch.equal(memory.ages, network.memory.ages)
            check_found(memory)
        train(memory, 5, seed=9)
        check_found(memory)


BUFFERS = ("keys", "values", "sources", "counts", "times", "now")


def convert_often(search: str) -> None:
    memory = Memory(16, 10_500, k=4, search=search)
    for start in range(0, 9000, 1000):
        teach(memory, unit(1000, 16), torch.arange(start, start + 1000))
    keys = memory.keys.clone()
    for convert in (nn.Module.half, nn.Module.float, nn.Module.bfloat16, nn.Module.float, nn.Module.half):
        convert(memory)
        assert memory.keys.dtype == torch.float32
        assert torch.equal(memory.keys[:9000], keys[:9000])
        teach(memory, unit(100, 16), torch.arange(100))
        check_found(memory, share=1.0 if search == "exact" else 0.95)
        keys = memory.keys.clone()
    memory.double()
    teach(memory, unit(100, 16), torch.arange(100))
    memory.float()
    teach(memory, unit(100, 16), torch.arange(100))
    check_found(memory, share=1.0 if search == "exact" else 0.95)


@pytest.mark.parametrize("search", SEARCHES)
def test_conversions_there_and_back_leave_a_memory_that_works(search) -> None:
    in_a_process(convert_often, search)


def load_the_search_alone(search: str) -> None:
    memory, other = Memory(16, 9500, k=4, search=search), Memory(16, 9500, k=4, search=search)
    for each, filled in ((memory, 9000), (other, 8500)):
        each.write(unit(filled, 16), torch.arange(filled))
        each(unit(3, 16))
    for state in (other.search.state_dict(), memory.search.state_dict()):
        with contextlib.suppress(RuntimeError, ValueError):
            memory.search.load_state_dict(state)
        for _ in range(3):
            teach(memory, unit(100, 16), torch.arange(100))
            check_found(memory, share=1.0 if search == "exact" else 0.95)


@pytest.mark.parametrize("search", SEARCHES)
def test_the_state_of_another_memorys_search_does_no_harm(search) -> None:
    in_a_process(load_the_search_alone, search)


def ask_for_too_many_neighbours() -> None:
    for k in (2**61, 2**63 - 1, 2**64):
        with pytest.raises(ValueError, match="k="):
            Memory(4, 8, k=k)(unit(2, 4))
    memory = Memory(4, 8, k=1000)  # more than there are slots is fine
    teach(memory, torch.eye(4), ids(1, 2, 3, 4))
    assert memory(torch.eye(4)).values[:, :1].tolist() == [[1], [2], [3], [4]]


def test_more_neighbours_than_a_tensor_can_hold_are_refused() -> None:
    in_a_process(ask_for_too_many_neighbours)
