import logging
import sys

import pytest
import torch

from rarecall import Memory, native
from tests.helpers import ids, teach, unit


@pytest.mark.skipif(native.extension() is None, reason="the extension was not built")
def test_what_the_extension_could_not_read_is_refused() -> None:
    extension, vectors = native.loaded(), torch.ones(2, 3)
    assert extension.normalise(3, vectors, torch.empty(2, 3), None) == 0
    for wrong, message in (
        (torch.ones(3, 2).T, "contiguous"),
        (torch.ones(2, 3, dtype=torch.float64), "torch.float32"),
        (torch.ones(2, 3, device="meta"), "on the CPU"),
        (None, "expected a tensor of torch.float32"),
        (torch.ones(3, 3), r"shape torch.Size\(\[3, 3\]\); expected one of 6 numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            extension.normalise(3, vectors, wrong, None)
    with pytest.raises(ValueError, match="expected one of 4 numbers"):  # of whole rows
        extension.normalise(4, vectors, vectors, None)
    with pytest.raises(TypeError, match="too few"):
        extension.normalise(3, vectors, vectors)
    with pytest.raises(TypeError, match="too many"):
        extension.normalise(3, vectors, vectors, None, None)
    with pytest.raises(TypeError):
        extension.normalise("3", vectors, vectors, None)
    with pytest.raises(TypeError, match="32 bytes"):
        extension.newest(b"", b"", ids(1), None, ids(1))


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
