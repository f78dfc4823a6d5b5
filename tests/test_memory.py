"""What Memory promises; the naive reference is compared in test_memory_reference."""

import math

import pytest
import torch
import torch.nn.functional as F

from rarecall import ExactSearch, Memory
from tests.helpers import assert_same, ids, snapshot, teach, train, unit


@pytest.fixture(params=["exact", "hash"])
def memory(request) -> Memory:
    return Memory(key_size=4, capacity=8, k=3, search=request.param)


class TestRecall:
    def test_the_defaults_are_the_papers(self) -> None:
        memory = Memory(key_size=8, capacity=10)
        assert (memory.k, memory.margin, memory.inverse_temperature) == (256, 0.1, 40.0)

    def test_the_nearest_value_is_the_answer(self, memory) -> None:
        teach(memory, torch.eye(4), ids(5, 6, 7, 8))
        recall = memory(torch.tensor([0.1, 0.2, 5.0, 0.3]))
        assert recall.value == 7
        assert recall.values.tolist() == [7, 8, 6]
        assert recall.query.norm() == pytest.approx(1)
        length = math.sqrt(0.1**2 + 0.2**2 + 5.0**2 + 0.3**2)
        expected = torch.tensor([5.0, 0.3, 0.2]) / length
        torch.testing.assert_close(recall.similarities, expected)
        torch.testing.assert_close(recall.weights, (40 * expected).softmax(0))
        assert recall.confidence == recall.weights[0]

    def test_an_empty_memory_does_not_know(self, memory) -> None:
        recall = memory(unit(2, 4))
        assert recall.value.tolist() == [-1, -1]
        assert recall.confidence.tolist() == [0, 0]
        assert recall.slots.tolist() == [[-1] * 3] * 2
        assert recall.similarities.tolist() == [[-math.inf] * 3] * 2
        assert recall.weights.tolist() == [[0] * 3] * 2

    def test_what_is_missing_of_k_is_marked(self, memory) -> None:
        teach(memory, torch.eye(4)[:2], ids(5, 6))
        recall = memory(torch.eye(4)[0])
        assert recall.values.tolist() == [5, 6, -1]
        assert recall.slots[2] == -1
        assert recall.similarities[2] == -math.inf
        assert recall.weights.sum() == pytest.approx(1)
        assert recall.weights[2] == 0

    def test_any_leading_shape_works(self, memory) -> None:
        teach(memory, torch.eye(4), ids(5, 6, 7, 8))
        query = unit(2, 5, 3, 4)
        recall = memory(query)
        assert recall.value.shape == recall.confidence.shape == (2, 5, 3)
        assert (
            recall.slots.shape
            == recall.similarities.shape
            == recall.values.shape
            == recall.weights.shape
            == (2, 5, 3, 3)
        )
        assert recall.query.shape == (2, 5, 3, 4)
        assert torch.equal(recall.slots[1, 2], memory(query[1, 2]).slots)
        assert memory(unit(0, 4)).value.shape == (0,)

    def test_gradients_flow_to_the_query_and_never_to_the_keys(self, memory) -> None:
        teach(memory, torch.eye(4), ids(5, 6, 7, 8))
        query = unit(2, 4).requires_grad_()
        recall = memory(query)
        (recall.confidence.sum() + recall.similarities[..., 0].sum()).backward()
        assert query.grad.abs().sum() > 0
        assert not memory.keys.requires_grad

    def test_an_update_before_backward_does_not_change_the_gradient(self, memory) -> None:
        teach(memory, torch.eye(4), ids(5, 6, 7, 8))
        values = unit(2, 4)
        gradients = []
        for update_first in (False, True):
            query = values.clone().requires_grad_()
            recall = memory(query)
            loss = memory.loss(recall, ids(5, 6)) + recall.confidence.sum()
            if update_first:
                memory.update(recall, ids(5, 6))
            loss.backward()
            gradients.append(query.grad)
        assert torch.equal(*gradients)

    def test_of_equally_similar_slots_the_newest_comes_first(self) -> None:
        memory = Memory(key_size=37, capacity=500, k=300)
        key = unit(37)
        recall = memory(key.expand(300, 37))
        memory.update(recall, torch.arange(300))  # one update: 300 misses, 300 slots
        assert memory(key).slots.tolist() == list(range(299, -1, -1))  # equally new: the highest first

    def test_excluded_sources_are_never_neighbours(self, memory) -> None:
        teach(memory, torch.eye(4), ids(5, 6, 7, 8), source=ids(10, 10, 11, -1))
        query = torch.eye(4)
        recall = memory(query, exclude=ids(10, 12, 11, -1))
        assert recall.value[0] not in (5, 6)
        assert set(recall.values[0].tolist()) == {7, 8, -1}
        assert recall.value[1] == 6
        assert recall.value[2] != 7
        assert recall.value[3] == 8, "-1 excludes nothing, not even slots without a source"
        assert 8 in recall.values[0]

    def test_neither_huge_nor_tiny_queries_lose_their_direction(self, memory) -> None:
        direction = unit(4)
        teach(memory, direction[None] * 1e30, ids(1))
        torch.testing.assert_close(memory.keys[0], direction)
        assert memory(direction * 1e-30).similarities[0] == pytest.approx(1)


