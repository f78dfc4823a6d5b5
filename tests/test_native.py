"""The extension refuses what it could not read, and a memory does without it where it cannot be used."""

import logging
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from rarecall import Memory, backend
from rarecall.backend.torch_backend import TorchBackend
from tests.helpers import assert_same, ids, snapshot, teach, unit

extension: Any = backend.extension()
needs_extension = pytest.mark.skipif(extension is None, reason="the extension was not built")


@pytest.fixture
def memory() -> Memory:
    memory = Memory(3, 5, k=4)
    memory.write(torch.eye(3), ids(1, 2, 3))
    memory(unit(1, 3))
    return memory


def ask(query: Any, exclude: Any = None) -> Any:
    return extension.ask(query, exclude, 3, 4)


@needs_extension
@pytest.mark.parametrize(
    ("query", "error", "message"),
    [
        (torch.ones(3, 2).T, ValueError, "not contiguous"),
        (torch.ones(2, 3, dtype=torch.float64), ValueError, "float64; expected 6 of float32"),
        (torch.ones(2, 3, dtype=torch.bfloat16), ValueError, "expected 6 of float32"),
        (torch.ones(2, 4), ValueError, "8 numbers of float32; expected 6"),  # of whole rows
        (torch.ones(2, 3, device="meta"), TypeError, "torch.Tensor"),
        ("a tensor", TypeError, "torch.Tensor"),
        (None, TypeError, "torch.Tensor"),
        ([[1.0, 2.0, 3.0]], TypeError, "torch.Tensor"),
    ],
)
def test_a_query_that_it_cannot_read_is_refused(query, error, message) -> None:
    with pytest.raises(error, match=message):
        ask(query)


@needs_extension
# Torch warns of it, too.
@pytest.mark.filterwarnings("ignore")
def test_a_tensor_without_numbers_is_refused() -> None:
    with torch._subclasses.FakeTensorMode():
        fake = torch.ones(2, 3)
    with pytest.raises(TypeError, match=r"torch\.Tensor"):
        ask(fake)


@needs_extension
def test_other_arguments_that_do_not_fit_are_refused() -> None:
    vectors = torch.ones(2, 3)
    with pytest.raises(ValueError, match="3 numbers of int64; expected 2"):
        ask(vectors, ids(1, 2, 3))
    with pytest.raises(ValueError, match="int32; expected 2 of int64"):
        ask(vectors, ids(1, 2).int())
    for arguments in (
        (vectors, None),
        (vectors, None, 3, 4, 0, None),
        (vectors, None, "3", 4),
        (vectors, None, 3.5, 4),
    ):
        with pytest.raises(TypeError):
            extension.ask(*arguments)
    with pytest.raises(ValueError, match="use_variant got a name"):
        extension.use_variant("sse")
    for kind in (extension.Found, extension.Index):
        with pytest.raises(TypeError):
            kind()


@needs_extension
def test_an_index_of_a_size_that_cannot_be_is_refused() -> None:
    for key_size, capacity in ((0, 5), (-1, 5), (16385, 5), (4, -1), (4, 2**31)):
        with pytest.raises(ValueError, match="index"):
            extension.ExactIndex(key_size, capacity)
        with pytest.raises(ValueError, match="index"):
            extension.AutoIndex(key_size, capacity, 0.9, 0, 100)
    index = extension.AutoIndex(4, 100, 0.9, 0, 100)
    state = index.export_state()
    with pytest.raises(KeyError, match="list_of"):
        index.restore({})
    with pytest.raises(ValueError, match="expected"):
        index.restore(state | {"list_of": state["list_of"].double()})
    with pytest.raises(ValueError, match="cannot be right"):
        index.restore(state | {"asked": torch.tensor(-1)})
    index.restore(state)


