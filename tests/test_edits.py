"""Edits by hand: those of a memory are noticed or refused, those of a recall are refused; nothing crashes or hangs."""

import contextlib
import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from rarecall import Memory, Recall
from tests.helpers import SEARCHES, assert_same, check_found, ids, snapshot, teach, train, unit, using
from tests.processes import in_a_process


@pytest.fixture(params=SEARCHES)
def memory(request, new_memory) -> Memory:
    memory = new_memory(key_size=8, capacity=60, k=4, search=request.param)
    teach(memory, unit(50, 8), torch.arange(50), source=torch.arange(50))
    memory(unit(1, 8))
    return memory


class TestTheMemory:
    def test_an_edited_key_is_found_at_the_next_recall(self, memory) -> None:
        key = torch.eye(8)[3].to(memory.keys)
        memory.keys[7] = key
        assert memory(key).slots[0] == 7
        memory.keys.copy_(torch.cat([memory.keys[:50].flip(0), memory.keys[50:]]))
        assert memory(key).slots[0] == 42
        check_found(memory)

    def test_edited_values_and_sources_are_answered_from_the_next_recall_on(self, memory) -> None:
        memory.values[7] = 99
        memory.sources[8] = 77
        assert memory(memory.keys[7]).value == 99
        assert memory(memory.keys[8], exclude=torch.tensor(77)).slots[0] != 8
        memory.loss(memory(unit(3, 8)), ids(99, 99, 99))
        assert memory.forget(value=99) == 1
        check_found(memory)

    def test_a_slot_filled_or_emptied_by_hand_is_counted(self, memory) -> None:
        key = torch.eye(8)[3].to(memory.keys)
        for name, row in (("keys", key), ("values", 5), ("sources", 1), ("counts", 1), ("times", memory.now)):
            getattr(memory, name)[55] = row
        assert memory(key).slots[0] == 55
        assert len(memory) == 51
        for name, row in (("keys", 0.0), ("values", -1), ("sources", -1), ("counts", 0), ("times", -1)):
            getattr(memory, name)[55] = row
        assert memory(key).slots[0] != 55
        assert len(memory) == 50
        train(memory, 20, seed=0)
        check_found(memory)

    def test_a_recall_made_before_is_refused(self, memory) -> None:
        recall = memory(unit(2, 8))
        memory.values[7] = 99
        with pytest.raises(ValueError, match="Ask again"):
            memory.update(recall, ids(1, 2))

    @pytest.mark.parametrize(
        ("name", "row"),
        [
            ("keys", float("nan")),
            ("keys", float("inf")),
            ("keys", 1e35),
            ("keys", 0.0),
            ("keys", 1.0),
            ("values", -2),
            ("values", -(2**63)),
            ("sources", -2),
            ("counts", -1),
            ("times", 2**63 - 1),
            ("times", -2),
        ],
    )
    def test_a_slot_that_cannot_be_is_refused(self, memory, name, row) -> None:
        before = getattr(memory, name).clone()
        getattr(memory, name)[7] = row
        with pytest.raises(ValueError, match=name.removesuffix("s")):
            memory(unit(2, 8))
        getattr(memory, name).copy_(before)
        assert memory(memory.keys[7]).slots[0] == 7
        check_found(memory)

    def test_every_change_has_a_version(self, memory) -> None:
        other = copy.deepcopy(memory)
        other.forget(slots=torch.arange(5, 60))
        for change in (
            lambda: teach(memory, unit(2, 8), ids(1, 2)),
            lambda: memory.write(unit(2, 8), ids(1, 2)),
            lambda: memory.merge(other),
            lambda: memory.forget(value=5),
            lambda: memory.load_state_dict(other.state_dict()),
            lambda: memory.reset(),
        ):
            version = memory.version
            recall = memory(unit(2, 8))
            assert memory.version == version, "asking changes nothing"
            change()
            assert memory.version > version
            with pytest.raises(ValueError, match="Ask again"):
                memory.loss(recall, ids(1, 2))


def edit_without_notice(backend: str, search: str) -> None:
    """Through `.data` and numpy, of which torch tells nobody: an answer or a refusal, but no crash and no hang."""
    with using(backend) as new_memory:
        memory = new_memory(key_size=8, capacity=60, k=2, search=search)
        teach(memory, unit(50, 8), torch.arange(50) % 5)
        edits = [
            lambda: memory.values.data.copy_(memory.values[torch.randperm(60)]),
            lambda: memory.values.data.fill_(3),
            lambda: memory.values.data.copy_(torch.randint(-1, 9, (60,))),
            lambda: memory.values.numpy().fill(2**62),
            lambda: memory.values.numpy().__setitem__(slice(0, 60, 2), -7),
            lambda: memory.times.numpy().fill(2**63 - 1),
            lambda: memory.times.data.copy_(torch.randint(0, 9, (60,))),
            lambda: memory.counts.data.fill_(-(2**63)),
            lambda: memory.sources.numpy().fill(10**12),
            lambda: memory.keys.data.fill_(1e35),
            lambda: memory.keys.data.mul_(1e-30),
        ]
        good = copy.deepcopy(memory.state_dict())
        for edit in edits:
            for recall_first in (True, False):
                # Of most targets no neighbour is right, so that the loss looks for the newest slot of their value.
                memory.loss(memory(unit(6, 8)), torch.arange(6))
                recall = memory(unit(6, 8)) if recall_first else None
                edit()
                with contextlib.suppress(ValueError):
                    for _ in range(5):
                        recall = recall or memory(unit(6, 8))
                        memory.loss(recall, torch.arange(6))
                        memory.update(recall, torch.arange(6).flip(0))
                        recall = None
                        memory.loss(memory(unit(6, 8)), torch.arange(6))
                        memory.forget(value=3)
                memory.load_state_dict(good)
                check_found(memory, share=0.9 if search == "auto" else 1.0)


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("backend", ["native", "torch"])
def test_edits_that_torch_does_not_tell_of_neither_crash_nor_hang(backend, search) -> None:
    in_a_process(edit_without_notice, backend, search, timeout=30.0)


