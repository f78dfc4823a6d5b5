"""Many keys at once, in and out: write, slots and merge; and how many examples each slot stands for."""

import copy
import time

import pytest
import torch
import torch.nn.functional as F

from rarecall import Memory
from tests.helpers import SEARCHES, assert_same, check_found, ids, snapshot, teach, train, unit

# What a slot holds besides its time.
PARTS = ("keys", "values", "sources", "counts")


@pytest.fixture(params=SEARCHES)
def memory(request, new_memory) -> Memory:
    return new_memory(key_size=8, capacity=60, k=4, search=request.param)


def assert_equal_parts(memory: Memory, other: Memory) -> None:
    torch.testing.assert_close(memory.keys, other.keys, atol=1e-6, rtol=0)
    for name in PARTS[1:]:
        assert torch.equal(getattr(memory, name), getattr(other, name)), name


class TestWrite:
    def test_it_leaves_what_an_update_leaves_in_which_all_miss(self, memory) -> None:
        other, keys, values, sources = copy.deepcopy(memory), unit(40, 8), torch.arange(40), torch.arange(40) % 7
        memory.write(keys, values, sources)
        teach(other, keys, values, sources)
        assert_equal_parts(memory, other)
        assert len(memory) == 40
        check_found(memory)

    def test_into_a_memory_that_is_partly_full(self, memory) -> None:
        teach(memory, unit(30, 8), torch.arange(30))
        memory.forget(value=list(range(5, 15)))
        other, keys, values = copy.deepcopy(memory), unit(40, 8), torch.arange(100, 140)
        memory.write(keys, values)
        teach(other, keys, values)
        assert_equal_parts(memory, other)
        check_found(memory)

    def test_into_a_full_memory_it_takes_the_oldest(self, new_memory) -> None:
        memory = new_memory(key_size=8, capacity=20, k=4, age_noise=0.0)
        for value in range(20):
            teach(memory, unit(1, 8), ids(value))
        memory.write(unit(6, 8), torch.arange(100, 106))
        assert sorted(memory.values.tolist()) == [*range(6, 20), *range(100, 106)]
        assert sorted(memory.values[:6].tolist()) == list(range(100, 106))
        check_found(memory)
        memory.write(unit(20, 8), torch.arange(200, 220))
        assert sorted(memory.values.tolist()) == list(range(200, 220))

    def test_what_is_written_is_the_newest(self, memory) -> None:
        keys = unit(10, 8)
        teach(memory, keys, torch.arange(10))
        teach(memory, unit(5, 8), torch.arange(20, 25))
        memory.write(keys, torch.arange(10) + 50)
        assert torch.equal(memory(keys).value, torch.arange(10) + 50)
        assert (memory.ages[memory.values >= 50] == 0).all()
        assert (memory.times <= memory.now).all()
        teach(memory, keys, torch.arange(10) + 70)
        assert torch.equal(memory(keys).values[:, :3], torch.arange(10)[:, None] + ids(70, 50, 0))

    def test_each_key_gets_a_slot_of_its_own_even_where_it_would_confirm_one(self, memory) -> None:
        keys = unit(5, 8)
        memory.write(keys, ids(1, 2, 3, 4, 5))
        memory.write(keys, ids(1, 2, 3, 4, 5))
        memory.write(keys[:1].expand(5, 8), ids(1, 1, 1, 1, 1))
        assert len(memory) == 15
        assert torch.equal(memory.counts[:15], torch.ones(15, dtype=torch.int64))

    @pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
    def test_keys_of_any_length_and_type_are_normalised(self, memory, dtype) -> None:
        keys = (torch.randn(10, 8) * torch.logspace(-2, 2, 10)[:, None]).to(dtype)
        memory.write(keys, torch.arange(10))
        torch.testing.assert_close(memory.keys[:10].double(), F.normalize(keys.double(), dim=1), atol=1e-5, rtol=0)
        assert memory(keys).value.tolist() == list(range(10))

    def test_integers_of_any_type_and_tensors_that_are_not_compact(self, memory) -> None:
        keys = unit(8, 20).T[::2]
        memory.write(keys, torch.arange(20, dtype=torch.int32)[::2], sources=torch.arange(10, dtype=torch.uint8))
        assert memory.values[:10].tolist() == list(range(0, 20, 2))
        assert memory.sources[:10].tolist() == list(range(10))
        check_found(memory)

    def test_no_keys_at_all(self, memory) -> None:
        train(memory, 3, seed=0)
        before = memory.slots()
        memory.write(torch.zeros(0, 8), torch.zeros(0, dtype=torch.int64))
        assert torch.equal(memory.slots().keys, before.keys)
        check_found(memory)

    def test_no_gradient_flows(self, memory) -> None:
        memory.write(unit(3, 8).requires_grad_(), ids(1, 2, 3))
        assert not memory.keys.requires_grad

    def test_a_recall_made_before_is_refused(self, memory) -> None:
        recall = memory(unit(2, 8))
        memory.write(unit(3, 8), ids(1, 2, 3))
        with pytest.raises(ValueError, match="Ask again"):
            memory.update(recall, ids(1, 2))

    def test_gradients_of_earlier_recalls_are_of_the_keys_as_they_were(self, new_memory) -> None:
        memory = new_memory(key_size=8, capacity=10, k=4)
        memory.write(unit(10, 8), torch.arange(10))
        query = unit(3, 8).requires_grad_()
        expected = torch.autograd.grad(memory(query).similarities.square().sum(), query)[0]
        recall = memory(query)
        memory.write(unit(10, 8), torch.arange(10))
        torch.testing.assert_close(torch.autograd.grad(recall.similarities.square().sum(), query)[0], expected)

    def test_the_memory_goes_on_as_after_updates(self, memory) -> None:
        memory.write(unit(50, 8), torch.arange(50) % 20)
        train(memory, 20, seed=0)
        memory.forget(value=5)
        memory.write(unit(30, 8), torch.arange(30))
        check_found(memory)

    @pytest.mark.parametrize(
        ("arguments", "error", "message"),
        [
            ({"keys": torch.randn(3, 7)}, ValueError, "8"),
            ({"keys": torch.randn(8)}, ValueError, "8"),
            ({"keys": torch.ones(3, 8, dtype=torch.int64)}, TypeError, "int64"),
            ({"keys": torch.tensor([1.0, 1.0, float("nan")])[:, None].expand(3, 8)}, ValueError, "nan"),
            ({"keys": torch.tensor([1.0, 0.0, 1.0])[:, None].expand(3, 8)}, ValueError, "zero"),
            ({"values": ids(1, 2)}, ValueError, "values"),
            ({"values": ids(1, 2, -1)}, ValueError, "values"),
            ({"values": torch.ones(3)}, TypeError, "values"),
            ({"sources": ids(1, 2)}, ValueError, "sources"),
            ({"sources": ids(1, 2, -2)}, ValueError, "sources"),
            ({"counts": ids(1, 2, 0)}, ValueError, "counts"),
            ({"counts": ids(1, 2, -3)}, ValueError, "counts"),
            ({"counts": ids(1)}, ValueError, "counts"),
            ({"counts": torch.ones(3)}, TypeError, "counts"),
            ({"keys": torch.randn(61, 8), "values": torch.arange(61)}, ValueError, "61.*60 slots"),
        ],
    )
    def test_errors_come_before_anything_changes(self, memory, arguments, error, message) -> None:
        train(memory, 5, seed=0)
        before, version = snapshot(memory), memory.version
        with pytest.raises(error, match=message):
            memory.write(**({"keys": unit(3, 8), "values": ids(1, 2, 3)} | arguments))
        assert memory.version == version
        assert_same(before, snapshot(memory))
        check_found(memory)

    @pytest.mark.slow
    @pytest.mark.parametrize("search", SEARCHES)
    def test_hundreds_of_thousands_take_seconds(self, search) -> None:
        memory, keys = Memory(64, 200_000, k=16, search=search), unit(200_000, 64)
        start = time.perf_counter()
        memory.write(keys, torch.arange(200_000))
        assert time.perf_counter() - start < 30
        asked = torch.randperm(200_000)[:500]
        assert (memory(keys[asked]).value == asked).float().mean() >= 0.95


