"""The benchmarks compare like with like."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from benchmarks import on, versions, workloads
from benchmarks.comparisons import versus
from benchmarks.settings import SHORT
from benchmarks.stream import Tally, turn
from benchmarks.timing import Stopwatch

pytestmark = pytest.mark.filterwarnings("ignore:builtin type .* has no __module__ attribute:DeprecationWarning")
SIZE, KEY_SIZE, K = 2000, 16, 32


@pytest.fixture
def load():
    # Few values, so that some slots are confirmed and some queries find only wrong ones.
    load = workloads.make("clustered", SIZE, KEY_SIZE, 400, seed=0)
    load.values %= 40
    load.targets %= 50
    return load


def test_the_memory_with_faiss_has_the_same_loss_gradient_and_confirmed_keys(load) -> None:
    from benchmarks.faiss_memory import FaissMemory, Flat

    times = torch.randperm(SIZE, generator=torch.Generator().manual_seed(0))  # of no two slots the same
    ours = versions.make_memory(KEY_SIZE, SIZE, K)
    versions.fill(ours, load.keys, load.values, times)
    keys, values = load.keys.numpy(), load.values.numpy()
    theirs = FaissMemory(Flat(keys, K, 1), keys, values, times.numpy(), int(load.targets.max()), ours.margin)
    query, other = (load.queries[:64].clone().requires_grad_() for _ in range(2))
    target = load.targets[:64]
    recall = ours(query)
    loss = ours.loss(recall, target)
    loss.backward()
    unit, slots = theirs.recall(other)
    same = theirs.loss(unit, slots, target)
    same.backward()
    torch.testing.assert_close(same, loss)
    torch.testing.assert_close(other.grad, query.grad, atol=1e-6, rtol=0)
    right = torch.from_numpy(values)[recall.slots[:, 0]] == target
    assert 0 < right.sum() < len(right)
    ours.update(recall, target)
    theirs.update(unit, slots, target)
    confirmed = recall.slots[right, 0]
    torch.testing.assert_close(torch.from_numpy(theirs.keys)[confirmed], ours.keys[confirmed])
    np.testing.assert_array_equal(theirs.index.keys, theirs.keys)
    touched = versions.last_touched(ours) == versions.updates(ours)
    assert (theirs.times == theirs.now).sum() == touched.sum()


def test_a_turn_tells_what_each_step_changed(load) -> None:
    memory = load.memory(K, batch=16)
    before = memory.keys.clone()
    changes = turn(memory, load.queries[:100], load.targets[:100], 16, Stopwatch())
    assert [len(query) for query, _, _ in changes] == [16] * 6 + [4]
    slots = np.concatenate([slots for _, slots, _ in changes])
    assert sorted(slots.tolist()) == (before != memory.keys).any(1).nonzero()[:, 0].tolist()
    assert max(len(slots) for _, slots, _ in changes) <= 16


def test_any_of_several_equal_keys_counts_as_found() -> None:
    memory = versions.make_memory(2, 4, 1)
    keys = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    versions.fill(memory, keys, torch.arange(3), torch.arange(3))
    tally = Tally()
    tally.add(memory, keys[:1].repeat(4, 1), torch.tensor([0, 1, 2, -1]))
    assert (tally.asked, tally.found) == (4, 2)


@pytest.mark.slow
def test_two_processes_work_in_turns(monkeypatch) -> None:
    monkeypatch.setattr(versus, "ROUNDS", 1)
    monkeypatch.setattr(versus, "TURNS", 2)
    few = {"workloads": ("clustered",), "sizes": (1000,), "key_sizes": (16,), "ks": (8,), "batches": (1, 16)}
    settings = dataclasses.replace(SHORT, **few, steps=1, threads=1, old=on.ROOT)
    rows = list(versus.run(settings, SimpleNamespace(update=lambda: None)))
    found = [(row["search"], row["gradient"], row["batch"], row["new recall@1"]) for row in rows]
    kinds = [("no", 1), ("no", 16), ("yes", 16)]
    assert found == [(search, *kind, 1) for search in ("exact", "auto") for kind in kinds]
    assert all(row["step"] > 0 and row["recall"] > 0 for row in rows)
