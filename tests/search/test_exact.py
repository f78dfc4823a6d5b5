"""Exact search against brute force in float64, in every backend, and in every variant of the extension."""

import copy
import io
import os

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import Tensor

from rarecall import Memory, backend
from rarecall.search import exact
from tests.helpers import ids, pair, teach, train, unit

extension = backend.extension()
needs_extension = pytest.mark.skipif(extension is None, reason="the extension was not built")
VARIANTS = extension.variants() if extension else []


@pytest.fixture(autouse=True)
def _as_it_was():
    yield
    if extension:
        extension.use_variant(VARIANTS[-1])
    torch.set_num_threads(1)


def fill(memory: Memory, keys: Tensor, holes: Tensor | None = None, sources: Tensor | None = None) -> Memory:
    """Write keys, some of them later than others, and empty some slots."""
    rows = torch.arange(len(keys))
    for part in rows.split(max(len(keys) // 3, 1)):
        memory.write(keys[part], part, None if sources is None else sources[part])
    if holes is not None:
        memory.forget(slots=holes)
    return memory


def filled(keys: Tensor, k: int = 20, holes: Tensor | None = None, sources: Tensor | None = None) -> Memory:
    return fill(Memory(keys.shape[1], len(keys), k=k), keys, holes, sources)


def assert_exact(memory: Memory, query: Tensor, exclude: Tensor | None = None, threads: int = 1) -> Tensor:
    """Every slot found is better than every other, but for what float32 rounds off; of equal keys the newest are found.

    Returns the slots.
    """
    torch.set_num_threads(threads)
    recall = memory(query, exclude=exclude)
    torch.set_num_threads(1)
    slots, k = recall.slots, memory.k
    similarities = recall.query.double() @ memory.keys.double().T  # (n, capacity)
    similarities[:, memory.values < 0] = -torch.inf
    if exclude is not None:
        similarities[(exclude[:, None] == memory.sources) & (exclude[:, None] >= 0)] = -torch.inf
    found = slots >= 0
    assert torch.equal(found.sum(1), (similarities > -torch.inf).sum(1).clamp(max=k))
    assert not (~found[:, :-1] & found[:, 1:]).any()
    chosen = torch.zeros_like(similarities, dtype=torch.bool)
    chosen[torch.arange(len(slots))[:, None].expand_as(slots)[found], slots[found]] = True
    assert torch.equal(chosen.sum(1), found.sum(1)), "a slot was found twice"
    worst = similarities.masked_fill(~chosen, torch.inf).amin(1)
    assert (worst >= similarities.masked_fill(chosen, -torch.inf).amax(1) - 3e-7).all()
    assert (worst > -torch.inf).all()
    there = similarities.gather(1, slots.clamp(min=0))
    assert torch.allclose(recall.similarities[found].double(), there[found], atol=1e-6, rtol=0)
    assert (recall.similarities[~found] == -torch.inf).all()
    assert torch.equal(recall.values[found], memory.values[slots[found]])
    # In order, and of equals the newest first.
    newness = memory.times * memory.capacity + torch.arange(memory.capacity)
    fall = recall.similarities[:, :-1] > recall.similarities[:, 1:]
    equal = recall.similarities[:, :-1] == recall.similarities[:, 1:]
    newer = newness[slots[:, :-1]] > newness[slots[:, 1:]]
    assert (fall | (equal & newer) | ~found[:, 1:]).all()
    for row in found.all(1).nonzero().squeeze(1).tolist():
        last = slots[row, -1]
        others = (~chosen[row] & (similarities[row] > worst[row] - 1e-6)).nonzero().squeeze(1)
        others = others[(memory.keys[others] == memory.keys[last]).all(1)]
        assert (newness[others] < newness[last]).all(), "a newer slot with the same key was not found"
    return slots


class TestEveryBackend:
    @pytest.mark.parametrize("block", [16, 100, 2**23])
    @pytest.mark.parametrize("key_size", [1, 3, 33, 64])
    @pytest.mark.parametrize("n", [1, 7, 40])
    def test_it_finds_the_k_nearest_whatever_the_block(self, new_memory, monkeypatch, block, key_size, n) -> None:
        monkeypatch.setattr(exact, "BLOCK", block)
        memory = new_memory(key_size, capacity=300, k=20)
        fill(memory, unit(250, key_size), sources=torch.arange(250) % 10)
        memory.forget(source=3)
        query = unit(n, key_size)
        assert_exact(memory, query)
        assert_exact(memory, query, torch.randint(-1, 12, (n,)))

    def test_fewer_slots_than_k(self, new_memory) -> None:
        memory = new_memory(4, capacity=300, k=20)
        teach(memory, unit(5, 4), ids(1, 2, 3, 4, 5), source=ids(1, 1, 2, 2, 2))
        slots = assert_exact(memory, unit(2, 4), ids(1, 2))
        assert (slots >= 0).sum(1).tolist() == [3, 2]

    def test_equal_keys_are_all_found(self, new_memory) -> None:
        memory = new_memory(8, capacity=64, k=40)
        teach(memory, unit(8).expand(50, 8), torch.arange(50))
        assert assert_exact(memory, unit(1, 8)).tolist() == [list(range(49, 9, -1))]

    def test_a_zero_query_finds_filled_slots_only(self, new_memory) -> None:
        memory = fill(new_memory(16, 500, k=450), unit(500, 16), holes=torch.arange(100))
        slots = assert_exact(memory, torch.zeros(2, 16))
        assert (slots >= 100).sum().item() == 800

    def test_it_follows_updates_and_forgetting(self, new_memory) -> None:
        memory = new_memory(24, 200, k=30)
        for step in range(30):
            train(memory, 5, seed=step)
            assert_exact(memory, unit(4, 24))
            memory.forget(slots=torch.randint(200, (3,)))
            assert_exact(memory, unit(4, 24))
        memory.reset()
        assert (memory(unit(24)).slots == -1).all()
        train(memory, 5, seed=99)
        assert_exact(memory, unit(4, 24))

    def test_it_follows_copies_and_states(self, new_memory, tmp_path) -> None:
        memory = asked(new_memory(24, 200, k=30))
        other = copy.deepcopy(memory)
        train(other, 20, seed=2)
        assert_exact(other, unit(4, 24))
        assert_exact(memory, unit(4, 24))
        for assign in (False, True):
            memory.load_state_dict(copy.deepcopy(other.state_dict()), assign=assign)
            assert_exact(memory, unit(4, 24))
            train(memory, 3, seed=3)
            assert_exact(memory, unit(4, 24))
        assert not any(name.startswith("search.") for name in memory.state_dict())
        file = io.BytesIO()
        torch.save(memory, file)
        file.seek(0)
        query = unit(4, 24)
        assert torch.equal(assert_exact(torch.load(file, weights_only=False), query), assert_exact(memory, query))
        memory.save(tmp_path / "memory.safetensors")
        loaded = Memory.load(tmp_path / "memory.safetensors")
        assert torch.equal(assert_exact(loaded, query), assert_exact(memory, query))

    def test_it_follows_keys_that_were_written_by_hand(self, new_memory) -> None:
        memory = asked(new_memory(24, 200, k=30))
        memory.keys[: len(memory)] = unit(len(memory), 24).to(memory.keys)
        assert_exact(memory, unit(4, 24))
        memory.keys = torch.cat([unit(len(memory), 24), torch.zeros(200 - len(memory), 24)]).to(memory.keys)
        assert_exact(memory, unit(4, 24))

    def test_inference_mode(self, new_memory) -> None:
        with torch.inference_mode():
            memory = asked(new_memory(24, 200, k=30))
            train(memory, 20, seed=2)
            assert_exact(memory, unit(4, 24))
            memory.forget(slots=ids(1, 2, 3))
            assert_exact(memory, unit(4, 24))
        memory = asked(new_memory(24, 200, k=30))
        with torch.inference_mode():
            train(memory, 20, seed=2)
            assert_exact(memory, unit(4, 24))
        assert_exact(memory, unit(4, 24))


def asked(memory: Memory) -> Memory:
    """So that there is something that could go stale."""
    train(memory, 20, seed=1)
    assert_exact(memory, unit(4, memory.key_size))
    return memory


def test_it_follows_a_change_of_type() -> None:
    memory = asked(Memory(24, 200, k=30))
    memory.double()
    assert memory.native is None
    assert memory.search.native_index is None
    train(memory, 20, seed=2)
    assert_exact(memory, unit(4, 24))
    memory.float()
    assert_exact(memory, unit(4, 24))
    memory.half()  # the keys stay float32
    assert_exact(memory, unit(4, 24))
    if extension:
        assert memory.search.native_index is not None


def test_without_the_extension_its_memory_use_is_bounded_by_the_block(monkeypatch) -> None:
    """At a batch and capacity whose whole matrix of similarities would be a hundred times the block."""
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor):
                largest = max(largest, out.numel())
            return out

    monkeypatch.setattr(backend, "extension", lambda: None)
    monkeypatch.setattr(exact, "BLOCK", 2**16)
    memory = Memory(4, capacity=20_000, k=2)
    memory.write(unit(20_000, 4), torch.zeros(20_000, dtype=torch.int64))
    query = unit(400, 4)
    memory(query)
    with Watch():
        memory(query)
    assert largest <= max(2**16, memory.keys.numel())


# Keys that are hard to tell apart, or hard to round.
LAST_BIT = "ties but for the last bit"
HARD = {
    "near-ties": lambda n, d: torch.nn.functional.normalize(unit(d) + 1e-4 * torch.randn(n, d), dim=1),
    LAST_BIT: lambda n, d: unit(d) * (1 + torch.randint(-2, 3, (n, 1)) * 2.0**-24),
    "all equal": lambda n, d: unit(d).expand(n, d),
    "pairs of equals": lambda n, d: unit(n // 2 + 1, d).repeat_interleave(2, 0)[:n],
    "one-hot": lambda n, d: torch.eye(d)[torch.randint(d, (n,))] * torch.randint(0, 2, (n, 1)).mul(2).sub(1),
    "signs": lambda n, d: torch.randn(n, d).sign() / d**0.5,
    "tiny and huge": lambda n, d: torch.nn.functional.normalize(torch.randn(n, d) * 10 ** (torch.rand(n, d) * 30 - 15)),
    "one number rules": lambda n, d: torch.nn.functional.normalize(torch.randn(n, d) + 50 * torch.eye(d)[0], dim=1),
    "opposites": lambda n, d: unit(d) * torch.randint(0, 2, (n, 1)).mul(2).sub(1),
    "sorted": lambda n, d: (lambda keys: keys[keys[:, 0].argsort()])(unit(n, d)),
    "negative quadrant": lambda n, d: -unit(n, d).abs(),
}


def hard(kind: str, n: int, key_size: int, **others) -> Memory:
    keys = HARD[kind](n, key_size).contiguous()
    memory = filled(keys, **others)
    if kind == LAST_BIT:  # which `write` normalises away
        memory.keys.copy_(torch.where(memory.values[:, None] >= 0, keys, 0.0))
    return memory


@needs_extension
class TestTheExtension:
    @pytest.mark.parametrize("variant", VARIANTS)
    @pytest.mark.parametrize("threads", [1, 2])
    @pytest.mark.parametrize("key_size", [1, 3, 31, 32, 33, 64, 100, 128, 256, 300])
    def test_it_is_exact_for_any_key_size_and_batch(self, variant, threads, key_size) -> None:
        extension.use_variant(variant)
        sources = torch.randint(-1, 9, (2000,))
        memory = filled(unit(2000, key_size), holes=torch.randint(2000, (400,)), sources=sources)
        assert memory(torch.empty(0, key_size)).slots.shape == (0, 20)
        for n in (1, 2, 3, 15, 16, 17, 130):
            query, exclude = unit(n, key_size), torch.randint(-1, 9, (n,))
            assert_exact(memory, query, exclude if n % 2 else None, threads)

    @pytest.mark.parametrize("variant", VARIANTS)
    @pytest.mark.parametrize("kind", HARD)
    @pytest.mark.parametrize("key_size", [2, 33, 128])
    def test_it_is_exact_on_hard_keys(self, kind, key_size, variant) -> None:
        extension.use_variant(variant)
        memory = hard(kind, 8000, key_size, k=50)
        for query in (unit(4, key_size), memory.keys[torch.randint(8000, (5,))], unit(2, key_size).abs()):
            assert_exact(memory, query, threads=2)

    @given(
        used=st.integers(1, 400),
        key_size=st.integers(1, 70),
        n=st.integers(1, 9),
        k=st.integers(1, 500),
        kind=st.sampled_from(sorted(HARD)),
        forgotten=st.floats(0, 1),
        seed=st.integers(0, 2**32),
    )
    def test_it_is_exact(self, used, key_size, n, k, kind, forgotten, seed) -> None:
        torch.manual_seed(seed)
        holes, sources = (torch.rand(used) < forgotten).nonzero().squeeze(1), torch.randint(-1, 5, (used,))
        memory = hard(kind, used, key_size, k=k, holes=holes, sources=sources)
        assert_exact(memory, unit(n, key_size), torch.randint(-1, 5, (n,)))
        assert_exact(memory, memory.keys[torch.randint(used, (n,))])  # of which some may be zero

    @pytest.mark.parametrize("threads", [1, 3])
    def test_all_variants_find_the_same(self, threads) -> None:
        torch.set_num_threads(threads)
        for key_size, used in ((5, 70), (64, 5000), (128, 30_000), (200, 10_000)):
            memory, query = filled(unit(used, key_size), k=40), unit(9, key_size)
            recalls = []
            for variant in VARIANTS:
                extension.use_variant(variant)
                memory.keys.mul_(1.0)  # an edit: what is derived from the keys is made anew, by this variant
                recalls.append(memory(query))
            for recall in recalls[1:]:
                for name in ("slots", "similarities", "values", "weights"):
                    assert torch.equal(getattr(recall, name), getattr(recalls[0], name)), name

    def test_the_result_does_not_depend_on_the_threads(self) -> None:
        memory = filled(unit(30_000, 48).round(decimals=1), k=100)  # with many ties
        query = unit(17, 48).round(decimals=1)
        recalls = []
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            recalls.append(memory(query))
        for recall in recalls[1:]:
            assert torch.equal(recall.slots, recalls[0].slots)
            assert torch.equal(recall.similarities, recalls[0].similarities)

    def test_a_wrong_guess_is_noticed(self) -> None:
        """The sample sees none of the best keys, or nothing but the best: the first threshold is far off."""
        used, key_size = 40_000, 32
        step = torch.arange(used) // 32 % 32  # every 32nd step of 32 slots is in the sample
        query = unit(5, key_size)
        for sampled in (step == 0, step != 0):
            keys = -unit(used, key_size).abs()
            keys[sampled] = -keys[sampled]
            memory = filled(keys, k=300)
            assert_exact(memory, query.abs())
            assert_exact(memory, -query.abs())
            assert_exact(memory, query)

    def test_a_sample_that_is_all_excluded(self) -> None:
        sources = (torch.arange(40_000) // 32 % 32 != 0).long()
        memory = filled(unit(40_000, 32), k=300, sources=sources)
        assert_exact(memory, unit(3, 32), ids(0, 1, -1))

    def test_the_same_recall_as_torch(self) -> None:
        keys, sources = unit(5000, 64), torch.randint(-1, 9, (5000,))
        query, exclude = unit(17, 64), torch.randint(-1, 9, (17,))
        with pair(64, 5000, k=40) as both:
            recalls = [fill(memory, keys, sources=sources)(query, exclude=exclude) for memory in both]
            assert torch.equal(recalls[0].slots, recalls[1].slots)
            torch.testing.assert_close(recalls[0].similarities, recalls[1].similarities, atol=5e-7, rtol=0)

    def test_a_forked_process_searches(self) -> None:
        memory, query = filled(unit(60_000, 64), k=40), unit(8, 64)
        expected = assert_exact(memory, query, threads=2)
        torch.set_num_threads(2)
        pid = os.fork()
        if pid == 0:
            os._exit(not torch.equal(memory(query).slots, expected))
        assert os.waitpid(pid, 0)[1] == 0

    def test_keys_too_long_for_it_are_searched_by_torch(self) -> None:
        memory = filled(unit(20, exact.LONGEST_KEY + 1), k=5)
        assert_exact(memory, unit(2, exact.LONGEST_KEY + 1))
        assert memory.search.native_index is None
        assert memory.native is not None