class TestLoss:
    @pytest.fixture
    def memory(self) -> Memory:
        memory = Memory(key_size=4, capacity=8, k=3)
        teach(
            memory,
            F.normalize(torch.tensor([[1.0, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])),
            ids(5, 6, 5, 7),
        )
        return memory

    def test_it_is_the_papers_formula(self, memory) -> None:
        query = torch.tensor([0.9, 0.2, 0.1, 0.0])
        recall = memory(query)
        positive, negative = recall.query @ memory.keys[0], recall.query @ memory.keys[1]
        assert memory.loss(recall, torch.tensor(5)) == pytest.approx(max(0, (negative - positive + 0.1).item()))
        assert memory.loss(recall, torch.tensor(6)) == pytest.approx((positive - negative + 0.1).item())

    def test_past_the_margin_it_is_zero(self, memory) -> None:
        recall = memory(torch.eye(4)[2])
        assert memory.loss(recall, torch.tensor(5)) == 0

    def test_where_no_neighbour_is_right_the_newest_slot_of_that_value_is_the_positive(self) -> None:
        memory = Memory(key_size=2, capacity=8, k=2)
        for key, value in (([1.0, 0.0], 5), ([0.6, 0.8], 6), ([0.0, 1.0], 7), ([-0.1, 1.0], 6), ([0.8, 0.6], 8)):
            teach(memory, torch.tensor([key]), ids(value))
        recall = memory(torch.tensor([1.0, 0.0]))
        assert recall.values.tolist() == [5, 8]
        newest = memory.keys[3]
        assert memory.values[3] == 6
        expected = 1.0 - newest[0].item() + 0.1
        assert memory.loss(recall, torch.tensor(6)) == pytest.approx(expected)

    def test_the_fallback_is_not_an_excluded_slot_either(self) -> None:
        memory = Memory(key_size=2, capacity=8, k=1)
        teach(memory, torch.tensor([[0.6, 0.8], [0.0, 1.0]]), ids(6, 6), source=ids(1, 2))
        teach(memory, torch.tensor([[1.0, 0.0]]), ids(5), source=ids(3))
        query = torch.tensor([1.0, 0.0])
        assert memory.loss(memory(query, exclude=torch.tensor(2)), torch.tensor(6)) == pytest.approx(1.0 - 0.6 + 0.1)
        assert memory.loss(memory(query, exclude=torch.tensor(1)), torch.tensor(6)) == pytest.approx(1.0 - 0.0 + 0.1)

    def test_it_is_the_mean_over_the_queries_that_add_something(self, memory) -> None:
        query = torch.tensor([[0.9, 0.2, 0.1, 0.0], [0.1, 0.2, 0.9, 0.0]])
        each = [memory.loss(memory(q), torch.tensor(6)).item() for q in query]
        recall = memory(torch.cat([query, query]))
        unknown = 99  # memory has no slot of this value
        assert memory.loss(recall, ids(6, 6, unknown, unknown)) == pytest.approx(sum(each) / 2)
        assert memory.loss(recall, ids(6, 6, 6, 6), mask=torch.tensor([True, False, False, False])) == pytest.approx(
            each[0]
        )

    def test_a_mask_may_be_part_of_another(self, memory) -> None:
        teach(memory, torch.eye(4), ids(5, 6, 7, 8))
        recall, mask = memory(unit(4, 4)), torch.rand(8) < 0.5
        mask[0] = True
        expected = memory.loss(recall, ids(6, 6, 7, 7), mask=mask[::2].clone())
        assert memory.loss(recall, ids(6, 6, 7, 7), mask=mask[::2]) == expected

    def test_where_no_query_adds_anything_it_is_zero_with_a_gradient_of_zero(self) -> None:
        memory = Memory(key_size=4, capacity=8)
        for target in (5, 6):  # an empty memory; then one in which nothing is wrong, and one without the value
            query = unit(3, 4).requires_grad_()
            recall = memory(query)
            loss = memory.loss(recall, torch.full((3,), target))
            loss.backward()
            assert loss == 0
            assert torch.equal(query.grad, torch.zeros(3, 4))
            memory.update(recall, torch.full((3,), 5))
        assert memory.loss(memory(unit(2, 4)), ids(5, 5)) == 0

    def test_gradcheck(self) -> None:
        memory = Memory(key_size=5, capacity=30, k=4, margin=0.5).double()
        teach(memory, torch.randn(20, 5, dtype=torch.float64), torch.arange(20) % 7)
        query = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
        target = ids(0, 1, 2, 3, 4, 99)
        assert memory.loss(memory(query), target) > 0
        assert torch.autograd.gradcheck(lambda q: memory.loss(memory(q), target), (query,))
        assert torch.autograd.gradcheck(lambda q: memory(q).weights, (query,))


class TestUpdate:
    def test_a_right_answer_is_averaged_into_its_key(self, memory) -> None:
        a, b = unit(4), unit(4)
        teach(memory, a[None], ids(5), source=ids(1))
        teach(memory, torch.eye(4), ids(6, 6, 6, 6))
        recall = memory(a + 0.1 * b)
        memory.update(recall, torch.tensor(5), source=torch.tensor(2))
        torch.testing.assert_close(memory.keys[0], F.normalize(a + F.normalize(a + 0.1 * b, dim=0), dim=0))
        assert memory.sources[0] == 1, "the source is the example that founded the slot"
        assert memory.ages[0] == 0
        assert memory.ages[1] == 1

    def test_two_that_confirm_one_slot_are_both_averaged_into_it(self, memory) -> None:
        teach(memory, torch.eye(4)[:1], ids(5))
        query = unit(2, 4)
        teach(memory, query, ids(5, 5))
        torch.testing.assert_close(memory.keys[0], F.normalize(torch.eye(4)[0] + query.sum(0), dim=0))
        assert len(memory) == 1

    def test_two_that_miss_get_two_slots_even_with_one_value(self, memory) -> None:
        teach(memory, torch.eye(4)[[0, 0]], ids(5, 5), source=ids(1, 2))
        assert memory.values.tolist()[:3] == [5, 5, -1]
        assert memory.sources.tolist()[:3] == [1, 2, -1]

    def test_a_query_that_cancels_its_key_leaves_it(self, memory) -> None:
        teach(memory, torch.eye(4)[:1], ids(5))
        teach(memory, -torch.eye(4)[:1], ids(5))
        assert torch.equal(memory.keys[0], torch.eye(4)[0])

    def test_two_queries_on_either_side_of_a_key_leave_it(self, new_memory) -> None:
        memory = new_memory(key_size=2, capacity=4, k=1)
        teach(memory, torch.tensor([[1.0, 0.0]]), ids(3))
        teach(memory, torch.tensor([[0.6, 0.8], [0.6, -0.8]]), ids(3, 3))
        assert torch.allclose(memory.keys[0], torch.tensor([1.0, 0.0]).to(memory.keys))

    def test_masked_queries_leave_no_trace(self, memory) -> None:
        recall = memory(torch.zeros(2, 3, 4) + torch.eye(4)[:3])
        mask = torch.tensor([[True, True, False], [False, False, False]])
        memory.update(recall, torch.arange(6).view(2, 3), mask=mask)
        assert memory.values.tolist()[:3] == [0, 1, -1]

    def test_ages_count_the_updates(self, memory) -> None:
        for i in range(4):
            teach(memory, torch.eye(4)[i : i + 1], ids(i))
        assert memory.ages.tolist() == [3, 2, 1, 0, -1, -1, -1, -1]

    def test_the_oldest_slot_is_written_when_there_is_no_empty_one(self) -> None:
        memory = Memory(key_size=4, capacity=4, age_noise=0.0)
        for i in range(4):
            teach(memory, torch.eye(4)[i : i + 1], ids(i))
        teach(memory, torch.eye(4)[:1], ids(0))  # confirms the oldest
        teach(memory, torch.eye(4)[1:2], ids(9))
        assert memory.values.tolist() == [0, 9, 2, 3]

    def test_a_slot_confirmed_by_the_same_update_is_the_last_to_be_written(self) -> None:
        memory = Memory(key_size=4, capacity=3, age_noise=100.0)
        teach(memory, torch.eye(4)[:3], ids(0, 1, 2))
        teach(memory, torch.eye(4)[[0, 1, 2]], ids(0, 7, 8))
        assert memory.values[0] == 0
        assert sorted(memory.values.tolist()) == [0, 7, 8]
        teach(memory, torch.eye(4)[[0, 0, 0, 0]], ids(0, 4, 5, 6))
        assert sorted(memory.values.tolist()) == [4, 5, 6], "as many misses as slots fit"

    def test_age_noise_makes_the_choice_random_within_its_reach(self) -> None:
        chosen = set()
        for _ in range(100):
            memory = Memory(key_size=4, capacity=6, age_noise=3.0)
            for i in range(6):
                teach(memory, torch.eye(4)[i % 4 : i % 4 + 1], ids(i))
            teach(memory, unit(1, 4), ids(9))
            chosen.add(memory.values.tolist().index(9))
        assert chosen == {0, 1, 2}, "the ages 5, 4 and 3; 2 + r < 5 can never win"

    def test_the_random_part_takes_a_generator_or_the_global_seed(self) -> None:
        def run(explicit: bool) -> dict[str, torch.Tensor]:
            torch.manual_seed(1)
            generator = torch.Generator().manual_seed(1) if explicit else None
            memory = Memory(key_size=4, capacity=20, age_noise=8.0)
            queries = torch.randn(60, 4, generator=torch.Generator().manual_seed(2))
            for i, query in enumerate(queries):
                memory.update(memory(query), torch.tensor(i), generator=generator)
            return snapshot(memory)

        assert_same(run(True), run(True))
        assert_same(run(False), run(False))

    @pytest.mark.parametrize("search", ["exact", "hash"])
    def test_two_runs_from_one_seed_are_bit_equal(self, search) -> None:
        runs = []
        for _ in range(2):
            torch.manual_seed(3)
            memory = Memory(key_size=16, capacity=50, k=5, search=search)
            train(memory, 60, seed=4)
            runs.append(snapshot(memory))
        assert_same(*runs)

    def test_a_million_confirmations_keep_every_norm(self) -> None:
        slots = 1000
        memory = Memory(key_size=32, capacity=slots, k=1)
        centres = unit(slots, 32)
        memory.update(memory(centres), torch.arange(slots))
        for _ in range(1000):
            memory.update(memory(centres + 0.02 * torch.randn(slots, 32)), torch.arange(slots))
        assert len(memory) == slots
        assert (memory.keys.double().norm(dim=1) - 1).abs().max() < 1e-5

    @pytest.mark.slow
    def test_a_million_updates_keep_every_norm(self) -> None:
        memory = Memory(key_size=8, capacity=64, k=4)
        for queries in torch.randn(1000, 1000, 8):
            for query in queries:
                memory.update(memory(query), torch.randint(5, ()))
        assert memory.now == 1_000_000
        assert (memory.keys.double().norm(dim=1) - 1).abs().max() < 1e-5


class TestForget:
    def fill(self, memory: Memory) -> None:
        teach(memory, torch.eye(4), ids(5, 6, 5, 7), source=ids(1, 2, 3, 3))

    def test_by_value_source_or_slots(self, memory) -> None:
        self.fill(memory)
        assert memory.forget(value=5) == 2
        assert memory.forget(value=5) == 0
        assert memory.forget(source=ids(2, 3)) == 2
        self.fill(memory)
        assert memory.forget(slots=[0, 0, 7]) == 1
        assert len(memory) == 3

    def test_what_is_forgotten_is_no_neighbour(self, memory) -> None:
        self.fill(memory)
        memory.forget(value=5)
        recall = memory(torch.eye(4)[0])
        assert sorted(recall.values.tolist()) == [-1, 6, 7]

    def test_its_slots_are_the_first_to_be_written_again(self, memory) -> None:
        self.fill(memory)
        memory.forget(source=3)
        teach(memory, torch.eye(4)[2:] * -1, ids(8, 9))
        assert memory.values.tolist() == [5, 6, 8, 9, -1, -1, -1, -1]

    def test_forgotten_slots_come_before_old_ones(self) -> None:
        memory = Memory(key_size=4, capacity=4)
        self.fill(memory)
        memory.forget(slots=3)
        teach(memory, unit(1, 4), ids(8))
        assert memory.values.tolist() == [5, 6, 5, 8]

    def test_reset_empties_everything(self, memory) -> None:
        fresh = snapshot(memory)
        self.fill(memory)
        memory.reset()
        assert len(memory) == 0
        assert memory(torch.eye(4)[0]).value == -1
        state = snapshot(memory)
        for name in ("keys", "values", "sources", "counts", "times", "now"):
            assert torch.equal(state[name], fresh[name])

    def test_a_memory_that_was_reset_goes_on_as_a_new_one(self) -> None:
        used, fresh = Memory(key_size=8, capacity=20), Memory(key_size=8, capacity=20)
        train(used, 30, seed=1)
        used.reset()
        for memory in (used, fresh):
            train(memory, 30, seed=2)  # until slots are written again
        assert_same(snapshot(used), snapshot(fresh))


class TestErrors:
    """Each says what came, what was expected and what to do, and leaves the memory as it was."""

    @pytest.fixture(autouse=True)
    def _unchanged(self, memory):
        teach(memory, torch.eye(4), ids(5, 6, 7, 8), source=ids(1, 2, 3, 4))
        before = snapshot(memory)
        yield
        assert_same(before, snapshot(memory))

    def test_wrong_last_dimension(self, memory) -> None:
        with pytest.raises(ValueError, match=r"shape \(2, 5\).*\(\.\.\., 4\)"):
            memory(torch.randn(2, 5))
        with pytest.raises(ValueError, match=r"shape \(\)"):
            memory(torch.tensor(1.0))

    def test_integer_query(self, memory) -> None:
        with pytest.raises(TypeError, match=r"int64.*query\.float\(\)"):
            memory(torch.ones(2, 4, dtype=torch.int64))

    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
    def test_nan_or_infinity(self, memory, bad) -> None:
        with pytest.raises(ValueError, match="1 numbers that are nan or infinite"):
            memory(torch.tensor([[1.0, 0, 0, bad]]))

    def test_a_zero_vector_can_be_asked_but_not_stored(self, memory) -> None:
        recall = memory(torch.zeros(2, 4))
        assert recall.similarities[0, 0] == 0
        with pytest.raises(ValueError, match="2 zero vectors"):
            memory.update(recall, ids(5, 6))

    @pytest.mark.parametrize("method", ["loss", "update"])
    def test_bad_targets(self, memory, method) -> None:
        recall = memory(unit(2, 4))
        call = getattr(memory, method)
        with pytest.raises(ValueError, match=r"target of shape \(3,\); expected \(2,\)"):
            call(recall, ids(1, 2, 3))
        with pytest.raises(ValueError, match="target with -1 in it; expected 0 or greater"):
            call(recall, ids(1, -1))
        with pytest.raises(TypeError, match=r"target of torch\.float32"):
            call(recall, torch.ones(2))
        with pytest.raises(ValueError, match=r"mask of torch.int64 and shape \(2,\)"):
            call(recall, ids(1, 2), mask=ids(1, 0))
        with pytest.raises(ValueError, match=r"expected torch.bool and \(2,\)"):
            call(recall, ids(1, 2), mask=torch.ones(3, dtype=torch.bool))

    def test_bad_sources(self, memory) -> None:
        with pytest.raises(ValueError, match="source of shape"):
            memory.update(memory(unit(2, 4)), ids(1, 2), source=ids(1))
        with pytest.raises(ValueError, match="source with -2"):
            memory.update(memory(unit(2, 4)), ids(1, 2), source=ids(1, -2))
        with pytest.raises(ValueError, match="exclude of shape"):
            memory(unit(2, 4), exclude=ids(1, 2, 3))

    @pytest.mark.parametrize("method", ["loss", "update"])
    def test_a_recall_of_another_memory(self, memory, method) -> None:
        other = Memory(key_size=4, capacity=8, k=3)
        with pytest.raises(ValueError, match="another memory"):
            getattr(memory, method)(other(unit(2, 4)), ids(1, 2))

    def test_more_misses_than_slots(self, memory) -> None:
        recall = memory(unit(9, 4))
        with pytest.raises(ValueError, match=r"9 examples that need a slot.*8 slots"):
            memory.update(recall, torch.full((9,), 99))

    def test_forget(self, memory) -> None:
        with pytest.raises(ValueError, match="exactly one of value, source, slots"):
            memory.forget()
        with pytest.raises(ValueError, match="exactly one"):
            memory.forget(value=1, source=2)
        with pytest.raises(ValueError, match="slots 0 to 7"):
            memory.forget(slots=8)
        with pytest.raises(ValueError, match="value with -1"):
            memory.forget(value=-1)
        with pytest.raises(TypeError, match="float32"):
            memory.forget(value=1.5)
        assert memory.forget(value=[]) == 0


@pytest.mark.parametrize("change", ["update", "forget", "reset", "load"])
def test_a_recall_made_before_the_last_change_is_refused(change) -> None:
    memory = Memory(key_size=4, capacity=8)
    teach(memory, torch.eye(4), ids(5, 6, 7, 8))
    recall = memory(unit(2, 4))
    {
        "update": lambda: teach(memory, unit(1, 4), ids(1)),
        "forget": lambda: memory.forget(value=5),
        "reset": memory.reset,
        "load": lambda: memory.load_state_dict(memory.state_dict()),
    }[change]()
    before = snapshot(memory)
    for method in (memory.loss, memory.update):
        with pytest.raises(ValueError, match=r"out of date.*Ask again"):
            method(recall, ids(1, 2))
    assert_same(before, snapshot(memory))


def test_bad_settings() -> None:
    for settings in ({"key_size": 0}, {"capacity": 0}, {"k": 0}, {"margin": -1.0}, {"age_noise": math.inf}):
        with pytest.raises(ValueError, match=next(iter(settings))):
            Memory(**({"key_size": 4, "capacity": 8} | settings))
    with pytest.raises(ValueError, match=r"'fast'; expected one of \['auto', 'exact', 'hash'\]"):
        Memory(4, 8, search="fast")
    with pytest.raises(TypeError, match="of type type"):
        Memory(4, 8, search=ExactSearch)
