"""Neighbours as the extension and torch score, sort and weigh them, whoever found them."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import Tensor

from rarecall import Memory, Recall, Search, backend
from tests.helpers import pair, unit

pytestmark = pytest.mark.skipif(backend.extension() is None, reason="the extension was not built")


class Given(Search):
    """Finds what it was told to."""

    found: Tensor

    def forward(self, memory: Memory, query: Tensor, k: int, exclude: Tensor | None) -> Tensor:
        return self.found


def assert_right(memory: Memory, recall: Recall, row: int, expected: Tensor, weights_within: float) -> None:
    """Whether the neighbours of a query are the slots `expected`, in order, with their similarities and weights."""
    count = len(expected)
    slots, similarities = recall.slots[row], recall.similarities[row]
    assert slots[:count].sort().values.tolist() == expected.sort().values.tolist()
    assert (slots[count:] == -1).all()
    assert (similarities[count:] == -torch.inf).all()
    assert (recall.values[row, count:] == -1).all()
    assert (recall.weights[row, count:] == 0).all()
    slots, similarities = slots[:count], similarities[:count]
    assert torch.equal(recall.values[row, :count], memory.values[slots])
    exact = memory.keys[slots].double() @ recall.query[row].double()
    assert torch.allclose(similarities.double(), exact, atol=1e-6, rtol=0)
    order = list(zip((-similarities).tolist(), (-memory.times[slots]).tolist(), (-slots).tolist(), strict=True))
    assert order == sorted(order), "not the nearest first, or of equally near ones not the newest"
    # Equal keys are equally near.
    equal = (memory.keys[slots][:, None] == memory.keys[slots]).all(2)
    assert (similarities[:, None] == similarities)[equal].all()
    weights = (memory.inverse_temperature * similarities.double()).softmax(0)
    torch.testing.assert_close(recall.weights[row, :count].double(), weights, rtol=weights_within, atol=1e-30)


# The extension subtracts before it multiplies; torch rounds inverse temperature x similarity to float32.
WEIGHTS_WITHIN = {"native": 2e-5, "torch": 2e-4}


@given(
    n=st.integers(0, 9),
    found=st.integers(0, 20),
    key_size=st.sampled_from([1, 3, 8, 33]),
    k=st.integers(1, 20),
    excluding=st.booleans(),
    equal=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_they_are_those_of_the_candidates_that_may_be_found(n, found, key_size, k, excluding, equal, seed) -> None:
    """Every row, also those with equal keys, is compared."""
    with pair(key_size, 50, k=k, search=Given) as (native, plain):
        torch.manual_seed(seed)
        keys = unit(50, key_size)
        if equal:
            keys[10:30] = keys[30]
        sources, empty = torch.randint(-1, 5, (50,)), (torch.rand(50) < 0.15).nonzero().squeeze(1)
        query, slots = unit(n, key_size), torch.rand(n, 50).argsort(1)[:, : min(found, k)]
        slots = slots.masked_fill(torch.rand(slots.shape) < 0.2, -1)
        exclude = torch.randint(-1, 5, (n,)) if excluding else None
        for name, memory in (("native", native), ("torch", plain)):
            for rows in torch.arange(50).split(13):
                memory.write(keys[rows], torch.arange(50)[rows] % 5, sources[rows])
            memory.forget(slots=empty)
            memory.search.found = slots
            recall = memory(query, exclude=exclude)
            for tensor, dtype in (
                (recall.slots, torch.int64),
                (recall.similarities, torch.float32),
                (recall.values, torch.int64),
                (recall.weights, torch.float32),
            ):
                assert tensor.shape == (n, k)
                assert tensor.dtype == dtype
            for row in range(n):
                may = (slots[row] >= 0) & (memory.values[slots[row]] >= 0)
                if excluding and exclude[row] >= 0:
                    may &= memory.sources[slots[row]] != exclude[row]
                assert_right(memory, recall, row, slots[row][may], WEIGHTS_WITHIN[name])


@pytest.mark.parametrize("inverse_temperature", [0.01, 40, 1000])
@pytest.mark.parametrize("count", [1, 7, 8, 9, 300])
def test_weights_are_a_softmax(inverse_temperature, count) -> None:
    with pair(8, 500, k=300, inverse_temperature=inverse_temperature) as both:
        keys, query = unit(count, 8), unit(20, 8)
        for name, memory in zip(("native", "torch"), both, strict=True):
            memory.write(keys, torch.arange(count))
            recall = memory(query)
            for row in range(20):
                assert_right(memory, recall, row, torch.arange(count), WEIGHTS_WITHIN[name])


@pytest.mark.parametrize("spread", [0, 1e-6, 1e-3, 1])
@pytest.mark.parametrize("search", ["exact", Given])
def test_they_are_sorted_by_similarity_and_then_by_newness(spread, search) -> None:
    """Of many equally similar slots, too, and of such as hardly differ; above and below 0."""
    with pair(2, 1500, k=1500, search=search) as both:
        angles = torch.randint(40, (1500,)) * spread + 1.5
        keys, touched = torch.stack([angles.cos(), angles.sin()], 1), torch.randperm(1500)[:300]
        candidates = torch.rand(2, 1500).argsort(1)
        for name, memory in zip(("native", "torch"), both, strict=True):
            memory.write(keys, torch.arange(1500))
            # Some are newer, in no order of slots.
            memory.forget(slots=touched)
            for rows in touched.sort().values.split(50):
                memory.write(keys[rows], rows)
            memory.search.found = candidates
            recall = memory(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
            assert torch.equal(recall.values, recall.slots)
            for row in range(2):
                assert_right(memory, recall, row, torch.arange(1500), WEIGHTS_WITHIN[name])


@pytest.mark.parametrize(
    ("found", "message"), [(torch.zeros(2, 4, dtype=torch.int64), "at most k = 3"), (torch.full((2, 1), 5), "slot 5")]
)
def test_a_search_that_finds_too_many_or_what_is_not_there_is_refused(found, message) -> None:
    with pair(4, 5, k=3, search=Given) as both:
        for memory in both:
            memory.write(unit(2, 4), torch.arange(2))
            memory.search.found = found
            with pytest.raises(ValueError, match=message):
                memory(unit(2, 4))
