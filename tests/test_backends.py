"""The extension and torch do the same: two memories, one of each, are shown one stream."""

import copy

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from rarecall import Memory, backend
from tests.helpers import SEARCHES, assert_same, ids, pair, snapshot, unit

pytestmark = pytest.mark.skipif(backend.extension() is None, reason="the extension was not built")

EXACT = ("values", "sources", "counts", "times", "now")


def assert_same_memory(native: Memory, plain: Memory, apart_from: Tensor | None = None) -> None:
    """Keys may differ by rounding; those of the slots in `apart_from` ((n,) int64) may differ in their direction."""
    for name in EXACT:
        assert torch.equal(getattr(native, name), getattr(plain, name)), name
    others = torch.ones(native.capacity, dtype=torch.bool)
    if apart_from is not None:
        others[apart_from] = False
    torch.testing.assert_close(native.keys[others], plain.keys[others], atol=1e-5, rtol=0)
    assert len(native) == len(plain)
    for each in (native, plain):
        assert (each.values[each.used :] < 0).all()  # that it is the least such number is not promised


def assert_same_recall(native: Memory, plain: Memory, query: Tensor, exclude: Tensor | None) -> tuple:
    """Of neighbours that are nearly as near, either may come first."""
    recalls = native(query, exclude=exclude), plain(query, exclude=exclude)
    found, expected = recalls
    torch.testing.assert_close(found.similarities, expected.similarities, atol=1e-5, rtol=0)
    torch.testing.assert_close(found.weights, expected.weights, atol=1e-3, rtol=0)
    there = found.similarities.isfinite()
    gaps = torch.cat([found.similarities.detach(), torch.full_like(found.similarities[..., :1], -2.0)], -1).diff(dim=-1)
    clear = there & (gaps < -1e-5) & torch.cat([torch.ones_like(there[..., :1]), gaps[..., :-1] < -1e-5], -1)
    clear[..., -1] = False  # the last may be as near as one that is not among them
    assert torch.equal(found.slots[clear], expected.slots[clear])
    assert torch.equal(found.values[clear], expected.values[clear])
    assert torch.equal(found.slots < 0, expected.slots < 0)
    return recalls


@pytest.mark.parametrize("search", SEARCHES)
@settings(max_examples=25)
@given(
    size=st.sampled_from([5, 8, 33]),
    capacity=st.integers(12, 40),
    k=st.sampled_from([1, 4, 50]),
    age_noise=st.sampled_from([0.0, 2.5, 8.0]),
    rules=st.sampled_from([{}, {"averaging": "count"}, {"eviction": "balanced"}]),
    options=st.sets(st.sampled_from(["gradient", "mask", "source", "exclude"])),
    shape=st.sampled_from([(), (1,), (7,), (3, 4)]),
    seed=st.integers(0, 2**16),
)
def test_a_stream_leaves_the_same_memory(search, size, capacity, k, age_noise, rules, options, shape, seed) -> None:
    with pair(size, capacity, k=k, age_noise=age_noise, search=search, small=None, **rules) as (native, plain):
        torch.manual_seed(seed)
        centres = unit(6, size)
        for step in range(25):
            target = torch.randint(6, shape)
            query = centres[target] + 0.4 * torch.randn(*shape, size)
            query.requires_grad_("gradient" in options)
            exclude = torch.randint(-1, 4, shape) if "exclude" in options else None
            mask = torch.rand(shape) < 0.7 if "mask" in options else None
            source = torch.randint(-1, 4, shape) if "source" in options else None
            recalls = assert_same_recall(native, plain, query, exclude)
            losses = [each.loss(recall, target, mask) for each, recall in zip((native, plain), recalls, strict=True)]
            torch.testing.assert_close(*losses, atol=1e-5, rtol=1e-4)
            if "gradient" in options:
                gradients = [torch.autograd.grad(loss, query, retain_graph=True)[0] for loss in losses]
                torch.testing.assert_close(*gradients, atol=1e-4, rtol=1e-3)
            for each, recall in zip((native, plain), recalls, strict=True):
                generator = torch.Generator().manual_seed(seed + step)
                each.update(recall, target, source=source, mask=mask, generator=generator)
            if step % 8 == 7:
                value = step % 6
                assert native.forget(value=value) == plain.forget(value=value)
            if step % 10 == 9:
                keys, values = unit(3, size), torch.randint(6, (3,))
                for each in (native, plain):
                    torch.manual_seed(seed + step)
                    each.write(keys, values, counts=values + 1)
            assert_same_memory(native, plain)


