import copy
import io
import os

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import Tensor

from rarecall import Memory, native
from rarecall.search import exact
from rarecall.search.exact_native import KeyCopy
from tests.helpers import ids, train, unit

extension = native.extension()
pytestmark = pytest.mark.skipif(extension is None, reason="the extension was not built")
VARIANTS = extension.variants() if extension else []


@pytest.fixture(autouse=True)
def _as_it_was():
    yield
    extension.use_variant(VARIANTS[-1])
    torch.set_num_threads(1)


def filled(keys: Tensor, k: int = 20, holes: Tensor | None = None, sources: Tensor | None = None) -> Memory:
    """A memory with these keys as they are."""
    memory = Memory(keys.shape[1], len(keys), k=k)
    memory.keys.copy_(keys)
    memory.values.copy_(torch.arange(len(keys)))
    if sources is not None:
        memory.sources.copy_(sources)
    memory.clock.touched.zero_()
    memory.clock.rebuild()
    if holes is not None:
        memory.forget(slots=holes)
    return memory


def scores(memory: Memory, query: Tensor, exclude: Tensor | None = None) -> Tensor:
    """(n, used) float64: the similarities as they are, -inf where a slot must not be found."""
    similarities = query.double() @ memory.keys[: memory.used].double().T
    similarities[:, memory.values[: memory.used] < 0] = -torch.inf
    if exclude is not None:
        similarities[(exclude[:, None] == memory.sources[: memory.used]) & (exclude[:, None] >= 0)] = -torch.inf
    return similarities


def assert_exact(memory: Memory, query: Tensor, exclude: Tensor | None = None) -> Tensor:
    """Every slot found is better than every slot not found, but for what float32 rounds off."""
    assert exact.usable(memory)
    slots = memory.search(memory, query, memory.k, exclude)
    similarities = scores(memory, query, exclude)
    found = slots >= 0
    assert torch.equal(found.sum(1), (similarities > -torch.inf).sum(1).clamp(max=memory.k))
    assert not (~found[:, :-1] & found[:, 1:]).any()
    chosen = torch.zeros_like(similarities, dtype=torch.bool)
    chosen[torch.arange(len(slots))[:, None].expand_as(slots)[found], slots[found]] = True
    assert torch.equal(chosen.sum(1), found.sum(1))  # no slot twice
    worst = similarities.masked_fill(~chosen, torch.inf).amin(1)
    assert (worst >= similarities.masked_fill(chosen, -torch.inf).amax(1) - 3e-7).all()
    assert (worst > -torch.inf).all()
    return slots


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("key_size", [1, 3, 31, 32, 33, 64, 100, 128, 256, 300])
def test_it_is_exact_for_any_key_size_and_batch(variant, threads, key_size) -> None:
    extension.use_variant(variant)
    torch.set_num_threads(threads)
    memory = filled(unit(3000, key_size), holes=torch.randint(3000, (500,)), sources=torch.randint(-1, 9, (3000,)))
    for n in (0, 1, 2, 3, 15, 16, 17, 128, 130):
        query, exclude = unit(n, key_size), torch.randint(-1, 9, (n,))
        if n == 0:
            assert memory(query).slots.shape == (0, 20)
            continue
        assert_exact(memory, query)
        assert_exact(memory, query, exclude)


@pytest.mark.parametrize("threads", [1, 2])
def test_all_variants_find_the_same_slots(threads) -> None:
    torch.set_num_threads(threads)
    for key_size, used in ((5, 70), (64, 5000), (128, 40_000), (200, 20_000)):
        memory = filled(unit(used, key_size), k=40)
        query = unit(9, key_size)
        found = []
        for variant in VARIANTS:
            extension.use_variant(variant)
            memory.search.__dict__["_copy"] = None
            found.append(KeyCopy(memory).find(memory, query, memory.k, None))
        for slots, similarities in found[1:]:
            assert torch.equal(slots.sort().values, found[0][0].sort().values)
            assert torch.equal(similarities.sort().values, found[0][1].sort().values)