class TestSlots:
    def test_they_are_the_filled_ones_in_order(self, memory) -> None:
        train(memory, 10, seed=0)
        memory.forget(value=3)
        found = memory.slots()
        assert found._fields == ("slots", "keys", "values", "sources", "counts", "ages")
        assert torch.equal(found.slots, (memory.values >= 0).nonzero().squeeze(1))
        for name in (*PARTS, "ages"):
            assert torch.equal(getattr(found, name), getattr(memory, name)[found.slots]), name

    def test_of_an_empty_memory_there_are_none(self, memory) -> None:
        found = memory.slots()
        assert found.keys.shape == (0, 8)
        assert [len(tensor) for tensor in found] == [0] * 6

    def test_they_are_copies(self, memory) -> None:
        train(memory, 10, seed=0)
        found = memory.slots()
        kept = [tensor.clone() for tensor in found]
        train(memory, 10, seed=1)
        memory.reset()
        for tensor, expected in zip(found, kept, strict=True):
            assert torch.equal(tensor, expected)
        train(memory, 3, seed=2)
        for tensor in memory.slots():
            tensor.fill_(7)
        check_found(memory)

    def test_written_into_another_memory_they_are_the_same(self, memory, new_memory) -> None:
        train(memory, 15, seed=0)
        memory.forget(value=[1, 2])
        there = memory.slots()
        for search in SEARCHES:
            other = new_memory(key_size=8, capacity=100, k=4, search=search)
            other.write(there.keys, there.values, there.sources, there.counts)
            again = other.slots()
            torch.testing.assert_close(again.keys, there.keys, atol=1e-6, rtol=0)
            for name in PARTS[1:]:
                assert torch.equal(getattr(again, name), getattr(there, name)), name
            check_found(other)


