"""What travels: queries, neighbours and touched slots, and little else."""

from __future__ import annotations

import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh

from rarecall import Memory
from rarecall.distributed import replicate, shard
from tests.helpers import unit
from tests.ranks import made

BATCH, K, SIZE = 32, 64, 64  # of a rank; neighbours; key dimension


def sent(rank: int, mesh: DeviceMesh, layout: str) -> float:
    torch.manual_seed(rank)
    memory = (shard if layout == "shard" else replicate)(Memory(SIZE, 2000, k=K), mesh)
    for _ in range(3):  # full, so that every rank has K neighbours to send
        memory.write(unit(2000 // mesh.size(), SIZE), torch.arange(2000 // mesh.size()))
    before, steps = memory.bytes_sent, 5
    for _ in range(steps):
        target = torch.randint(3000, (BATCH,))
        recall = memory(unit(BATCH, SIZE))
        memory.loss(recall, target)
        memory.update(recall, target)
    return (memory.bytes_sent - before) / steps


def model(size: int) -> tuple[float, float, float]:
    """What a rank sends in a step by the documents: queries, answers, and examples with the ages that are offered."""
    return (
        4 * SIZE * BATCH * (size - 1),
        16 * K * BATCH * (size - 1),
        (4 * SIZE + 16) * BATCH * (size - 1) / size + 8 * (size - 1) * BATCH * size,
    )


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_a_rank_sends_what_the_model_says(size) -> None:
    queries, answers, examples = model(size)
    bound = queries + 20 * K * BATCH * (size - 1) + (4 * SIZE + 8) * BATCH * (size - 1) / size
    for bytes_sent in made(size)(sent, "shard"):
        assert bytes_sent <= 1.1 * bound
        assert queries + answers <= bytes_sent <= 1.15 * (queries + answers + examples)


def test_replicas_send_examples_alone() -> None:
    for bytes_sent in made(3)(sent, "replicate"):
        assert bytes_sent < 1.3 * (4 * SIZE + 16) * BATCH * 2
