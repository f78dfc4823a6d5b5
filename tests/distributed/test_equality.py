"""The specification: N ranks give, bit for bit, the memory that one process gives on the joined batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from rarecall import Memory, Recall, RecallEmbedding
from rarecall.distributed import JointMemory, replicate, shard
from tests.helpers import using
from tests.ranks import made

FIELDS = ("query", "slots", "similarities", "values", "weights")
LAYOUTS = {"shard": shard, "replicate": replicate}
VALUES = 6


def assert_equal(one: Any, other: Any, what: str) -> None:
    assert torch.equal(one, other), f"{what}: {one} in one process, {other} on ranks"


def refusal(call: Any, *args: Any) -> str:
    """What a call says that is refused: there may be no room for so many examples."""
    try:
        call(*args)
    except ValueError as error:
        return str(error)
    return ""


class Both:
    """A memory of one process and the same one on ranks, which do the same with batches of their own."""

    def __init__(self, rank: int, mesh: DeviceMesh, layout: str, make: Any, seed: int, **arguments: Any) -> None:
        self.rank, self.size = rank, mesh.size()
        self.one: Memory = make(**arguments)
        self.many: JointMemory = LAYOUTS[layout](make(**arguments), mesh)
        self.random = torch.Generator().manual_seed(seed)
        self.drawn = 0

    def number(self, most: int) -> int:
        return int(torch.randint(most + 1, (), generator=self.random))

    def batch(self) -> tuple[Tensor, slice]:
        """Random vectors for all ranks, of which some are equal and some ranks have none; and which are this rank's."""
        counts = [self.number(4) * self.number(1) for _ in range(self.size)]
        vectors = torch.randn(sum(counts), self.one.key_size, generator=self.random)
        if self.number(1):
            vectors = vectors.sign()
        return vectors, slice(sum(counts[: self.rank]), sum(counts[: self.rank + 1]))

    def ids(self, n: int, least: int = 0) -> Tensor:
        return torch.randint(least, VALUES, (n,), generator=self.random)

    def generators(self) -> tuple[torch.Generator, torch.Generator]:
        """Equal ones on rank 0, whose numbers count."""
        self.drawn += 1
        return torch.Generator().manual_seed(self.drawn), torch.Generator().manual_seed(self.drawn + 1000 * self.rank)

    def step(self, layer: RecallEmbedding) -> None:
        vectors, mine = self.batch()
        n = len(vectors)
        target, source = self.ids(n), self.ids(n, -1) if self.number(1) else None
        exclude = self.ids(n, -1) if self.number(1) else None
        mask = self.ids(n) > 1 if self.number(1) else None
        through = self.number(1)
        stacked = self.number(3) == 0
        drawing = self.generators()
        seen = []
        for memory, rows, generator in zip((self.one, self.many), (slice(None), mine), drawing, strict=True):
            queries = [
                vectors[rows].to(memory.now.device, torch.get_default_dtype()).requires_grad_() for _ in range(2)
            ]
            excluded = None if exclude is None else exclude[rows]
            recalls = [memory(query, exclude=excluded) for query in queries[: 1 + stacked]]
            recall, goal, origin, part = recalls[0], target[rows], source, mask
            origin = None if source is None else source[rows]
            part = None if mask is None else mask[rows]
            if stacked:
                recall = Recall.stack(recalls, dim=1)
                goal = torch.stack([goal, goal], 1)
                origin = None if origin is None else torch.stack([origin, origin], 1)
                part = None if part is None else torch.stack([part, part], 1)
            loss = memory.loss(recall, goal, mask=part)
            also = (layer(recall).sum(-1) * recall.similarities[..., 0].clamp(-2, 2)).sum() if through else 0
            refused = refusal(memory.update, recall, goal, origin, part, generator)
            (loss + also).backward()
            seen.append((queries, recall, loss, refused))
        (queries, recall, loss, refused), (own_queries, own_recall, own_loss, own_refused) = seen
        assert refused == own_refused
        for name in FIELDS:
            assert_equal(getattr(recall, name)[mine], getattr(own_recall, name), name)
        assert_equal(loss, own_loss, "loss")
        for query, own in zip(queries[: 1 + stacked], own_queries, strict=False):
            assert_equal(query.grad[mine], own.grad, "gradient")

    def write(self) -> None:
        vectors, mine = self.batch()
        n = len(vectors)
        values, sources = self.ids(n), self.ids(n, -1) if self.number(1) else None
        counts = self.ids(n, 1) if self.number(1) else None
        self.drawn += 1
        refused = []
        for memory, rows in ((self.one, slice(None)), (self.many, mine)):
            torch.manual_seed(self.drawn)
            given = (None if each is None else each[rows] for each in (sources, counts))
            refused.append(refusal(memory.write, vectors[rows], values[rows], *given))
        assert refused[0] == refused[1]

    def forget(self) -> None:
        name = ("value", "source", "slots")[self.number(2)]
        most = self.one.capacity - 1 if name == "slots" else VALUES
        ids = [self.number(most) for _ in range(1 + self.number(2))]
        assert self.one.forget(**{name: ids}) == self.many.forget(**{name: ids})

    def check(self) -> None:
        """Whether they hold the same: what the ranks say together, and what each holds of it."""
        assert len(self.one) == len(self.many)
        for one, many in zip(self.one.slots(), self.many.slots(), strict=True):
            assert_equal(one, many, "slots")
        for name in ("keys", "values", "sources", "counts", "times", "ages"):
            many = getattr(self.many, name)
            assert_equal(getattr(self.one, name), many.full_tensor() if hasattr(many, "full_tensor") else many, name)
        assert_equal(self.one.now, self.many.now, "now")
        values = torch.arange(self.rank % 2, VALUES)
        assert_equal(self.one.class_means(values), self.many.class_means(values), "class means")


