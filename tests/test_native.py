import logging
import sys

import pytest
import torch

from rarecall import Memory, native
from tests.helpers import ids, teach, unit


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
