"""Processes: a memory that was sent, shared or forked answers rightly in all of them."""

import multiprocessing
import os
import pickle
import sys
import traceback
from typing import Any

import pytest
import torch
import torch.multiprocessing
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from rarecall import AutoSearch, Memory
from tests.helpers import SEARCHES, check_found, teach, unit, using
from tests.processes import in_a_process

SIZE, FILLED, CAPACITY = 16, 600, 1000


def filled_memory(search: str) -> Memory:
    memory = Memory(SIZE, CAPACITY, k=4, search=search)
    for values in torch.arange(FILLED).split(200):
        teach(memory, unit(200, SIZE), values)
    memory(unit(3, SIZE))
    return memory


def share(memory: Memory) -> float:
    """Of stored keys, how many are found again at least: lists are read from the first key on."""
    return 0.95 if isinstance(memory.search, AutoSearch) else 1.0


def go_on(memory: Memory) -> None:
    """Asks, teaches and forgets, and all of it is right."""
    check_found(memory, share(memory))
    for step in range(6):
        new = unit(30, SIZE)
        teach(memory, new, torch.arange(30) + 10_000 * (step + 1))
        answers = memory(new).value - 10_000 * (step + 1)
        assert (answers == torch.arange(30)).float().mean() >= share(memory)
        memory.forget(slots=torch.arange(step * 50, step * 50 + 20))
        check_found(memory, share(memory))


def receive(search: str, what: str, inbox: Any, outbox: Any) -> None:
    """What the other process does with the memory or state dict that it is sent."""
    torch.set_num_threads(1)
    try:
        with using("native"):
            received = inbox.get()
            if what == "state_dict":
                memory = Memory(SIZE, CAPACITY, k=4, search=search)
                memory.load_state_dict(received)
            else:
                memory = received.memory if what == "network" else received
            check_found(memory, share(memory))
            outbox.put(memory.values[:FILLED].tolist())
            assert inbox.get() == "go on"
            if what != "shared":
                go_on(memory)
            outbox.put("done")
    except BaseException:
        outbox.put(traceback.format_exc())


class Network(nn.Module):
    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self.linear, self.memory = nn.Linear(3, SIZE), memory


def send(search: str, what: str) -> None:
    context = torch.multiprocessing.get_context("fork")
    with using("native"):
        there, back = context.Queue(), context.Queue()
        other = context.Process(target=receive, args=(search, what, there, back))
        other.start()  # before there is a memory that it could inherit
        memory = filled_memory(search)
        expected = memory.values[:FILLED].tolist()
        if what == "shared":
            memory.share_memory()
        there.put({"network": Network(memory), "state_dict": memory.state_dict()}.get(what, memory))
        answer = back.get(timeout=30)
        assert answer == expected, answer
        check_found(memory, share(memory))
        if what != "shared":
            go_on(memory)
        there.put("go on")
        answer = back.get(timeout=30)
        assert answer == "done", answer
        go_on(memory)
        other.join(30)
        assert other.exitcode == 0


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("what", ["memory", "network", "state_dict", "shared"])
def test_what_is_sent_through_a_queue_works_on_both_sides(search, what) -> None:
    """Each side has a memory of its own afterwards: it teaches and forgets without the other."""
    in_a_process(send, search, what)


def spawned(memory: Memory) -> None:
    torch.set_num_threads(1)
    with using("native"):
        go_on(memory)


def send_to_spawned(search: str) -> None:
    with using("native"):
        memory = filled_memory(search)
        other = torch.multiprocessing.get_context("spawn").Process(target=spawned, args=(memory,))
        other.start()
        go_on(memory)
        other.join(60)
        assert other.exitcode == 0
        go_on(memory)


@pytest.mark.slow
@pytest.mark.parametrize("search", SEARCHES)
def test_a_spawned_process_gets_a_memory_of_its_own(search) -> None:
    in_a_process(send_to_spawned, search)


def share_memory(search: str, part: str) -> None:
    with using("native"):
        memory = filled_memory(search)
        module = {"memory": memory, "search": memory.search, "network": Network(memory)}[part]
        module.share_memory()
        go_on(memory)
        module.share_memory()
        check_found(memory, share(memory))
        if part != "search":
            assert memory.keys.is_shared()


