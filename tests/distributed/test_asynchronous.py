"""Replicas at their own pace: the rules for what has changed meanwhile, and how it begins, fails and ends."""

from __future__ import annotations

import copy
import os
import signal
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from rarecall import Memory, Recall
from rarecall.distributed import JointMemory, asynchronous, replicate, shard
from rarecall.distributed.owner import Owner
from tests.distributed.test_errors import told
from tests.helpers import ids, unit
from tests.ranks import Ranks, made

SIZE = 8  # key dimension


def axis(*which: int) -> Tensor:
    """Unit vectors along the axes."""
    return torch.eye(SIZE)[list(which)]


def contents(memory: Memory) -> list[Any]:
    """What the filled slots hold, in an order that does not depend on where they are."""
    rows = zip(*(tensor.tolist() for tensor in memory.slots()[1:]), strict=True)
    return sorted(rows)


# ---- one after the other, it is one memory ----


def in_turn(rank: int, mesh: DeviceMesh) -> tuple[list[Any], list[Any]]:
    """Each step is of another rank; all of them know what one process would have found."""
    one, random = Memory(SIZE, 11, k=4, age_noise=0.0), torch.Generator().manual_seed(3)
    many = shard(Memory(SIZE, 11, k=4, age_noise=0.0), mesh)
    with asynchronous(many):
        for step in range(60):
            vectors, target = torch.randn(1, SIZE, generator=random), torch.randint(5, (1,), generator=random)
            exclude = torch.randint(-1, 4, (1,), generator=random)
            found = []
            for memory in (one, many) if step % mesh.size() == rank else (one,):
                query = vectors.clone().requires_grad_()
                recall = memory(query, exclude=exclude)
                loss = memory.loss(recall, target)
                memory.update(recall, target, source=torch.tensor([step % 5]))
                (loss + (recall.weights * torch.arange(4.0)).sum() + recall.similarities[0, 0].clamp(-2, 2)).backward()
                assert query.grad is not None
                found.append((recall.values, recall.similarities, recall.weights, loss, query.grad))
            for ours, theirs in zip(*found, strict=True) if len(found) == 2 else ():
                torch.testing.assert_close(ours, theirs)
            dist.barrier()
            if step % 20 == 19:
                gone = one.forget(value=[1, 2])
                assert rank or gone == many.forget(value=[1, 2])
                dist.barrier()
    return contents(one), contents(many)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_replicas_that_take_turns_are_one_memory(size) -> None:
    for one, many in made(size)(in_turn):
        assert one == many


# ---- what has changed meanwhile ----


def changed(rank: int, mesh: DeviceMesh, change: str) -> dict[str, Any]:
    """Rank 0 asks; rank 1 changes what it found; rank 0 goes on with what it knows."""
    memory = shard(Memory(SIZE, 4, k=4, age_noise=0.0), mesh)
    if rank == 0:
        memory.write(axis(0, 1), ids(5, 6))
    else:
        memory.write(axis(0)[:0], ids())
    seen: dict[str, Any] = {}
    with asynchronous(memory) as conflicts:
        near = (axis(0) + 0.5 * axis(1)).requires_grad_()  # nearest is 5, then 6
        if rank == 0:
            recall = memory(near)
            assert recall.values[0, :2].tolist() == [5, 6]
        dist.barrier()
        if rank == 1:
            if change == "written over":
                for k in range(4):
                    memory.write(axis(4 + k), ids(10 + k))
            elif change == "forgotten":
                assert memory.forget(value=5) == 1
            elif change == "confirmed":
                other = memory(axis(0) + 0.5 * axis(2))
                memory.update(other, ids(5))
        dist.barrier()
        if rank == 0:
            loss = memory.loss(recall, ids(6))  # positive 6, negative 5
            (of_loss,) = torch.autograd.grad(loss, near)
            (of_similarity,) = torch.autograd.grad(recall.similarities[0, 0], near)
            memory.update(recall, ids(5))
            seen |= {"loss": loss.item(), "of_loss": of_loss, "of_similarity": of_similarity}
    held = memory.slots()
    seen |= {"held": {int(value): key for value, key in zip(held.values, held.keys, strict=True)}}
    return seen | {"moved": conflicts.moved, "counts": held.counts.tolist(), "now": int(memory.now)}


def both(change: str) -> tuple[dict[str, Any], int]:
    first, second = made(2)(changed, change)
    assert torch.equal(first["held"][5], second["held"][5])
    return first, first["moved"] + second["moved"]


def test_a_slot_that_was_confirmed_meanwhile_is_confirmed_again() -> None:
    seen, moved = both("confirmed")
    first = torch.nn.functional.normalize(axis(0) + torch.nn.functional.normalize(axis(0) + 0.5 * axis(2)))
    expected = torch.nn.functional.normalize(first + torch.nn.functional.normalize(axis(0) + 0.5 * axis(1)))
    torch.testing.assert_close(seen["held"][5], expected[0])
    assert moved == 0
    assert sorted(seen["counts"]) == [1, 3]
    assert seen["now"] == 3
    assert seen["loss"] > 0
    assert seen["of_loss"].any()
    assert seen["of_similarity"].any()