def live(
    rank: int, mesh: DeviceMesh, layout: str, backend: str, seed: int, arguments: dict[str, Any], steps: int
) -> None:
    torch.set_default_dtype(torch.float64 if backend == "float64" else torch.float32)
    try:
        with using(backend) as make:
            both = Both(rank, mesh, layout, make, seed, **arguments)
            torch.manual_seed(0)
            layer = RecallEmbedding(VALUES, 2)
            for _ in range(steps):
                todo = both.number(9)
                both.write() if todo == 0 else both.forget() if todo == 1 else both.step(layer)
                if both.number(4) == 0:
                    both.check()
            both.check()
            if seed % 5 == 0:
                both.one.reset()
                both.many.reset()
                both.step(layer)
                both.check()
    finally:
        torch.set_default_dtype(torch.float32)


memories = st.fixed_dictionaries(
    {
        "key_size": st.integers(1, 9),
        "capacity": st.integers(1, 40),
        "k": st.integers(1, 12),
        "age_noise": st.sampled_from([0.0, 2.5, 8.0]),
        "averaging": st.sampled_from(["half", "count"]),
    }
)
lives = given(
    layout=st.sampled_from(sorted(LAYOUTS)),
    backend=st.sampled_from(["native", "torch", "float64"]),
    seed=st.integers(0, 2**16),
    arguments=memories,
)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_ranks_together_are_one_memory(size) -> None:
    @settings(max_examples=10, phases=[Phase.generate])
    @lives
    def together(layout: str, backend: str, seed: int, arguments: dict[str, Any]) -> None:
        made(size)(live, layout, backend, seed, arguments, 8)

    together()


@pytest.mark.parametrize("size", [2, 3])
def test_replicas_make_room_as_one_memory_does(size) -> None:
    balanced = {"key_size": 4, "capacity": 20, "k": 5, "age_noise": 2.5, "averaging": "count", "eviction": "balanced"}
    for seed in range(5):
        made(size)(live, "replicate", "native", seed, balanced, 30)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_ranks_together_are_one_memory_for_long(size) -> None:
    @settings(max_examples=100, phases=[Phase.generate])
    @lives
    def together(layout: str, backend: str, seed: int, arguments: dict[str, Any]) -> None:
        made(size)(live, layout, backend, seed, arguments, 40)

    together()