@pytest.mark.parametrize("search", SEARCHES)
def test_shared_storage_is_taken_up(search) -> None:
    for part in ("memory", "search", "network"):
        in_a_process(share_memory, search, part)


def fork(search: str) -> None:
    with using("native"):
        torch.set_num_threads(2)  # the threads that the parent had are not in the child
        memory = filled_memory(search)
        memory(unit(300, SIZE))
        torch.set_num_threads(1)

        def child() -> None:
            go_on(memory)

        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        go_on(memory)
        process.join(30)
        assert process.exitcode == 0
        check_found(memory, share(memory))


@pytest.mark.parametrize("search", SEARCHES)
def test_after_a_fork_both_have_a_memory_of_their_own(search) -> None:
    in_a_process(fork, search)


class Answers(Dataset[Tensor]):
    """What a memory answers to its own keys, asked in a worker."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    def __len__(self) -> int:
        return FILLED // 100

    def __getitem__(self, index: int) -> Tensor:
        return self.memory(self.memory.keys[100 * index : 100 * index + 100]).value


def load_data(search: str) -> None:
    with using("native"):
        memory = filled_memory(search)
        expected = memory.values[:FILLED].clone()
        for _ in range(2):
            loader = DataLoader(Answers(memory), num_workers=1, batch_size=None, multiprocessing_context="fork")
            answers = torch.cat(list(loader))
            assert (answers == expected).float().mean() >= share(memory)
            check_found(memory, share(memory))
            teach(memory, unit(100, SIZE), torch.arange(100) + 50_000)
        go_on(memory)


@pytest.mark.parametrize("search", SEARCHES)
def test_the_workers_of_a_data_loader_ask(search) -> None:
    in_a_process(load_data, search)


@pytest.mark.parametrize("search", SEARCHES)
def test_a_pickled_memory_is_a_memory_of_its_own(new_memory, search) -> None:
    memory = new_memory(SIZE, 60, k=4, search=search)
    teach(memory, unit(40, SIZE), torch.arange(40))
    other = pickle.loads(pickle.dumps(memory))
    teach(memory, unit(20, SIZE), torch.arange(20))
    assert len(other) == 40
    check_found(other)
    teach(other, unit(10, SIZE), torch.arange(10))
    check_found(other)
    check_found(memory)


def train_in_parallel(rank: int, search: str, folder: str) -> None:
    """One of two ranks that train a network with a memory, whose buffers rank 0 sends to rank 1 at every forward."""
    import torch.distributed as dist

    torch.manual_seed(rank)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    with using("native"):
        memory = Memory(SIZE, 200, k=4, search=search)
        network = nn.parallel.DistributedDataParallel(Recalling(memory))
        for step in range(6):
            target = torch.arange(8) + 100 * rank + 10 * step
            recall = network(torch.randn(8, 3))
            check_found(memory, share(memory))
            memory.loss(recall, target).backward()
            memory.update(recall, target)
            check_found(memory, share(memory))
        network(torch.randn(8, 3))
        check_found(memory, share(memory))
        values = [torch.empty_like(memory.values) for _ in range(2)]
        dist.all_gather(values, memory.values)
        assert torch.equal(*values)
        memory.update(memory(unit(8, SIZE)), torch.arange(8) + 1000)
        memory.forget(value=1000)
        check_found(memory, share(memory))
    sys.stdout.flush()
    # Not by the destructors: that of a process group that DistributedDataParallel holds last waits for a thread of gloo
    # while it holds the GIL, and the thread may be waiting for the GIL to free a tensor (torch 2.13).
    os._exit(0)


class Recalling(Network):
    def forward(self, x: Tensor) -> Any:
        return self.memory(self.linear(x))


def train_two_ranks(search: str, folder: str) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=train_in_parallel, args=(rank, search, folder)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(40)
    codes = [rank.exitcode for rank in ranks]
    for rank in ranks:
        rank.kill()
    assert codes == [0, 0], f"exit codes {codes}; None is a rank that hangs"


@pytest.mark.parametrize("search", SEARCHES)
def test_two_ranks_of_distributed_data_parallel_stay_usable(search, tmp_path) -> None:
    in_a_process(train_two_ranks, search, str(tmp_path))
