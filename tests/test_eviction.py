"""Room in a full memory, made by slots that become one."""

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from rarecall import Memory, eviction
from tests.helpers import BACKENDS, assert_same, ids, snapshot, unit, using


def reference_pairs(values, keys, times, count: int) -> list[tuple[int, int]]:
    """One pair after the other: of a largest class, the most similar two that are in no pair yet, the older first."""
    left = {value: [i for i in range(len(values)) if values[i] == value] for value in sorted(set(values))}
    sizes = {value: len(rows) for value, rows in left.items()}
    found = []
    for _ in range(count):
        able = [value for value in left if len(left[value]) >= 2]
        if not able:
            break
        value = max(able, key=lambda v: (sizes[v], -v))
        rows = sorted(left[value], key=lambda i: (times[i], i))
        step = eviction.STEP
        similar = {(a, b): round(float(keys[a] @ keys[b]) / step) for x, a in enumerate(rows) for b in rows[x + 1 :]}
        pair = max(similar, key=lambda p: similar[p])
        found.append(pair)
        sizes[value] -= 1
        left[value] = [i for i in left[value] if i not in pair]
    return found


@pytest.mark.parametrize("seed", range(20))
def test_the_most_similar_slots_of_the_largest_classes_become_one(seed) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 40))
    values, times = torch.from_numpy(rng.integers(0, 6, n)), torch.from_numpy(rng.integers(0, 9, n))
    keys = normalize(torch.from_numpy(rng.normal(size=(n, 5))))
    count = int(rng.integers(1, 8))
    found = eviction.pairs(values, keys, times, torch.ones(n, dtype=torch.bool), count)
    expected = reference_pairs(values.tolist(), keys.numpy(), times.tolist(), count)
    by_class = sorted((int(values[a]), (a, b)) for a, b in expected)
    assert [tuple(pair) for pair in found.tolist()] == [
        pair for value in sorted(set(values.tolist())) for pair in expected if values[pair[0]] == value
    ]
    assert len(found) == len(by_class)


@pytest.mark.parametrize("name", BACKENDS)
def test_a_rare_value_stays_and_nothing_is_lost_of_the_means(name) -> None:
    with using(name) as new_memory:
        memory = new_memory(16, 20, eviction="balanced")
        generator = torch.Generator().manual_seed(0)
        memory.write(torch.randn(1, 16, generator=generator), ids(99))
        for _ in range(200):
            memory.write(torch.randn(1, 16, generator=generator), torch.randint(3, (1,), generator=generator))
        assert (memory.values == 99).sum() == 1
        assert memory.counts.sum() == 201  # each example is in a slot
        assert sum(memory.evicted.values()) == 201 - len(memory)
        assert set(memory.evicted) == {0, 1, 2}
        sizes = memory.values.bincount()[:3]
        assert sizes.max() - sizes.min() <= 2
        torch.testing.assert_close(memory.keys.norm(dim=1), torch.ones(20).to(memory.keys))


@pytest.mark.parametrize("name", BACKENDS)
def test_two_slots_become_their_mean(name) -> None:
    with using(name) as new_memory:
        memory = new_memory(4, 3, eviction="balanced")
        keys = torch.tensor([[1.0, 0, 0, 0], [0.8, 0.6, 0, 0], [0, 0, 1, 0]])
        memory.write(keys, ids(5, 5, 6), sources=ids(10, 11, 12), counts=ids(3, 1, 1))
        memory.write(torch.eye(4)[3:], ids(7))
        held = memory.slots()
        assert held.values.tolist() == [7, 5, 6]
        assert held.counts.tolist() == [1, 4, 1]
        assert held.sources.tolist() == [-1, 11, 12]
        torch.testing.assert_close(held.keys[1], normalize(3 * keys[0] + keys[1], dim=0).to(held.keys))
        assert memory(keys[:2]).value.tolist() == [5, 5]
        assert memory.evicted == {5: 1}