@pytest.mark.parametrize("change", ["written over", "forgotten"])
def test_an_example_whose_slot_is_gone_gets_one_of_its_own(change) -> None:
    seen, moved = both(change)
    torch.testing.assert_close(seen["held"][5], torch.nn.functional.normalize(axis(0) + 0.5 * axis(1))[0])
    assert moved == 1
    assert set(seen["counts"]) == {1}
    assert seen["now"] == (6 if change == "written over" else 2)


@pytest.mark.parametrize("change", ["written over", "forgotten"])
def test_a_slot_that_is_gone_gives_no_gradient(change) -> None:
    seen, _ = both(change)
    assert seen["loss"] == 0
    assert not seen["of_loss"].any()
    assert not seen["of_similarity"].any()


def two_writers(rank: int, mesh: DeviceMesh, noise: float, count: int) -> tuple[int, list[int]]:
    """Two replicas choose slots at the same time, then both write."""
    capacity = 400
    memory = shard(Memory(SIZE, capacity, age_noise=noise), mesh)
    for start in range(0, capacity, count):
        memory.write(unit(count, SIZE), torch.arange(start, start + count))
    owner: Any = Owner(memory._part, memory._joint)
    memory._part.joint = owner
    no, seeds = torch.tensor(count), (torch.tensor(1), torch.tensor(2))
    for replica, seed in enumerate(seeds):
        owner.answer("offers", replica, (no, seed))
    for replica, seed in enumerate(seeds):
        values = torch.arange(1000 * (replica + 1), 1000 * (replica + 1) + count)
        nearest = torch.full((count,), -1)
        owner.answer("update", replica, (torch.tensor(0), seed, no * 0, unit(count, SIZE), nearest, values, None, None))
    return owner.conflicts.taken, memory._part.values.tolist()


@pytest.mark.parametrize("noise", [0.0, 8.0])
def test_two_writers_that_chose_the_same_slot_get_two(noise) -> None:
    [(taken, held)] = made(1)(two_writers, noise, 10)
    assert set(range(1000, 1010)) | set(range(2000, 2010)) <= set(held)
    assert taken == 10 if noise == 0 else taken < 8


def steps_of_a_decoder(rank: int, mesh: DeviceMesh) -> list[Any]:
    memory = shard(Memory(SIZE, 20, k=3), mesh)
    with asynchronous(memory):
        recall = Recall.stack([memory(axis(i, i + 1)) for i in range(3)], dim=1)
        memory.loss(recall, torch.arange(6).view(2, 3))
        memory.update(recall, torch.arange(6).view(2, 3), mask=torch.tensor([[True] * 3, [False] * 3]))
    return memory.slots().values.tolist()


def test_stacked_recalls_and_masks() -> None:
    for values in made(2)(steps_of_a_decoder):
        assert sorted(values) == [0, 0, 1, 1, 2, 2]


# ---- all at once ----


def at_random(rank: int, mesh: DeviceMesh, capacity: int, search: str) -> dict[str, Any]:
    memory: JointMemory = shard(Memory(SIZE, capacity, k=5, search=search), mesh)
    random = torch.Generator().manual_seed(rank)
    steps, examples = 20 + 10 * rank, 0
    with asynchronous(memory) as conflicts:
        for _ in range(steps):
            n = int(torch.randint(5, (), generator=random))
            target = torch.randint(30, (n,), generator=random)
            query = torch.randn(n, SIZE, generator=random).requires_grad_()
            recall = memory(query)
            loss = memory.loss(recall, target)
            memory.update(recall, target, source=target, generator=random)
            (loss + recall.weights.sum()).backward()
            assert query.grad is not None
            assert query.grad.isfinite().all()
            examples += n
            time.sleep(0.002 * rank)
    query = unit(10, SIZE)
    recall, whole = memory(query), memory.gathered()
    assert (recall.slots < capacity).all()
    if search == "exact":  # the index has followed all changes
        assert torch.equal(recall.slots, whole(query).slots)
    return {"now": int(whole.now), "steps": steps, "examples": examples, "len": len(memory), "conflicts": conflicts}


@pytest.mark.parametrize(("size", "capacity", "search"), [(2, 40, "exact"), (3, 25, "auto"), (4, 5, "exact")])
def test_nothing_is_lost_between_replicas(size, capacity, search) -> None:
    ranks = made(size)(at_random, capacity, search)
    assert {each["now"] for each in ranks} == {sum(each["steps"] for each in ranks)}
    assert {each["len"] for each in ranks} == {capacity}
    remembered = sum(each["conflicts"].written + each["conflicts"].confirmed for each in ranks)
    assert remembered == sum(each["examples"] for each in ranks) if capacity > 5 else remembered > 0


