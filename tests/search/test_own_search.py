"""The example of a search of one's own; as "hash" it also takes part in the tests of every search."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn.functional import normalize

from examples import own_search
from examples.own_search import HashSearch
from rarecall import Memory
from tests.helpers import teach, unit


def check_buckets(memory: Memory) -> None:
    """Every filled slot is in its bucket of each table; nothing else is in any bucket."""
    search, filled = memory.search, (memory.values >= 0).nonzero().squeeze(1)
    expected = dict(zip(filled.tolist(), search.hash(memory.keys[filled]), strict=True))
    assert search.hashes == expected
    inside = {(slot, bucket) for bucket, slots in search.buckets.items() for slot in slots}
    assert inside == {(slot, bucket) for slot, buckets in expected.items() for bucket in buckets}


def test_buckets_are_kept_by_every_update_and_forget() -> None:
    memory = Memory(8, 60, k=10, search=HashSearch(8, 60, tables=3, bits=3))
    centres = torch.randn(10, 8)
    for step in range(60):
        target = torch.randint(10, (6,))
        teach(memory, centres[target] + 0.7 * torch.randn(6, 8), target, source=torch.randint(5, (6,)))
        if step % 10 == 9:
            memory.forget(value=step // 10)
            memory.forget(source=step // 15)
        check_buckets(memory)
    memory.reset()
    check_buckets(memory)


def test_where_all_keys_share_a_bucket_it_is_exact(monkeypatch) -> None:
    monkeypatch.setattr(own_search, "SMALL", 0)
    memory, plain = Memory(8, 300, k=20, search=HashSearch(8, 300, tables=64, bits=1)), Memory(8, 300, k=20)
    keys, exclude = unit(300, 8), torch.randint(-1, 5, (30,))
    for each in (memory, plain):
        teach(each, keys, torch.arange(300), source=torch.arange(300) % 5)
    query = unit(30, 8)
    assert torch.equal(memory(query).slots, plain(query).slots)
    assert torch.equal(memory(query, exclude=exclude).slots, plain(query, exclude=exclude).slots)


@pytest.mark.parametrize(("tables", "bits"), [(1, 4), (4, 8), (8, 6), (16, 12)])
@pytest.mark.parametrize("angle", [0.2, 0.45, 0.9])
def test_it_finds_with_the_probability_that_theory_promises(monkeypatch, tables, bits, angle) -> None:
    """A key at `angle` is found with probability 1 - (1 - (1 - angle / pi) ** bits) ** tables."""
    monkeypatch.setattr(own_search, "SMALL", 0)
    trials, size = 4000, 32
    promised = 1 - (1 - (1 - angle / math.pi) ** bits) ** tables
    key, aside = unit(2, trials, size)
    aside = aside - (aside * key).sum(1, keepdim=True) * key
    query = math.cos(angle) * key + math.sin(angle) * normalize(aside, dim=1)
    found = 0
    # Hyperplanes are drawn anew for each part, since the promise is about their choice too.
    for part in range(40):
        rows = slice(part * trials // 40, (part + 1) * trials // 40)
        memory = Memory(size, 100, k=100, search=HashSearch(size, 100, tables=tables, bits=bits))
        memory.write(key[rows], torch.arange(100))
        found += (memory(query[rows]).slots == torch.arange(100)[:, None]).any(1).sum().item()
    # Keys that share their hyperplanes are not independent: five deviations of the independent case, and 1%.
    assert found / trials == pytest.approx(promised, abs=5 * math.sqrt(promised * (1 - promised) / trials) + 0.01)


def test_the_example_runs() -> None:
    path = Path(own_search.__file__)
    environment = os.environ | {"PYTHONPATH": str(path.parent.parent)}
    run = subprocess.run([sys.executable, path], capture_output=True, text=True, env=environment, check=True)
    assert int(run.stdout.split("%")[0]) > 90