def test_where_each_value_has_one_slot_the_oldest_goes() -> None:
    memory = Memory(8, 4, eviction="balanced", age_noise=0)
    for value in range(6):
        memory.write(unit(1, 8), ids(value))
    assert sorted(memory.values.tolist()) == [2, 3, 4, 5]
    assert memory.evicted == {0: 1, 1: 1}


@pytest.mark.parametrize("name", BACKENDS)
def test_what_is_evicted_by_age_is_counted(name) -> None:
    with using(name) as new_memory:
        memory = new_memory(8, 4, age_noise=0)
        memory.write(torch.eye(8)[:4], ids(5, 5, 6, 7))
        assert not memory.evicted
        memory.update(memory(torch.eye(8)[:1]), ids(5))  # a confirmation
        assert not memory.evicted
        memory.update(memory(torch.eye(8)[4:6]), ids(8, 9))
        assert memory.evicted == {5: 1, 6: 1}
        memory.forget(value=7)
        memory.write(torch.eye(8)[6:], ids(1, 2))
        assert sum(memory.evicted.values()) == 3


def test_a_batch_that_needs_more_than_half_of_a_class() -> None:
    memory = Memory(8, 16, eviction="balanced")
    memory.write(unit(15, 8), ids(*[0] * 15))
    memory.write(unit(1, 8), ids(1))
    memory.write(unit(13, 8), torch.arange(2, 15))
    assert sorted(set(memory.values.tolist())) == list(range(15))
    assert memory.counts.sum() == 29


def test_a_slot_that_the_batch_confirms_is_not_joined() -> None:
    memory = Memory(4, 3, eviction="balanced")
    keys = torch.tensor([[1.0, 0, 0, 0], [0.9, 0.1, 0, 0], [0.8, 0.2, 0, 0]])
    memory.write(keys, ids(5, 5, 5))
    memory.update(memory(torch.stack([keys[0], torch.eye(4)[3]])), ids(5, 6))
    assert sorted(memory.values.tolist()) == [5, 5, 6]
    assert memory.counts.sum() == 5


def test_a_refused_call_changes_nothing() -> None:
    memory = Memory(4, 4, eviction="balanced")
    memory.write(unit(4, 4), ids(1, 1, 1, 1))
    before = snapshot(memory)
    zero = torch.zeros(1, 4)
    for call, match in (
        (lambda: memory.write(zero, ids(2)), "zero vectors"),
        (lambda: memory.update(memory(zero), ids(2)), "zero vectors"),
        (lambda: memory.write(unit(5, 4), ids(1, 2, 3, 4, 5)), "4 slots"),
        (lambda: memory.write(torch.full((1, 4), torch.nan), ids(2)), "nan"),
    ):
        with pytest.raises(ValueError, match=match):
            call()
    assert_same(before, snapshot(memory))
    assert not memory.evicted


def test_the_rules_go_into_files_and_copies(tmp_path) -> None:
    memory = Memory(4, 4, averaging="count", eviction="balanced")
    memory.write(unit(4, 4), ids(1, 1, 2, 2))
    memory.save(tmp_path / "memory")
    loaded = Memory.load(tmp_path / "memory")
    assert (loaded.averaging, loaded.eviction) == ("count", "balanced")
    for each in (memory, loaded):
        each.write(torch.eye(4)[:1], ids(3))
    assert_same(snapshot(memory), snapshot(loaded))


def test_gradients_are_of_the_keys_as_they_were() -> None:
    memory = Memory(4, 4, eviction="balanced", k=2)
    memory.write(torch.eye(4), ids(1, 1, 2, 2))
    query = unit(3, 4).requires_grad_()
    recall = memory(query)
    expected = torch.autograd.grad(memory(query).similarities.sum(), query)[0]
    memory.update(recall, ids(7, 8, 9))
    torch.testing.assert_close(torch.autograd.grad(recall.similarities.sum(), query)[0], expected)


def test_errors() -> None:
    with pytest.raises(ValueError, match="eviction='oldest'; expected one of age, balanced"):
        Memory(4, 4, eviction="oldest")
    with pytest.raises(ValueError, match="averaging='mean'; expected one of half, count"):
        Memory(4, 4, averaging="mean")