class TestMerge:
    def test_it_has_the_slots_of_both(self, memory, new_memory) -> None:
        other = new_memory(key_size=8, capacity=30, k=2)
        memory.write(unit(30, 8), torch.arange(30), torch.arange(30) + 500)
        other.write(unit(20, 8), torch.arange(100, 120), counts=torch.arange(1, 21))
        before, theirs, ours = snapshot(other), other.slots(), memory.slots()
        memory.merge(other)
        assert_same(before, snapshot(other))
        assert len(memory) == 50
        for slots in (ours, theirs):
            at = memory(slots.keys).slots[:, 0]
            torch.testing.assert_close(memory.keys[at], slots.keys, atol=1e-6, rtol=0)
            for name in PARTS[1:]:
                assert torch.equal(getattr(memory, name)[at], getattr(slots, name)), name
        check_found(memory)

    def test_with_an_empty_memory_and_into_one(self, memory, new_memory) -> None:
        other = new_memory(key_size=8, capacity=60, k=4)
        other.write(unit(30, 8), torch.arange(30))
        memory.merge(other)
        assert memory.slots().values.tolist() == list(range(30))
        memory.merge(new_memory(key_size=8, capacity=5, k=4))
        assert len(memory) == 30
        check_found(memory)

    def test_the_memories_may_be_of_different_types(self) -> None:
        memory, other = Memory(8, 60, k=4), Memory(8, 60, k=4).double()
        other.write(unit(30, 8), torch.arange(30))
        memory.merge(other)
        other.merge(memory)
        assert memory.keys.dtype == torch.float32
        assert other.keys.dtype == torch.float64
        check_found(memory)

    def test_errors_come_before_anything_changes(self, memory, new_memory) -> None:
        train(memory, 5, seed=0)
        before, version = snapshot(memory), memory.version
        narrow, large = new_memory(key_size=7, capacity=60), new_memory(key_size=8, capacity=100)
        narrow.write(unit(3, 7), ids(1, 2, 3))
        large.write(unit(61, 8), torch.arange(61))
        with pytest.raises(ValueError, match=r"7.*8|8.*7"):
            memory.merge(narrow)
        with pytest.raises(ValueError, match=r"61.*60"):
            memory.merge(large)
        with pytest.raises(TypeError, match="Dict"):
            memory.merge(large.state_dict())
        assert memory.version == version
        assert_same(before, snapshot(memory))


