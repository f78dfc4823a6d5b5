"""Approximate search as a user sees it. That its lists fit together is tested in C++: native/tests/test_lists.cpp."""

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from rarecall import AutoSearch, Memory, backend
from rarecall.search import auto
from tests.helpers import assert_same, check_found, ids, snapshot, teach, unit

extension = backend.extension()
needs_extension = pytest.mark.skipif(extension is None, reason="the extension was not built")
MANY = 2**20  # as it is for users
# Two bytes of each number say which similarity a key has, to so much.
WITHIN = 5e-5


@pytest.fixture(autouse=True)
def _lists_from_the_first_key(monkeypatch):
    """A test's memory is small; its lists are read all the same."""
    monkeypatch.setattr(auto, "SMALL", 0)
    yield
    if extension:
        extension.use_variant(extension.variants()[-1])
    torch.set_num_threads(1)


def filled(keys: Tensor, k: int = 10, target_recall: float = 0.95, sources: Tensor | None = None) -> Memory:
    """A full memory of these keys, all of a value of their own; slots are numbered as the keys are."""
    memory = Memory(keys.shape[1], len(keys), k=k, search="auto", target_recall=target_recall)
    for rows in torch.arange(len(keys)).split(-(-len(keys) // 3)):
        memory.write(keys[rows], rows, None if sources is None else sources[rows])
    return memory


def state(memory: Memory) -> dict[str, Tensor]:
    memory(unit(1, memory.key_size))
    return memory.search.native_index.export_state()


def learned(memory: Memory) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in state(memory).items() if name != "list_of"}


def reads_lists(memory: Memory) -> bool:
    memory(unit(1, memory.key_size))
    return memory.search.native_index.reads_lists


def lists_of(memory: Memory) -> Tensor:
    """(capacity,) int64: the list that each slot is in, -1 where it is in none."""
    now = state(memory)["list_of"].long()
    return torch.cat([now, now.new_full((memory.capacity - len(now),), -1)])


def clustered(n: int, size: int, centres: Tensor, noise: float = 0.37) -> Tensor:
    """Keys around random ones of the centres; two of the same centre have a cosine of about 0.88."""
    return normalize(centres[torch.randint(len(centres), (n,))] + noise * torch.randn(n, size) / size**0.5, dim=1)


def recall_at_1(memory: Memory, query: Tensor) -> float:
    """The share of queries whose answer is the nearest slot, or one that two bytes a number cannot tell from it."""
    similarities = (query @ memory.keys.T).masked_fill(memory.values < 0, -2)
    answers = memory(query).slots[:, :1]
    return (similarities.gather(1, answers).squeeze(1) >= similarities.amax(1) - WITHIN).float().mean().item()


def learn(memory: Memory, queries: Tensor, batch: int = 128) -> None:
    """Teach: of each batch the first half confirms what it finds, the other half is written."""
    for number, query in enumerate(queries.split(batch)):
        recall = memory(query)
        new = torch.arange(len(query)) + batch * number + 10**6
        memory.update(recall, torch.where(torch.arange(len(query)) < len(query) // 2, recall.value, new))


# The search aims above the wanted share by what its own samples cannot tell. The share of 1000 queries has a deviation
# of its own, 0.7% at 0.95 and 1.3% at 0.8; two and a half of these are left to chance.
def enough(wanted: float) -> float:
    return wanted - 2.5 * (wanted * (1 - wanted) / 1000) ** 0.5


def overlapping(centres: Tensor) -> Callable[[int], Tensor]:
    """A few directions carry most of what keys of one centre differ in, so that many lists are near to a query."""
    stretch = torch.linspace(1, 0, 32) ** 4
    return lambda n: normalize(centres[torch.randint(len(centres), (n,))] + 0.6 * torch.randn(n, 32) * stretch, dim=1)


@needs_extension
class TestRecall:
    @pytest.mark.parametrize("many", [MANY, 10_000])
    @pytest.mark.parametrize("wanted", [0.8, 0.95])
    def test_of_clustered_keys_without_reading_everything(self, wanted, many, monkeypatch) -> None:
        monkeypatch.setattr(auto, "MANY", many)
        centres = unit(1000, 32)
        memory = filled(clustered(12_000, 32, centres), target_recall=wanted)
        learn(memory, clustered(3000, 32, centres))
        assert reads_lists(memory)
        assert recall_at_1(memory, clustered(1000, 32, centres)) > enough(wanted)
        assert state(memory)["share"] < 1 / 8
        # Lists of many keys are short.
        lengths = lists_of(memory).bincount().float()
        assert (lengths.mean() < 24) == (many == 10_000)

    @pytest.mark.parametrize("many", [MANY, 8000])
    @pytest.mark.parametrize("kind", ["overlapping", "uniform", "cone", "near-duplicates"])
    def test_of_keys_that_are_hard_to_find(self, kind, many, monkeypatch) -> None:
        monkeypatch.setattr(auto, "MANY", many)
        centres = unit(1000, 32)
        cone = normalize(unit(1000, 32) + 0.8 * unit(1, 32), dim=1)  # most lists of which stand in a few regions
        draw = {
            "overlapping": overlapping(centres),
            "uniform": lambda n: unit(n, 24),
            "cone": lambda n: clustered(n, 32, cone),
            "near-duplicates": lambda n: clustered(n, 32, centres[:30], noise=0.17),
        }[kind]
        memory = filled(draw(10_000), k=1)
        learn(memory, draw(3000))
        assert recall_at_1(memory, draw(1000)) > enough(0.95)
        assert recall_at_1(memory, memory.keys[:1000]) > enough(0.95)

    def test_where_no_key_is_near_it_is_exact(self) -> None:
        memory = filled(unit(5000, 128))
        learn(memory, unit(1500, 128))
        assert not reads_lists(memory)
        for _ in range(3):
            query = unit(100, 128)
            nearest = (query @ memory.keys.T).topk(10)
            recall = memory(query)
            assert torch.equal(recall.slots, nearest.indices)
            torch.testing.assert_close(recall.similarities, nearest.values, atol=1e-6, rtol=0)
            teach(memory, query, torch.arange(100))
        # Keys that are near to each other: it reads lists again.
        centres = unit(300, 128)
        learn(memory, clustered(12_000, 128, centres), batch=600)
        assert reads_lists(memory)
        assert state(memory)["share"] < 1 / 4
        assert recall_at_1(memory, clustered(1000, 128, centres)) > enough(0.95)

    def test_of_keys_that_drift_far(self) -> None:
        centres, wind = unit(500, 32), unit(500, 32)
        memory = filled(clustered(6000, 32, centres))
        learn(memory, clustered(2000, 32, centres))
        for _ in range(10):  # after which no centre is nearer to where it was than to where the wind blows
            centres = normalize(centres + 0.2 * wind, dim=1)
            for query in clustered(6000, 32, centres).split(500):
                teach(memory, query, torch.arange(500) + 10**7)
            assert recall_at_1(memory, clustered(1000, 32, centres)) > 0.93
        assert recall_at_1(memory, clustered(1000, 32, centres)) > enough(0.95)

    def test_of_a_memory_that_grows_and_shrinks(self, tmp_path, monkeypatch) -> None:
        """Past the number from which on there are many keys, and back; once it is saved and loaded on the way."""
        monkeypatch.setattr(auto, "MANY", 5000)
        memory, centres = Memory(24, 10_000, k=10, search="auto"), unit(400, 24)
        for turn in range(3):
            for _ in range(16):
                teach(memory, clustered(500, 24, centres), torch.randint(10**9, (500,)))
            assert len(memory) > 5000
            assert recall_at_1(memory, clustered(1000, 24, centres)) > 0.93
            slots = memory.slots().slots
            memory.forget(slots=slots[torch.randperm(len(slots))[2000 * turn + 50 :]])
            check_found(memory, share=0.93)
            if turn == 1:
                memory.save(tmp_path / "memory")
                memory = Memory.load(tmp_path / "memory")
                check_found(memory, share=0.93)


@needs_extension
class TestLists:
    def test_every_filled_slot_is_in_one(self) -> None:
        memory = Memory(16, 700, k=10, search="auto")
        centres = torch.randn(20, 16)
        for step in range(60):
            target = torch.randint(20, (30,))
            query = centres[target] + 0.5 * torch.randn(30, 16)
            teach(memory, query, target + 20 * torch.randint(50, (30,)), source=torch.randint(50, (30,)))
            if step % 20 == 19:
                memory.forget(value=list(range(step)))
                memory.forget(source=step % 50)
                memory.forget(slots=torch.randint(700, (100,)))
            assert torch.equal(lists_of(memory) >= 0, memory.values >= 0)
            if step % 10 == 9:
                check_found(memory, share=0.93)
        memory.reset()
        assert (lists_of(memory) == -1).all()
        teach(memory, unit(100, 16), torch.arange(100))
        check_found(memory, share=0.93)

    def test_one_by_one_and_all_at_once(self) -> None:
        memory = Memory(16, 1500, k=10, search="auto")
        for value in range(300):
            teach(memory, unit(1, 16), ids(value))
        teach(memory, unit(1000, 16), torch.arange(300, 1300))
        check_found(memory, share=0.93)
        assert memory.forget(slots=torch.arange(0, 1300, 2)) == 650
        check_found(memory, share=0.93)
        assert memory.forget(slots=torch.arange(1300)) == 650
        assert (memory(unit(3, 16)).slots == -1).all()

    @staticmethod
    def share_in_the_nearest(memory: Memory, slots: Tensor) -> float:
        """The share of these keys that are in the list whose centroid is nearest to them."""
        lists = lists_of(memory)
        sums = torch.zeros(int(lists.max()) + 1, memory.key_size)
        sums.index_add_(0, lists[lists >= 0], memory.keys[lists >= 0])
        return ((memory.keys[slots] @ normalize(sums, dim=1).T).argmax(1) == lists[slots]).float().mean().item()

    def test_keys_are_in_the_nearest_as_the_memory_grows(self) -> None:
        centres = unit(500, 32)
        memory = Memory(32, 10_000, k=10, search="auto")
        for query in clustered(10_000, 32, centres).split(500):
            teach(memory, query, torch.arange(len(memory), len(memory) + len(query)))
        assert self.share_in_the_nearest(memory, torch.arange(10_000)) > 0.75

    @pytest.mark.parametrize("asked_in_vain", [0, 2000])
    def test_keys_of_an_update_join_the_nearest(self, asked_in_vain) -> None:
        """Other queries that were asked meanwhile do not matter."""
        centres = unit(1000, 32)
        memory = filled(clustered(10_000, 32, centres))
        shares = []
        for step in range(10):
            recall = memory(clustered(60, 32, centres))
            if asked_in_vain:
                memory(clustered(asked_in_vain, 32, centres))
            memory.update(recall, torch.arange(60) + 60 * step + 20_000)  # all of them new
            shares.append(self.share_in_the_nearest(memory, (memory.ages == 0).nonzero().squeeze(1)))
        assert sum(shares) / len(shares) > 0.9


@needs_extension
class TestNeighbours:
    @pytest.mark.parametrize("many", [MANY, 1000])
    def test_queries_answer_alike_together_and_one_by_one(self, many, monkeypatch) -> None:
        monkeypatch.setattr(auto, "MANY", many)
        memory = filled(unit(5000, 24), k=30, sources=torch.arange(5000) // 8)
        query, exclude = unit(21, 24), torch.randint(-1, 600, (21,))
        together = memory(query, exclude)
        alone = [memory(query[i : i + 1], exclude[i : i + 1]) for i in range(21)]
        for name in ("slots", "similarities", "values", "weights"):
            assert torch.equal(getattr(together, name), torch.cat([getattr(recall, name) for recall in alone])), name

    def test_similarities_are_those_of_the_keys_to_two_bytes_a_number(self) -> None:
        memory, query = filled(unit(3000, 20), k=50), unit(200, 20)
        memory.forget(slots=torch.arange(0, 3000, 7))
        recall = memory(query)
        assert (recall.slots >= 0).all()
        assert (memory.values[recall.slots] >= 0).all()
        exact = (recall.query[:, None] * memory.keys[recall.slots]).sum(2)
        assert torch.allclose(recall.similarities, exact, atol=WITHIN)
        assert (recall.similarities - exact).square().mean() < 1.3e-5**2
        assert (recall.similarities[:, :-1] >= recall.similarities[:, 1:]).all()

    def test_with_few_lists_the_k_best_are_found_and_of_equal_keys_the_newest(self) -> None:
        """Also where they are the last. Of 60 keys, each three times, all lists are read."""
        memory, query = filled(unit(60, 20).repeat(3, 1)[torch.randperm(180)], k=100), unit(50, 20)
        found = memory(query)
        best = (query @ memory.keys.T).topk(100).values
        assert torch.allclose(found.similarities, best, atol=WITHIN)
        equal = (memory.keys[:, None] == memory.keys[None]).all(2)
        newness = memory.times * 180 + torch.arange(180)
        older = equal & (newness[:, None] > newness)  # (180, 180): the second is older
        for row, slots in enumerate(found.slots):
            there = torch.zeros(180, dtype=torch.bool).index_fill_(0, slots, True)
            assert not (older & ~there[:, None] & there).any(), "an older one was found in place of a newer"
            places = torch.full((180,), 180).index_put_((slots,), torch.arange(100))
            assert (places[:, None] < places)[older & there[:, None] & there].all(), "an older one came first"
            similarities = torch.zeros(180).index_put_((slots,), found.similarities[row])
            assert (similarities[:, None] == similarities)[equal & there & there[:, None]].all()

    @pytest.mark.parametrize("k", [20, 300])
    def test_excluded_sources_are_not_found_and_others_are_in_their_place(self, k) -> None:
        memory = filled(unit(2000, 16), k=k, sources=torch.arange(2000) // 4)
        query, exclude = memory.keys[:400].clone(), memory.sources[:400].clone()
        exclude[::5] = -1
        recall = memory(query, exclude=exclude)
        assert (recall.slots >= 0).all()
        own = memory.sources[recall.slots] == exclude[:, None]
        assert not own[exclude >= 0].any()
        assert (recall.slots[::5, 0] == torch.arange(0, 400, 5)).float().mean() > 0.93
        assert recall_at_1(memory, query) > 0.93

    def test_fewer_keys_than_k(self) -> None:
        memory = Memory(8, 100, k=64, search="auto")
        for count in (1, 2, 33):
            memory.reset()
            teach(memory, unit(count, 8), torch.arange(count))
            found = memory(unit(5, 8)).slots
            assert ((found >= 0).sum(1) == count).all()
            assert all(len(set(row[row >= 0].tolist())) == count for row in found)
        memory = filled(unit(2000, 8), k=2500)
        found = memory(unit(3, 8)).slots
        assert torch.equal(found[:, :2000].sort().values, torch.arange(2000).expand(3, -1))
        assert (found[:, 2000:] == -1).all()

    @pytest.mark.parametrize("key", [torch.eye(1, 12)[0], torch.linspace(-1, 2, 12)], ids=["axis", "any"])
    def test_all_keys_equal(self, key) -> None:
        memory = filled(normalize(key, dim=0).expand(1000, 12), k=10)
        recall = memory(key)
        assert recall.slots.tolist() == list(range(999, 989, -1))
        assert torch.allclose(recall.similarities, torch.ones(10), atol=WITHIN)
        memory.forget(slots=torch.arange(10, 1000))
        assert memory(key).slots.tolist() == list(range(9, -1, -1))

    def test_a_key_opposite_to_all_others(self) -> None:
        """Its sign code is as far from all centroids as can be told."""
        direction = unit(200)
        memory = filled(normalize(direction + 0.02 * torch.randn(9000, 200), dim=1))
        assert (memory(-direction).slots >= 0).all()
        memory.forget(slots=7)
        teach(memory, -direction[None], ids(20_000))
        recall = memory(-direction)
        assert recall.slots[0] == 7
        assert recall.value == 20_000


@needs_extension
class TestLearning:
    def test_asking_changes_nothing_and_updates_learn(self) -> None:
        memory = filled(unit(5000, 16))
        before = state(memory)
        recall = memory(unit(500, 16))
        memory.loss(recall, torch.arange(500))
        memory(unit(500, 16))
        assert_same(before, state(memory))
        assert before["asked"] == 0
        learn(memory, unit(1000, 16))
        after = state(memory)
        assert after["asked"] == 1000
        assert after["lists_to_read"] != before["lists_to_read"]
        memory.write(unit(10, 16), torch.arange(10))
        memory.forget(slots=5)
        assert state(memory)["asked"] == 1000, "only what is asked and then taught is a sample"

    def test_how_many_queries_are_samples_does_not_depend_on_how_they_are_batched(self) -> None:
        """That the same is learned, of lists that do not change meanwhile, is tested in C++."""

        def samples(batch: int) -> list[float]:
            torch.manual_seed(4)
            memory = filled(unit(3000, 16))
            learn(memory, unit(1000, 16), batch)
            assert state(memory)["asked"] == 1000
            return [float(counts.sum()) for counts in learned(memory).values() if counts.dim() == 1]

        first = samples(1000)
        assert first[0] > 200
        for batch in (2, 7, 128):
            assert samples(batch) == pytest.approx(first, rel=1e-9)


def resume(tmp_path) -> dict[str, Callable[[Memory], Memory]]:
    def from_state(memory: Memory) -> Memory:
        other = Memory(memory.key_size, memory.capacity, k=memory.k, search="auto")
        other.load_state_dict(memory.state_dict())
        return other

    def from_file(memory: Memory) -> Memory:
        memory.save(tmp_path / "memory")
        return Memory.load(tmp_path / "memory")

    return {
        "state": from_state,
        "file": from_file,
        "copy": copy.deepcopy,
        "moved": lambda memory: memory.half(),  # the keys stay float32
        "copy of a copy": lambda memory: copy.deepcopy(copy.deepcopy(memory)),
        "copy of a loaded one": lambda memory: copy.deepcopy(from_state(memory)),
        "moved twice": lambda memory: memory.half().float(),
    }


@needs_extension
class TestTheSameAgain:
    @pytest.mark.parametrize("way", resume(None))
    @pytest.mark.parametrize(("many", "capacity", "batch"), [(MANY, 1500, 30), (2500, 6000, 200)])
    def test_a_run_that_was_saved_and_resumed(self, way, many, capacity, batch, tmp_path, monkeypatch) -> None:
        monkeypatch.setattr(auto, "MANY", many)

        def run(interrupt: Callable[[Memory], Memory]) -> tuple[Memory, list[Tensor]]:
            generator = torch.Generator().manual_seed(5)
            memory = Memory(12, capacity, k=10, search="auto")
            centres = torch.randn(capacity // 15, 12, generator=generator)
            answers = []
            for step in range(55):
                target = torch.randint(capacity, (batch,), generator=generator)
                recall = memory(centres[target % len(centres)] + torch.randn(batch, 12, generator=generator))
                answers += [recall.slots, recall.similarities]
                memory.update(recall, target, generator=generator)
                if step % 30 == 10:
                    memory.forget(slots=torch.randint(capacity, (capacity // 8,), generator=generator))
                if step % 25 == 24:
                    memory = interrupt(memory)
            return memory, answers

        straight, answers = run(lambda memory: memory)
        assert capacity < many or int(lists_of(straight).max()) > 256  # so that regions are looked for
        resumed, same_answers = run(resume(tmp_path)[way])
        assert all(torch.equal(a, b) for a, b in zip(answers, same_answers, strict=True))
        assert_same(snapshot(straight), snapshot(resumed))

    @pytest.mark.parametrize("many", [MANY, 1000])
    @pytest.mark.parametrize("size", [40, 140])  # sign codes of 128 bits, and of 256
    def test_on_any_number_of_threads_and_in_any_variant(self, size, many, monkeypatch) -> None:
        monkeypatch.setattr(auto, "MANY", many)

        def run(variant: str, threads: int) -> dict[str, Tensor]:
            extension.use_variant(variant)
            torch.manual_seed(3)
            centres = unit(300, size)
            keys, stream = clustered(5500, size, centres), clustered(300, size, centres)
            torch.set_num_threads(threads)
            memory = filled(keys if many < MANY else keys[:3000])
            for query in stream.split(100):
                teach(memory, query, torch.randint(5000, (100,)))
            found = memory(stream)
            torch.set_num_threads(1)
            assert many == MANY or int(lists_of(memory).max()) > 256  # so that regions are looked for
            return snapshot(memory) | {"found": found.slots, "similarities": found.similarities}

        first = run("plain", 1)
        for variant in extension.variants():
            assert_same(first, run(variant, 1))
        assert_same(first, run(extension.variants()[-1], 4))

    def test_many_threads_ask_at_once(self) -> None:
        memory, query = filled(unit(5000, 32)), unit(64, 32)
        expected = memory(query).slots
        memory = copy.deepcopy(memory)  # whose lists are not made yet
        with ThreadPoolExecutor(8) as pool:
            for found in pool.map(lambda _: memory(query).slots, range(32)):
                assert torch.equal(found, expected)


@needs_extension
class TestEdits:
    @pytest.mark.parametrize("name", ["list_of", "reassigned", "due", "asked", "lists_to_read"])
    def test_a_state_that_cannot_be_is_made_anew(self, name) -> None:
        memory = filled(unit(1000, 16))
        good = snapshot(memory)
        for wrong in (torch.randint(-(2**31), 2**31, (1,)), ids(0), ids(-1), ids(7)):
            bad = torch.full_like(good[f"search.{name}"], int(wrong))
            memory.load_state_dict(good | {f"search.{name}": bad})
            assert torch.equal(lists_of(memory) >= 0, memory.values >= 0)
            check_found(memory, share=0.93)
            teach(memory, unit(100, 16), torch.arange(100))
            check_found(memory, share=0.93)

    @pytest.mark.parametrize("wrong", [torch.zeros(3), torch.zeros(0), torch.tensor(float("nan"))])
    def test_learned_numbers_that_cannot_be_are_made_anew(self, wrong) -> None:
        memory = filled(unit(1000, 16))
        good = snapshot(memory)
        for name in learned(memory):
            memory.load_state_dict(good | {f"search.{name}": wrong.to(good[f"search.{name}"].dtype)})
            check_found(memory, share=0.93)

    def test_keys_edited_by_hand_are_found(self) -> None:
        memory = filled(unit(3000, 16))
        memory(unit(1, 16))
        memory.keys.copy_(memory.keys.flip(0))
        check_found(memory, share=0.93)
        for name, row in (("keys", 0.0), ("values", -1), ("sources", -1), ("counts", 0), ("times", -1)):
            getattr(memory, name)[5] = row
        assert not (memory(unit(50, 16)).slots == 5).any()
        assert lists_of(memory)[5] == -1


@pytest.mark.parametrize("capacity", [400, 1000])
def test_small_memories_are_searched_exactly(monkeypatch, capacity) -> None:
    monkeypatch.setattr(auto, "SMALL", 500)
    memory, plain = Memory(8, capacity, k=30, search="auto"), Memory(8, capacity, k=30)
    for step in range(12):
        query, target = unit(40, 8), torch.randint(100, (40,))
        recalls = memory(query), plain(query)
        for name in ("slots", "similarities", "values", "weights"):
            assert torch.equal(getattr(recalls[0], name), getattr(recalls[1], name)), name
        for each, recall in zip((memory, plain), recalls, strict=True):
            each.update(recall, target, generator=torch.Generator().manual_seed(step))
    assert len(memory) < 500
    if extension:
        assert not reads_lists(memory)
        memory.write(unit(capacity, 8), torch.arange(capacity))
        assert reads_lists(memory) == (capacity > 500)


def test_without_the_extension_it_is_exact_and_its_state_is_good_for_both(monkeypatch) -> None:
    keys, query = unit(1000, 16), unit(50, 16)
    with monkeypatch.context() as without:
        without.setattr(backend, "extension", lambda: None)
        memory = filled(keys)
        assert torch.equal(memory(query).slots, (query @ keys.T).topk(10).indices)
        teach(memory, unit(10, 16), torch.arange(10))
        of_torch = snapshot(memory)
    memory = filled(unit(1000, 16))
    memory.load_state_dict(of_torch)
    check_found(memory, share=0.93)
    learned = snapshot(memory)
    with monkeypatch.context() as without:
        without.setattr(backend, "extension", lambda: None)
        other = Memory(16, 1000, k=10, search="auto")
        other.load_state_dict(learned)
        check_found(other)
        assert_same(learned, snapshot(other))  # what the lists know is handed on


def test_settings() -> None:
    memory = Memory(8, 100, search=AutoSearch(8, 100, target_recall=0.8))
    assert memory.search.settings() == {"target_recall": 0.8}
    assert "recall=0.8" in repr(memory)
    few, many = (Memory(8, 100_000, search="auto", target_recall=recall).search for recall in (0.5, 0.99))
    assert few.settings() != many.settings()
    for search in ("exact", AutoSearch(8, 100)):
        with pytest.raises(ValueError, match="target_recall"):
            Memory(8, 100, search=search, target_recall=0.9)
    for recall in (0, 1, 1.5, -1, float("nan")):
        with pytest.raises(ValueError, match="target_recall"):
            AutoSearch(8, 100, target_recall=recall)
