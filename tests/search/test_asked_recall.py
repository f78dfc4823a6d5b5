"""An approximate search keeps the recall that it is asked for, whatever the keys are like and however they come.

A query of a stored key finds it, or another slot that is as near.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from rarecall import Memory, backend
from tests.helpers import unit

SIZE = 64

pytestmark = pytest.mark.skipif(backend.extension() is None, reason="without the extension, the search is exact")


def kinds(count: int, each: int, noise: float) -> Tensor:
    """(count * each, SIZE): near-duplicates of a few vectors, those of one kind one after the other."""
    near = unit(count, SIZE).repeat_interleave(each, 0) + noise * torch.randn(count * each, SIZE) / SIZE**0.5
    return F.normalize(near, dim=1)


def found_again(memory: Memory, queries: Tensor) -> float:
    """The share of queries that find a slot as near as the nearest of all."""
    filled = memory.values >= 0
    nearest = torch.cat([(part @ memory.keys[filled].T).max(1).values for part in queries.split(500)])
    found = torch.cat([memory(part).similarities[:, 0] for part in queries.split(500)])
    return (found >= nearest - 3e-5).float().mean().item()  # its similarities are true to about 1e-5


def teach_stream(memory: Memory, keys: Tensor, batch: int = 100) -> None:
    for start in range(0, len(keys), batch):
        part = keys[start : start + batch]
        memory.update(memory(part), torch.arange(start, start + len(part)))


STREAMS = {
    "50 kinds, shuffled": lambda: kinds(50, 220, 0.03)[torch.randperm(11_000)],
    "50 kinds, in sorted order": lambda: kinds(50, 220, 0.03),
    "50 kinds, less alike": lambda: kinds(50, 220, 0.24)[torch.randperm(11_000)],
    "5 kinds, shuffled": lambda: kinds(5, 2200, 0.03)[torch.randperm(11_000)],
    "easy, then hard": lambda: torch.cat([unit(9000, SIZE), kinds(20, 150, 0.03)]),
    "many equal keys": lambda: torch.cat([unit(9000, SIZE), unit(20, SIZE).repeat(150, 1)]),
}


@pytest.mark.parametrize(("stream", "k"), [*((stream, 1) for stream in STREAMS), ("50 kinds, shuffled", 16)])
def test_a_stored_key_is_found_again(stream, k) -> None:
    keys = STREAMS[stream]()
    memory = Memory(SIZE, len(keys), k=k, search="auto")
    teach_stream(memory, keys)
    assert found_again(memory, memory.keys[torch.randperm(len(keys))[:500]]) >= 0.93
    assert found_again(memory, memory.keys[-500:]) >= 0.93


def test_after_half_of_the_slots_are_forgotten() -> None:
    memory = Memory(SIZE, 20_000, k=1, search="auto")
    teach_stream(memory, kinds(50, 400, 0.03)[torch.randperm(20_000)])
    memory.forget(slots=torch.randperm(20_000)[:10_000])
    stored = memory.slots().keys
    assert found_again(memory, stored[torch.randperm(len(stored))[:1000]]) >= 0.93


def test_keys_written_at_once_are_found_again() -> None:
    memory, keys = Memory(SIZE, 15_000, k=1, search="auto"), kinds(50, 300, 0.03)
    memory.write(keys, torch.arange(15_000))
    assert found_again(memory, keys[torch.randperm(15_000)[:1000]]) >= 0.93


@pytest.mark.slow
@pytest.mark.parametrize("wanted", [0.8, 0.95])
def test_every_window_of_a_stream_that_drifts_piles_up_and_alternates(wanted) -> None:
    memory = Memory(SIZE, 30_000, k=1, search="auto", target_recall=wanted)
    centres, wind = unit(200, SIZE), unit(200, SIZE)
    for window in range(30):
        if window < 10:
            centres = F.normalize(centres + 0.1 * wind, dim=1)
        of = torch.randint(3, (4000,)) if 10 <= window < 20 else torch.arange(4000) % 2 + 2 * (window % 100)
        if window < 10:
            of = torch.randint(200, (4000,))
        keys = F.normalize(centres[of % 200] + 0.24 * torch.randn(4000, SIZE) / 8, dim=1)
        teach_stream(memory, keys)
        queries = F.normalize(keys[torch.randperm(4000)[:1000]] + 0.02 * torch.randn(1000, SIZE) / 8, dim=1)
        assert found_again(memory, queries) >= wanted - 0.02, f"in window {window}"