def first(value: float) -> Callable[[Tensor], object]:
    return lambda tensor: tensor.view(-1)[:1].fill_(value)


EDITS: dict[str, tuple[str, Callable[[Tensor], object]]] = {
    "a slot past the last": ("slots", first(10_000_000)),
    "a negative slot": ("slots", first(-5)),
    "another slot": ("slots", lambda slots: slots.copy_(slots.flip(-1))),
    "a slot by numpy": ("slots", lambda slots: slots.numpy().fill(2**40)),
    "a negative slot by data": ("slots", lambda slots: slots.data.fill_(-(2**40))),
    "a value": ("values", lambda values: values.fill_(3)),
    "a value by numpy": ("values", lambda values: values.numpy().fill(3)),
    "a similarity": ("similarities", first(float("nan"))),
    "a similarity by numpy": ("similarities", lambda similarities: similarities.numpy().fill(1e30)),
    "a query": ("query", lambda query: query.mul_(2)),
    "a query by numpy": ("query", lambda query: query.numpy().fill(float("inf"))),
}


def edit_recalls(backend: str, search: str) -> None:
    for edit in EDITS:
        for filled in (True, False):
            print(edit, "of a filled memory" if filled else "of an empty memory", flush=True)  # shown where it fails
            edit_a_recall(backend, search, edit, filled)


def edit_a_recall(backend: str, search: str, edit: str, filled: bool) -> None:
    name, change = EDITS[edit]
    noticed = "numpy" not in edit and "data" not in edit  # torch counts the edits that it sees
    with using(backend) as new_memory:
        for gradient in (False, True):
            if gradient and not noticed:
                continue
            for method in ("loss", "update"):
                memory = new_memory(key_size=8, capacity=20, k=3, search=search)
                if filled:
                    teach(memory, unit(10, 8), torch.arange(10))
                before = snapshot(memory)
                recall = memory(unit(2, 8).requires_grad_(gradient))
                with torch.no_grad():
                    change(getattr(recall, name))
                refused = False
                try:
                    getattr(memory, method)(recall, ids(3, 3))
                except ValueError:
                    refused = True
                if noticed:
                    assert refused
                if refused:
                    assert_same(before, snapshot(memory))
                norms = memory.keys[memory.values >= 0].norm(dim=1)
                assert torch.allclose(norms, torch.ones_like(norms), atol=1e-4), "a key that is not of length 1"
                check_found(memory)


@pytest.mark.parametrize("search", ["exact", "auto"])
@pytest.mark.parametrize("backend", ["native", "torch"])
def test_an_edited_recall_is_refused(backend, search) -> None:
    in_a_process(edit_recalls, backend, search)


@pytest.mark.parametrize("make_copy", [copy.deepcopy, lambda both: pickle.loads(pickle.dumps(both))])
class TestACopyOfBoth:
    def test_a_stale_recall_stays_stale(self, new_memory, make_copy) -> None:
        memory, recalls = new_memory(key_size=8, capacity=60, k=4), []
        for _ in range(5):
            recalls.append(memory(unit(2, 8)))
            teach(memory, unit(3, 8), ids(1, 2, 3))
        copied_memory, copied_recalls = make_copy((memory, recalls))
        before = snapshot(copied_memory)
        for recall in copied_recalls:
            for method in (copied_memory.loss, copied_memory.update):
                with pytest.raises(ValueError, match="Ask again"):
                    method(recall, ids(1, 2))
        assert_same(before, snapshot(copied_memory))

    def test_a_good_recall_stays_good_and_belongs_to_the_copy(self, memory, make_copy) -> None:
        recall: Recall = memory(unit(2, 8))
        copied_memory, copied_recall = make_copy((memory, recall))
        with pytest.raises(ValueError, match="another memory"):
            memory.update(copied_recall, ids(1, 2))
        for each, its_recall in ((memory, recall), (copied_memory, copied_recall)):
            each.update(its_recall, ids(1, 2), generator=torch.Generator().manual_seed(0))
        assert_same(snapshot(memory), snapshot(copied_memory))
