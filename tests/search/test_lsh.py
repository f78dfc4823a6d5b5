import copy
import math

import pytest
import torch

from rarecall import LSHSearch, Memory
from tests.helpers import check_found, ids, teach, unit


def check_tables(memory: Memory) -> None:
    """Every filled slot is in its bucket of each table once; nothing else is in any bucket."""
    search = memory.search
    filled = set((memory.values >= 0).nonzero().squeeze(1).tolist())
    codes = search._code(memory.keys @ search.planes)
    for table in range(search.tables):
        inside = (search.buckets[table] >= 0).nonzero()
        slots = search.buckets[table][tuple(inside.T)].tolist()
        assert len(slots) == len(set(slots))
        assert set(slots) <= filled
        let_go = filled - set(slots)
        assert not let_go or search.width < memory.capacity
        assert all(search.places[table, slot] == -1 for slot in let_go)
        for slot, (bucket, place) in zip(slots, inside.tolist(), strict=True):
            assert codes[slot, table] == bucket == search.codes[table, slot]
            assert search.places[table, slot] == place


@pytest.mark.parametrize("width", [2, 64])
def test_tables_are_kept_by_every_update_and_forget(width) -> None:
    memory = Memory(8, 60, k=10, search=LSHSearch(8, 60, tables=3, bits=3, probes=4, width=width))
    centres = torch.randn(10, 8)
    for step in range(60):
        target = torch.randint(10, (6,))
        teach(memory, centres[target] + 0.7 * torch.randn(6, 8), target, source=torch.randint(5, (6,)))
        if step % 10 == 9:
            memory.forget(value=step // 10)
            memory.forget(source=step // 15)
        check_tables(memory)
    memory.reset()
    check_tables(memory)
    assert (memory.search.buckets == -1).all()


def test_with_every_bucket_probed_it_is_exact() -> None:
    memory = Memory(8, 300, k=20, search=LSHSearch(8, 300, tables=2, bits=4, probes=16, width=300))
    plain = Memory(8, 300, k=20)
    keys, exclude = unit(300, 8), torch.randint(-1, 5, (30,))
    for m in (memory, plain):
        teach(m, keys, torch.arange(300), source=torch.arange(300) % 5)
    query = unit(30, 8)
    assert torch.equal(memory(query).slots, plain(query).slots)
    assert torch.equal(memory(query, exclude=exclude).slots, plain(query, exclude=exclude).slots)


@pytest.mark.parametrize("way", ["copied", "loaded", "moved"])
def test_keys_edited_before_a_memory_is_asked_again_are_found(new_memory, way) -> None:
    """Its tables came with it, but they are of the keys before the edit."""
    memory, keys = new_memory(16, 1000, k=5, search="lsh"), unit(1000, 16)
    memory.write(unit(1000, 16), torch.arange(1000))
    memory(unit(1, 16))
    if way == "copied":
        other = copy.deepcopy(memory)
    elif way == "loaded":
        other = new_memory(16, 1000, k=5, search="lsh")
        other.load_state_dict(memory.state_dict())
    else:
        other = memory.cpu()  # where it was
    other.keys.copy_(keys)
    check_found(other)
    check_tables(other)


@pytest.mark.parametrize(("tables", "bits"), [(1, 4), (4, 8), (8, 6), (16, 12)])
@pytest.mark.parametrize("angle", [0.2, 0.45, 0.9])
def test_it_finds_with_the_probability_that_theory_promises(tables, bits, angle) -> None:
    """One probe a table: a key at `angle` is found with probability 1 - (1 - (1 - angle / pi) ** bits) ** tables."""
    trials, size = 4000, 32
    promised = 1 - (1 - (1 - angle / math.pi) ** bits) ** tables
    key = unit(trials, size)
    aside = torch.nn.functional.normalize(torch.randn(trials, size).addcmul(key, torch.ones(1)), dim=1)
    aside = aside - (aside * key).sum(1, keepdim=True) * key
    query = math.cos(angle) * key + math.sin(angle) * torch.nn.functional.normalize(aside, dim=1)
    found = 0
    # Hash vectors are drawn anew for each part, since the promise is about their choice too.
    for part in range(40):
        rows = slice(part * trials // 40, (part + 1) * trials // 40)
        memory = Memory(size, 100, k=100, search=LSHSearch(size, 100, tables=tables, bits=bits, probes=1, width=100))
        teach(memory, key[rows], torch.arange(100))
        found += (memory(query[rows]).slots == torch.arange(100)[:, None]).any(1).sum().item()
    # Keys that share their hash vectors are not independent: five deviations of the independent case, and 1%.
    assert found / trials == pytest.approx(promised, abs=5 * math.sqrt(promised * (1 - promised) / trials) + 0.01)


def test_more_probes_find_more() -> None:
    keys = unit(2000, 32)
    query = torch.nn.functional.normalize(keys + 0.08 * torch.randn(2000, 32), dim=1)
    recalls = []
    for probes in (1, 4, 16):
        generator = torch.Generator().manual_seed(0)
        search = LSHSearch(32, 2000, tables=2, bits=7, probes=probes, width=64, generator=generator)
        memory = Memory(32, 2000, search=search)
        teach(memory, keys, torch.arange(2000))
        recalls.append((memory(query).value == torch.arange(2000)).float().mean().item())
    assert recalls[0] + 0.1 < recalls[1] < recalls[2] - 0.02
    assert recalls[2] > 0.9


def test_the_first_probe_is_the_querys_own_bucket_and_the_others_are_nearest() -> None:
    search = LSHSearch(16, 100, tables=3, bits=6, probes=64)
    query = unit(5, 16)
    margins = (query @ search.planes).view(5, 3, 6)
    probed = search._probe(query @ search.planes)
    assert torch.equal(probed[..., 0], search._code(query @ search.planes))
    assert all(len(set(codes)) == 64 for codes in probed.flatten(0, 1).tolist())
    flipped = (probed ^ probed[..., :1]).unsqueeze(-1) >> torch.arange(6) & 1
    cost = (flipped * margins.square().unsqueeze(2)).sum(-1)
    assert (cost.diff(dim=-1) >= -1e-6).all()


def test_a_full_bucket_lets_go_of_the_slot_touched_longest_ago() -> None:
    memory = Memory(4, 20, k=20, search=LSHSearch(4, 20, tables=1, bits=1, probes=2, width=3))
    key = unit(4)
    for value in range(5):
        teach(memory, key[None], ids(value))
    assert sorted(v for v in memory(key).values.tolist() if v >= 0) == [2, 3, 4]
    assert len(memory) == 5


@pytest.mark.parametrize("recall", [0.5, 0.8, 0.95])
def test_tables_are_as_many_as_the_recall_asks_for(recall) -> None:
    """Keys at the cosine that the promise is about, and no bucket full: four deviations of 2000 trials is 0.045."""
    size, trials = 64, 2000
    key = unit(trials, size)
    aside = torch.randn(trials, size)
    aside = torch.nn.functional.normalize(aside - (aside * key).sum(1, keepdim=True) * key, dim=1)
    memory = Memory(size, trials, k=256, search=LSHSearch(size, trials, target_recall=recall, width=64))
    teach(memory, key, torch.arange(trials))
    query = 0.9 * key + math.sqrt(1 - 0.9**2) * aside
    found = (memory(query).slots == torch.arange(trials)[:, None]).any(1).float().mean().item()
    assert found > recall - 0.045
    fewer = LSHSearch(size, trials, target_recall=recall / 2, width=64)
    assert fewer.tables < memory.search.tables or fewer.tables == 1


def test_errors() -> None:
    for settings in (
        {"target_recall": 0},
        {"target_recall": 1},
        {"tables": 0},
        {"bits": 0},
        {"bits": 25},
        {"probes": 0},
        {"width": 0},
    ):
        with pytest.raises(ValueError, match=next(iter(settings))):
            LSHSearch(4, 100, **settings)