# ---- errors, and the end ----


def together_inside(rank: int, mesh: DeviceMesh) -> list[str]:
    memory = shard(Memory(SIZE, 20, k=3), mesh)
    with asynchronous(memory):
        recall = memory(axis(0))
        refused = [told(each) for each in (memory.slots, memory.reset, memory.gathered, memory.state_dict)]
        refused += [told(memory.save, "nowhere"), told(memory.class_means, ids(1)), told(lambda: memory.keys)]
        refused += [told(copy.deepcopy, memory), told(memory.load_state_dict, {}), told(memory.double)]
        refused += [told(lambda: asynchronous(memory).__enter__())]
    assert "out of date" in told(memory.update, recall, ids(1))
    memory.update(memory(axis(0)), ids(1))
    return refused


def test_what_concerns_all_ranks_is_refused_inside() -> None:
    for refused in made(2)(together_inside):
        for each in refused:
            assert "Leave the block first" in each


def not_sharded(rank: int, mesh: DeviceMesh) -> list[str]:
    return [told(asynchronous(each).__enter__) for each in (replicate(Memory(4, 5), mesh), Memory(4, 5))]


def test_only_a_sharded_memory_has_replicas() -> None:
    for refused in made(2)(not_sharded):
        assert all("expected one that `shard` returned" in each for each in refused)


def wrong_call(rank: int, mesh: DeviceMesh) -> int:
    memory = shard(Memory(SIZE, 20, k=3), mesh)
    with asynchronous(memory):
        assert "expected (..., 8)" in told(memory, torch.zeros(2, 3))
        assert "nan" in told(memory, torch.full((1, SIZE), torch.nan))
        # Other keys on each rank, so that neither updates what the other has written before.
        recall = memory(axis(2 * rank, 2 * rank + 1))
        assert "target" in told(memory.update, recall, ids(1, 2, 3))
        memory.update(recall, ids(2 * rank, 2 * rank + 1))
        assert "out of date" in told(memory.update, recall, ids(1, 2))
        assert "slot 20" in told(lambda: memory.forget(slots=[20]))
    return len(memory)


def test_a_call_that_is_refused_leaves_the_others_alone() -> None:
    assert made(2)(wrong_call) == [4, 4]


def fails_on_one(rank: int, mesh: DeviceMesh) -> tuple[str, str]:
    memory = shard(Memory(SIZE, 20, k=3), mesh)

    def train() -> None:
        with asynchronous(memory):
            for step in range(10**6):
                memory(axis(0))
                if rank == 1 and step == 5:
                    raise ZeroDivisionError("by me")

    return told(train) if rank == 0 else told(_raising(train)), told(memory, axis(0))


def _raising(train: Any) -> Any:
    def call() -> None:
        try:
            train()
        except ZeroDivisionError as error:
            raise RuntimeError("own error") from error

    return call


def test_an_error_on_one_rank_is_one_on_all() -> None:
    (other, after), (own, own_after) = made(2)(fails_on_one)
    assert "rank 1 did not answer" in other
    assert "ZeroDivisionError: by me" in other
    assert "own error" in own
    assert "load the last checkpoint" in after
    assert "load the last checkpoint" in own_after


def lost(rank: int, mesh: DeviceMesh, how: int, leaving: bool) -> tuple[str, float]:
    memory = shard(Memory(SIZE, 20, k=3), mesh)
    died = 0.0

    def train() -> None:
        nonlocal died
        with asynchronous(memory):
            for step in range(5 if leaving and rank == 0 else 10**6):
                recall = memory(axis(0))
                memory.update(recall, ids(1))
                died = time.monotonic()
                if rank == 1 and step == 20:
                    os.kill(os.getpid(), how)

    said = told(train)
    return said, time.monotonic() - died


@pytest.mark.parametrize("leaving", [False, True])
def test_a_rank_that_dies_is_an_error_on_the_others(leaving) -> None:
    check_lost(signal.SIGKILL, leaving)


@pytest.mark.slow
@pytest.mark.parametrize("leaving", [False, True])
def test_a_rank_that_hangs_is_an_error_on_the_others(leaving) -> None:
    check_lost(signal.SIGSTOP, leaving)


def check_lost(how: int, leaving: bool) -> None:
    ranks = Ranks(2, timeout=5.0)
    try:
        for pipe in ranks.pipes:
            pipe.send((lost, (how, leaving)))
        assert ranks.pipes[0].poll(30), "rank 0 hangs"
        failure, answer = ranks.pipes[0].recv()
        assert not failure
        said, seconds = answer
        assert "rank 1 did not answer" in said
        assert leaving or seconds < 10
    finally:
        ranks.end()