class TestCounts:
    def test_a_slot_stands_for_the_example_that_wrote_it_and_for_all_that_confirm_it(self, memory) -> None:
        eye = torch.eye(8)
        teach(memory, eye[:3], ids(5, 6, 7))
        assert memory.counts[:4].tolist() == [1, 1, 1, 0]
        teach(memory, eye[[0, 0, 1]], ids(5, 5, 9))  # two confirm slot 0, one misses
        assert memory.counts[:5].tolist() == [3, 1, 1, 1, 0]
        teach(memory, -eye[:1] + 0.0, ids(99))
        assert memory.counts[:6].tolist() == [3, 1, 1, 1, 1, 0]

    def test_a_query_that_cancels_its_key_counts_too(self, new_memory) -> None:
        memory = new_memory(key_size=8, capacity=10, k=1)
        teach(memory, torch.eye(8)[:1], ids(5))
        teach(memory, -torch.eye(8)[:1], ids(5))
        assert memory.counts[0] == 2

    def test_masked_queries_do_not_count(self, memory) -> None:
        teach(memory, torch.eye(8)[:2], ids(5, 6))
        memory.update(memory(torch.eye(8)[:2]), ids(5, 6), mask=torch.tensor([False, True]))
        assert memory.counts[:3].tolist() == [1, 2, 0]

    def test_with_and_without_a_gradient(self, memory) -> None:
        teach(memory, torch.eye(8)[:2], ids(5, 6))
        for gradient in (True, False):
            recall = memory(torch.eye(8)[:2].requires_grad_(gradient))
            memory.loss(recall, ids(5, 6))
            memory.update(recall, ids(5, 6))
        assert memory.counts[:3].tolist() == [3, 3, 0]

    def test_a_slot_that_is_written_over_starts_again(self, new_memory) -> None:
        memory = new_memory(key_size=8, capacity=2, k=1, age_noise=0.0)
        for target in (5, 5, 5, 6, 6):
            teach(memory, torch.eye(8)[target : target + 1], ids(target))
        assert memory.counts.tolist() == [3, 2]
        teach(memory, torch.eye(8)[:1], ids(7))
        assert memory.counts.tolist() == [1, 2]

    def test_what_is_forgotten_stands_for_nothing(self, memory) -> None:
        teach(memory, torch.eye(8), torch.arange(8))
        memory.forget(value=3)
        assert memory.counts[:9].tolist() == [1, 1, 1, 0, 1, 1, 1, 1, 0]
        memory.reset()
        assert (memory.counts == 0).all()

    def test_copies_and_files_keep_them(self, memory, tmp_path) -> None:
        train(memory, 20, seed=0)
        assert memory.counts.max() > 1
        assert memory.counts.dtype == torch.int64
        memory.save(tmp_path / "memory")
        for other in (copy.deepcopy(memory), Memory.load(tmp_path / "memory")):
            assert torch.equal(other.counts, memory.counts)

    def test_they_add_up_to_what_was_taught(self, new_memory) -> None:
        memory = new_memory(key_size=8, capacity=500, k=4)
        train(memory, 30, seed=0)
        assert memory.counts.sum() == 30 * 8

    def test_given_counts_grow_from_there(self, memory) -> None:
        memory.write(torch.eye(8)[:2], ids(5, 6), counts=ids(10, 20))
        teach(memory, torch.eye(8)[:2], ids(5, 9))
        assert memory.counts[:4].tolist() == [11, 20, 1, 0]
