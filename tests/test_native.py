import logging
import sys

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from rarecall import Memory, memory, native
from tests.helpers import ids, teach, unit


@pytest.mark.skipif(native.extension() is None, reason="the extension was not built")
@given(
    used=st.integers(1, 300),
    n=st.integers(1, 20),
    values=st.integers(1, 40),
    sources=st.integers(1, 5),
    seed=st.integers(0, 2**32),
)
def test_the_newest_slots_are_those_that_torch_finds(used, n, values, sources, seed) -> None:
    torch.manual_seed(seed)
    some = Memory(2, 300)
    some.values[:used] = torch.randint(-1, values, (used,))
    some.sources[:used] = torch.randint(-1, sources, (used,))
    some.clock.touched[:used] = torch.randint(0, 50, (used,)).masked_fill(some.values[:used] < 0, -1)
    some.clock.rebuild()
    target, exclude = torch.randint(0, values + 1, (n,)), torch.randint(-1, sources, (n,))
    for excluded in (None, exclude):
        found = native.find_newest(some, target, excluded)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(memory, "extension", lambda: None)
            assert torch.equal(found, some._newest(target, excluded))


def test_a_tensor_that_the_extension_could_not_read() -> None:
    with pytest.raises(ValueError, match=r"shape \(3, 2\).*expected \(2, 3\)"):
        native.pointer(torch.zeros(3, 2), 2, 3)
    with pytest.raises(ValueError, match="contiguous"):
        native.pointer(torch.zeros(3, 2).T, 2, 3)


def test_without_the_extension_one_line_says_so(monkeypatch, caplog) -> None:
    monkeypatch.setitem(sys.modules, "rarecall._native", None)
    monkeypatch.delattr("rarecall._native", raising=False)
    native.extension.cache_clear()
    try:
        with caplog.at_level(logging.WARNING, logger="rarecall"):
            memory = Memory(4, 10, k=2)
            for _ in range(3):
                teach(memory, unit(2, 4), ids(1, 2))
        assert len(caplog.records) == 1
        assert "pip install" in caplog.text
    finally:
        native.extension.cache_clear()