@needs_extension
def test_slots_buffers_and_candidates_that_do_not_fit_are_refused(memory) -> None:
    book, buffers, before = memory.backend.book, memory._buffers, snapshot(memory)

    def put(*slots: int, key_size: int = 3) -> None:
        rows = {name: buffers[name][: len(slots)] for name in ("values", "sources", "counts", "times")}
        rows["keys"] = torch.ones(len(slots), key_size)
        extension.put(book, buffers, None, ids(*slots), 1, rows, False, 1)

    def rank(candidates: torch.Tensor) -> None:
        extension.rank(book, buffers, ask(torch.ones(2, 3)), candidates, 1.0, 1)

    def update(found: Any, target: torch.Tensor) -> None:
        extension.update(book, buffers, None, found, target, None, None, False, 8.0, lambda: torch.tensor(1), False, 1)

    found = memory(unit(2, 3)).found
    refused: list[tuple[Callable[[], Any], type[Exception], str]] = [
        (lambda: put(2, 1), ValueError, "not ascending"),
        (lambda: put(1, 1), ValueError, "not ascending"),
        (lambda: put(5), ValueError, "does not have"),
        (lambda: put(-1), ValueError, "does not have"),
        (lambda: put(1, key_size=4), ValueError, "does not have"),
        (lambda: rank(torch.zeros(2, 5, dtype=torch.int64)), ValueError, "at most k = 4"),
        (lambda: rank(torch.full((2, 1), 5)), ValueError, "slot 5"),
        (lambda: rank(torch.zeros(3, 1, dtype=torch.int64)), ValueError, "3 numbers"),
        (lambda: rank(torch.zeros(2, 1)), ValueError, "float32"),
        (lambda: extension.loss(book, buffers, torch.ones(2, 3), ids(1, 2), None, 0.1, False), TypeError, "Found"),
        (lambda: extension.loss(book, buffers, found, ids(1), None, 0.1, False), ValueError, "1 numbers"),
        (lambda: extension.loss(book, buffers, found, ids(1, 2), ids(1, 0), 0.1, False), ValueError, "of bool"),
        (lambda: update(found, ids(1, 2, 3)), ValueError, "3 numbers"),
        (lambda: update(None, ids(1, 2)), TypeError, "Found"),
        (lambda: book.rebuild({"keys": torch.ones(3)}), KeyError, "missing"),
        (lambda: book.rebuild(buffers | {"times": torch.ones(3)}), ValueError, "3 numbers of float32; expected 5"),
    ]
    for call, error, message in refused:
        with pytest.raises(error, match=message):
            call()
        assert_same(before, snapshot(memory))


@needs_extension
def test_variants_are_there_and_the_plain_one_is_among_them() -> None:
    names = extension.variants()
    assert names[0] == "plain"
    for name in names:
        extension.use_variant(name)  # the last is that in use


def test_without_the_extension_one_line_says_so(monkeypatch, caplog) -> None:
    monkeypatch.setitem(sys.modules, "rarecall._native", None)
    monkeypatch.delattr("rarecall._native", raising=False)
    backend.extension.cache_clear()
    try:
        with caplog.at_level(logging.WARNING, logger="rarecall"):
            for search in ("exact", "auto", "hash"):
                memory = Memory(4, 10, k=2, search=search)
                for _ in range(3):
                    teach(memory, unit(2, 4), ids(1, 2))
                assert isinstance(memory.backend, TorchBackend)
        assert len(caplog.records) == 1
        assert "pip install" in caplog.text
    finally:
        backend.extension.cache_clear()


@needs_extension
def test_with_a_torch_that_does_not_exchange_tensors_torch_does_the_arithmetic() -> None:
    """Torch has the exchange of DLPack since 2.10; the package takes any from 2.6 on."""
    code = (
        "import torch; del torch.Tensor.__dlpack_c_exchange_api__\n"
        "from rarecall import Memory\n"
        "memory = Memory(4, 10)\n"
        "memory.write(torch.eye(4), torch.arange(4))\n"
        "assert memory(torch.eye(4)).value.tolist() == [0, 1, 2, 3]\n"
        "assert memory.native is None\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("with_gradient", [True, False])
def test_queries_and_targets_may_be_of_any_layout(new_memory, with_gradient) -> None:
    """A few steps with tensors that are not compact leave what they leave with compact ones."""
    memories = [new_memory(6, 20, k=4) for _ in range(2)]
    for step in range(12):
        query, target = unit(9, 6)[::2], (torch.arange(9) % 4)[::2]
        mask, source = (torch.rand(9) < 0.8)[::2], torch.randint(5, (9,))[::2]
        assert not query.is_contiguous()
        tensors = query, target, mask, source
        losses = []
        for memory, layout in zip(memories, (lambda tensor: tensor, torch.Tensor.contiguous), strict=True):
            asked, right, taking_part, founder = map(layout, tensors)
            recall = memory(asked.requires_grad_(with_gradient), exclude=founder)
            losses.append(memory.loss(recall, right, taking_part))
            generator = torch.Generator().manual_seed(step)
            memory.update(recall, right, source=founder, mask=taking_part, generator=generator)
        assert torch.equal(*losses)
    assert_same(snapshot(memories[0]), snapshot(memories[1]))
