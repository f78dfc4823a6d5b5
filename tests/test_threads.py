"""Threads: any number of them may ask beside one that teaches, and several may teach in turn."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn

from rarecall import Memory, MemoryClassifier
from tests.helpers import SEARCHES, check_found, ids, teach, unit, using
from tests.processes import in_a_process

SIZE = 32
# Of the values that are taught for one vector, each is the one before plus this.
TURN = 1_000_000


def refused_as_stale(error: ValueError) -> None:
    if "Ask again" not in str(error):
        raise error


class Taught:
    """Vectors, and which of their values may be answered: the last that was taught, or one that just is being."""

    def __init__(self, vectors: Tensor) -> None:
        self.vectors = vectors
        self.started = torch.zeros(len(vectors), dtype=torch.int64)
        self.finished = torch.zeros(len(vectors), dtype=torch.int64)

    def teach(self, memory: Memory, which: Tensor) -> None:
        self.started[which] += 1
        while True:
            try:
                memory.update(memory(self.vectors[which]), which + TURN * self.started[which])
                break
            except ValueError as error:
                refused_as_stale(error)  # another thread taught in between
        self.finished[which] = self.started[which]

    def ask(self, memory: Memory, which: Tensor) -> tuple[int, int]:
        """Checks a recall; returns how many were asked and how many of these got their own vector's value."""
        query = self.vectors[which]
        least = self.finished[which].clone()
        recall = memory(query)
        most = self.started[which].clone()
        # Whatever is found was taught: the similarity is that of the vector with this value.
        there = recall.slots >= 0
        similarities = (query[:, None] * self.vectors[recall.values.clamp(min=0) % TURN]).sum(-1)
        assert torch.allclose(recall.similarities[there], similarities[there], atol=1e-4)
        assert (recall.similarities[:, :-1] >= recall.similarities[:, 1:]).all()
        assert all(len(set(row)) == len(row) for row in recall.slots.tolist() if -1 not in row)
        turn = recall.value // TURN
        own = (recall.value % TURN == which) & (least <= turn) & (turn <= most)
        try:
            memory.loss(recall, which)
        except ValueError as error:
            refused_as_stale(error)  # the memory may have changed since
        return len(which), int(own.sum())


def ask_while_one_teaches(backend: str, search: str, keys: int, steps: int) -> None:
    capacity = keys + 16 * steps + 100
    with using(backend, small=None) as new_memory:
        memory = new_memory(SIZE, capacity, k=4, search=search)
        taught = Taught(unit(keys, SIZE))
        for which in torch.arange(keys).split(1000):
            taught.teach(memory, which)
        done = threading.Event()

        def ask(seed: int) -> tuple[int, int]:
            generator, asked, own = torch.Generator().manual_seed(seed), 0, 0
            while not done.is_set() or asked < 100:
                more = taught.ask(memory, torch.randint(keys, (20,), generator=generator))
                asked, own = asked + more[0], own + more[1]
            return asked, own

        with ThreadPoolExecutor(3) as pool:
            answers = [pool.submit(ask, seed) for seed in range(3)]
            try:
                for step in range(steps):
                    # One half gets new values: all of them miss. The other is taught the same again, and confirmed.
                    taught.teach(memory, torch.randperm(keys // 2)[:16])
                    if step % 3 == 0:
                        which = keys // 2 + torch.randperm(keys // 2)[:16]
                        memory.update(memory(taught.vectors[which]), which + TURN * taught.finished[which])
            finally:
                done.set()
            asked, own = (sum(numbers) for numbers in zip(*(answer.result() for answer in answers), strict=True))
        share = 0.95 if search == "auto" else 1.0
        assert own >= share * asked, f"{asked - own} of {asked} answers are wrong"
        check_found(memory, share)


@pytest.mark.parametrize(
    ("search", "keys"), [("exact", 1000), ("hash", 1000), ("auto", 9000)]
)  # of which auto has lists
def test_answers_beside_a_teacher_are_those_of_before_or_after(search, keys) -> None:
    in_a_process(ask_while_one_teaches, "native", search, keys, 60)


@pytest.mark.parametrize("search", ["exact", "hash"])
def test_without_the_extension_too(search) -> None:
    in_a_process(ask_while_one_teaches, "torch", search, 500, 25)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["native", "torch", "float64"])
@pytest.mark.parametrize("search", SEARCHES)
def test_for_longer(backend, search) -> None:
    in_a_process(ask_while_one_teaches, backend, search, 12_000, 2000, timeout=300.0)


def teach_and_forget_at_once(search: str) -> None:
    memory = Memory(SIZE, 4000, k=4, search=search)
    taught = Taught(unit(2000, SIZE))

    def teach_part(part: int) -> None:
        for which in torch.arange(part, 2000, 4).split(10):
            taught.teach(memory, which)

    def forget() -> int:
        return sum(memory.forget(value=TURN + value) for value in range(0, 2000, 7))

    with ThreadPoolExecutor(5) as pool:
        teachers = [pool.submit(teach_part, part) for part in range(4)]
        forgotten = pool.submit(forget)
        for teacher in teachers:
            teacher.result()
    assert len(memory) == 2000 - forgotten.result()
    check_found(memory)


@pytest.mark.parametrize("search", SEARCHES)
def test_several_teach_and_one_forgets(search) -> None:
    """An update whose recall is stale by then is refused, and nothing of any other is lost."""
    in_a_process(teach_and_forget_at_once, search)


def merge_both_ways() -> None:
    memory, other = Memory(SIZE, 4000), Memory(SIZE, 4000)
    memory.write(unit(3, SIZE), ids(1, 2, 3))
    other.write(unit(3, SIZE), ids(4, 5, 6))
    with ThreadPoolExecutor(2) as pool:
        for _ in range(4):
            merged = [pool.submit(memory.merge, other), pool.submit(other.merge, memory)]
            for each in merged:
                each.result()
    check_found(memory)
    check_found(other)


def test_two_memories_that_take_each_other_in_do_not_wait_for_ever() -> None:
    in_a_process(merge_both_ways, timeout=20.0)


class Slow(nn.Module):
    """An embedder in which two calls meet, of which the second leaves after the first."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.5)
        self.together = threading.Barrier(2)
        self.first_is_done = threading.Event()
        self.modes: list[bool] = []

    def forward(self, x: Tensor) -> Tensor:
        try:
            first = self.together.wait(timeout=0.5) == 0
        except threading.BrokenBarrierError:  # calls wait for each other: none meets another
            first = True
        if not first:
            self.first_is_done.wait(timeout=0.5)
        self.modes.append(self.dropout.training)
        return self.dropout(x)


@pytest.mark.parametrize("training", [True, False])
def test_predictions_at_once_leave_the_embedder_in_its_mode(training) -> None:
    memory = Memory(4, 8)
    teach(memory, torch.eye(4), ids(1, 2, 3, 4))
    classifier = MemoryClassifier(Slow(), memory).train(training)

    def predict() -> list[int]:
        label = classifier.predict(torch.eye(4)).label.tolist()
        classifier.embedder.first_is_done.set()
        return label

    with ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(predict) for _ in range(2)]
        assert [answer.result() for answer in answers] == [[1, 2, 3, 4]] * 2
    assert classifier.embedder.modes == [False, False]
    assert [module.training for module in classifier.embedder.modules()] == [training, training]