def test_the_result_does_not_depend_on_the_threads() -> None:
    memory = filled(unit(30_000, 48).round(decimals=1), k=100)  # with many ties
    query = unit(17, 48).round(decimals=1)
    found = []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        found.append(memory.search(memory, query, memory.k, None).sort().values)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


# Keys that are hard to tell apart, or hard to round.
HARD = {
    "near-ties": lambda n, d: torch.nn.functional.normalize(unit(d) + 1e-4 * torch.randn(n, d), dim=1),
    "ties but for the last bit": lambda n, d: unit(d) * (1 + torch.randint(-2, 3, (n, 1)) * 2.0**-24),
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


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", HARD)
@pytest.mark.parametrize("key_size", [2, 33, 128])
def test_it_is_exact_on_hard_keys(kind, key_size, variant) -> None:
    extension.use_variant(variant)
    torch.set_num_threads(2)
    memory = filled(HARD[kind](12_000, key_size).contiguous(), k=50)
    for query in (unit(5, key_size), memory.keys[torch.randint(12_000, (6,))], unit(3, key_size).abs()):
        assert_exact(memory, query)


@given(
    used=st.integers(1, 400),
    key_size=st.integers(1, 70),
    n=st.integers(1, 9),
    k=st.integers(1, 500),
    kind=st.sampled_from(sorted(HARD)),
    forgotten=st.floats(0, 1),
    seed=st.integers(0, 2**32),
)
def test_it_is_exact(used, key_size, n, k, kind, forgotten, seed) -> None:
    torch.manual_seed(seed)
    memory = filled(
        HARD[kind](used, key_size).contiguous(),
        k=k,
        holes=(torch.rand(used) < forgotten).nonzero().squeeze(1),
        sources=torch.randint(-1, 5, (used,)),
    )
    assert_exact(memory, unit(n, key_size), torch.randint(-1, 5, (n,)))
    assert_exact(memory, memory.keys[torch.randint(used, (n,))].contiguous())  # of which some may be zero


def test_a_wrong_guess_is_noticed() -> None:
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


def test_a_sample_that_is_all_excluded() -> None:
    keys = unit(40_000, 32)
    query = unit(3, 32)
    sources = (torch.arange(40_000) // 32 % 32 != 0).long()
    memory = filled(keys, k=300, sources=sources)
    assert_exact(memory, query, ids(0, 1, -1))


@pytest.mark.parametrize("kind", HARD)
@pytest.mark.parametrize("key_size", [1, 7, 64, 129, 500])
def test_the_bound_holds(kind, key_size) -> None:
    """As in the proof: |q.k - s t (b.c)| <= |p| |s c| + |q| |r|, and every code is small enough for 16 bits."""
    keys = HARD[kind](200, key_size).contiguous()
    memory = filled(keys)
    copied = KeyCopy(memory)
    width = copied.codes.shape[1]
    codes = copied.codes.view(-1, width // 4, 8, 4).transpose(1, 2).reshape(-1, width)[:200].double() - 64
    assert codes.abs().max() <= 63
    assert (codes[:, key_size:] == 0).all()
    scale, residual = 1 / copied.inverse_scale[:200].double()[:, None], copied.residual[:200].double()
    lost = (keys.double() - codes[:, :key_size] * scale).norm(dim=1)
    # The scale is known to float32 here, to which |r| is nothing but where the codes are exact.
    assert (lost <= residual * scale.squeeze(1) + 1e-6).all()
    longest = float(copied.longest)
    assert keys.double().norm(dim=1).max() <= longest
    assert (codes * scale).norm(dim=1).max() <= longest + 1e-6
    halves = torch.nn.functional.pad(codes, (0, -width % 128)).view(200, -1, 32, 2, 2)
    assert halves.square().sum((2, 4)).sqrt().max() <= 181.02
    query = unit(50, key_size).double()
    error = (query @ keys.double().T - query @ (codes[:, :key_size] * scale).T).abs()
    assert (error <= residual * scale.squeeze(1) + 1e-6).all()


def test_it_follows_updates_and_forgetting() -> None:
    memory = Memory(24, 200, k=30)
    for step in range(30):
        train(memory, 5, seed=step)
        assert_exact(memory, unit(4, 24))
        memory.forget(slots=torch.randint(200, (3,)))
        assert_exact(memory, unit(4, 24))
    memory.reset()
    assert (memory(unit(24)).slots == -1).all()
    train(memory, 5, seed=99)
    assert_exact(memory, unit(4, 24))


def asked(memory: Memory) -> Memory:
    """So that there is a copy that could go stale."""
    train(memory, 20, seed=1)
    assert_exact(memory, unit(4, memory.key_size))
    return memory


def test_it_follows_a_deepcopy() -> None:
    memory = asked(Memory(24, 200, k=30))
    other = copy.deepcopy(memory)
    train(other, 20, seed=2)
    assert_exact(other, unit(4, 24))
    assert_exact(memory, unit(4, 24))


def test_it_follows_load_state_dict() -> None:
    memory, other = asked(Memory(24, 200, k=30)), asked(Memory(24, 200, k=30))
    train(other, 20, seed=2)
    for assign in (False, True):
        memory.load_state_dict(copy.deepcopy(other.state_dict()), assign=assign)
        assert_exact(memory, unit(4, 24))
        train(memory, 3, seed=3)
        assert_exact(memory, unit(4, 24))
    assert not any(name.startswith("search.") for name in memory.state_dict())


def test_it_follows_save_and_load(tmp_path) -> None:
    memory = asked(Memory(24, 200, k=30))
    memory.save(tmp_path / "memory.safetensors")
    other = Memory.load(tmp_path / "memory.safetensors")
    query = unit(4, 24)
    assert torch.equal(assert_exact(other, query).sort().values, assert_exact(memory, query).sort().values)
    file = io.BytesIO()
    torch.save(memory, file)
    file.seek(0)
    assert_exact(torch.load(file, weights_only=False), query)


def test_it_follows_a_change_of_type() -> None:
    memory = asked(Memory(24, 200, k=30))
    memory.double()
    assert not exact.usable(memory)
    train(memory, 20, seed=2)
    memory.float()
    assert_exact(memory, unit(4, 24))
    memory.half()  # the keys stay float32
    assert_exact(memory, unit(4, 24))


def test_it_follows_keys_that_were_written_by_hand() -> None:
    memory = asked(Memory(24, 200, k=30))
    memory.keys.copy_(unit(200, 24))
    assert_exact(memory, unit(4, 24))
    memory.keys = unit(200, 24)
    assert_exact(memory, unit(4, 24))


def test_inference_mode() -> None:
    with torch.inference_mode():
        memory = asked(Memory(24, 200, k=30))
        train(memory, 20, seed=2)
        assert_exact(memory, unit(4, 24))
        memory.forget(slots=ids(1, 2, 3))
        assert_exact(memory, unit(4, 24))
    memory = asked(Memory(24, 200, k=30))
    with torch.inference_mode():
        train(memory, 20, seed=2)
        assert_exact(memory, unit(4, 24))


def test_a_zero_query_finds_filled_slots_only() -> None:
    memory = filled(unit(500, 16), k=450, holes=torch.arange(100))
    slots = assert_exact(memory, torch.zeros(2, 16))
    assert (slots >= 100).sum().item() == 800


def test_the_same_recall_as_torch(monkeypatch) -> None:
    memory = filled(unit(5000, 64), k=40, sources=torch.randint(-1, 9, (5000,)))
    query, exclude = unit(17, 64), torch.randint(-1, 9, (17,))
    recall = memory(query, exclude=exclude)
    monkeypatch.setattr(exact, "usable", lambda memory: False)
    other = memory(query, exclude=exclude)
    assert torch.equal(recall.slots, other.slots)
    assert torch.equal(recall.similarities, other.similarities)


def test_a_forked_process_searches() -> None:
    torch.set_num_threads(2)
    memory = filled(unit(60_000, 64), k=40)
    query = unit(8, 64)
    expected = assert_exact(memory, query).sort(1).values  # the threads share the work as it comes: no order
    pid = os.fork()
    if pid == 0:
        os._exit(not torch.equal(memory.search(memory, query, 40, None).sort(1).values, expected))
    assert os.waitpid(pid, 0)[1] == 0