@given(n=st.integers(1, 12), share=st.sampled_from([0.0, 0.3, 1.0]), seed=st.integers(0, 2**16))
def test_of_an_update_with_opposite_queries_all_other_keys_are_the_same(n, share, seed) -> None:
    """Only the direction of a sum that nearly cancels is one of rounding errors."""
    with pair(5, 24, k=1) as (native, plain):
        torch.manual_seed(seed)
        keys = unit(2, 5)
        # A query finds the key that it is opposite to since the other one's source is excluded.
        seen, kind = torch.randint(2, (n,)), torch.rand(n)
        opposite = (seen == 0) & (kind < share)
        query = torch.where(opposite[:, None], -keys[seen], keys[seen] + 0.1 * torch.randn(n, 5))
        target = seen.where(opposite | (kind > 0.5), 7)  # what is 7 misses
        for each in (native, plain):
            each.write(keys, ids(0, 1), ids(0, 1))
            recall = each(query, exclude=1 - seen)
            assert torch.equal(recall.slots[:, 0], seen)
            each.update(recall, target, generator=torch.Generator().manual_seed(seed))
        assert_same_memory(native, plain, apart_from=ids(0) if opposite.any() else None)
        for each in (native, plain):
            norms = each.keys[each.values >= 0].norm(dim=1)
            assert torch.allclose(norms, torch.ones_like(norms), atol=1e-5)


@pytest.mark.parametrize("search", SEARCHES)
def test_a_memory_goes_on_alike_after_it_was_handed_over(search) -> None:
    """What one has learnt, the other takes over from its state dict, and back."""
    with pair(16, 80, k=4, search=search, small=None) as (native, plain):
        generator = torch.Generator().manual_seed(0)
        for turn in range(4):
            for _ in range(10):
                target = torch.randint(30, (6,), generator=generator)
                query = torch.nn.functional.one_hot(target % 16, 16) + 0.3 * torch.randn(6, 16, generator=generator)
                for each in (native, plain):
                    each.update(each(query), target, generator=torch.Generator().manual_seed(turn))
            assert_same_memory(native, plain)
            giver, taker = (native, plain) if turn % 2 else (plain, native)
            taker.load_state_dict(copy.deepcopy(giver.state_dict()))
            assert_same_memory(native, plain)


@given(
    n=st.integers(0, 9),
    values=st.integers(1, 6),
    taught=st.integers(0, 9),
    masked=st.booleans(),
    excluding=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_loss_and_gradient_are_the_same_to_the_last_digits(n, values, taught, masked, excluding, seed) -> None:
    """Of two memories with the very same keys: nothing has added up."""
    with pair(5, 20, k=4) as (native, plain):
        torch.manual_seed(seed)
        for _ in range(taught):
            native.update(native(unit(2, 5)), torch.randint(values, (2,)), source=torch.randint(5, (2,)))
        plain.load_state_dict(native.state_dict())
        query, target = (3 * torch.randn(n, 5)).requires_grad_(), torch.randint(values + 1, (n,))
        exclude = torch.randint(-1, 5, (n,)) if excluding else None
        mask = torch.rand(n) < 0.7 if masked else None
        losses = [each.loss(each(query, exclude=exclude), target, mask) for each in (native, plain)]
        torch.testing.assert_close(*losses)
        torch.testing.assert_close(*(torch.autograd.grad(loss, query)[0] for loss in losses))
        without = [each.loss(each(query.detach(), exclude=exclude), target, mask) for each in (native, plain)]
        assert torch.equal(torch.stack(without), torch.stack(losses).detach())


@given(n=st.integers(1, 12), zeros=st.integers(0, 3), filled=st.integers(0, 8), seed=st.integers(0, 2**16))
def test_an_update_is_refused_by_both_in_the_same_words_and_changes_nothing(n, zeros, filled, seed) -> None:
    with pair(5, 8, k=2) as (native, plain):
        torch.manual_seed(seed)
        keys, query, target = unit(filled, 5), unit(n, 5), torch.randint(20, 40, (n,))
        query[:zeros] = 0.0
        messages = []
        for each in (native, plain):
            torch.manual_seed(seed)
            each.write(keys, torch.arange(filled))
            before, recall = snapshot(each), each(query)
            try:
                each.update(recall, target)
                messages.append("")
            except ValueError as error:
                messages.append(str(error))
                assert_same(before, snapshot(each))
        assert messages[0] == messages[1]
        assert bool(messages[0]) == (zeros > 0 or n > 8)
        assert_same_memory(native, plain)
