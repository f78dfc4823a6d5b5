import json
import logging
import subprocess
import sys

import pytest
import torch

from rarecall import Memory, native
from tests.helpers import ids, teach, unit


@pytest.mark.skipif(native.extension() is None, reason="the extension was not built")
def test_what_the_extension_could_not_read_is_refused() -> None:
    extension, vectors = native.loaded(), torch.ones(2, 3)
    found = extension.ask(3, 4, vectors, None)
    for wrong, message in (
        (torch.ones(3, 2).T, "contiguous"),
        (torch.ones(2, 3, dtype=torch.float64), "torch.float32"),
        (torch.ones(2, 3, device="meta"), "on the CPU"),
        ("a tensor", "expected a tensor of torch.float32"),
        (torch.ones(2, 4), "expected one of 3 numbers"),  # of whole rows
    ):
        with pytest.raises(ValueError, match=message):
            extension.ask(3, 4, wrong, None)
    with pytest.raises(ValueError, match=r"shape torch.Size\(\[3\]\); expected one of 2 numbers"):
        extension.ask(3, 4, vectors, ids(1, 2, 3))
    with pytest.raises(TypeError, match="too few"):
        extension.ask(3, 4, vectors)
    with pytest.raises(TypeError, match="too many"):
        extension.ask(3, 4, vectors, None, None)
    with pytest.raises(TypeError):
        extension.ask("3", 4, vectors, None)
    with pytest.raises(TypeError, match="bytes of packed fields"):
        extension.lists_valid(b"")
    slots = native.slots_of(Memory(3, 5))
    with pytest.raises(TypeError, match="expected Slots"):
        extension.newest(vectors, ids(1), None, ids(1))
    with pytest.raises(TypeError, match="Slots with chains"):
        extension.newest(slots, ids(1), None, ids(1))
    for wrong in (torch.zeros(2, 5, dtype=torch.int64), torch.full((2, 1), 5)):
        with pytest.raises(TypeError, match="expected at most k slots for each query, all of them in the memory"):
            extension.recall(slots, found, wrong.shape[1], wrong, 1.0, 1)
    for wrong in (vectors, None):
        with pytest.raises(TypeError, match="expected Found"):
            extension.recall(slots, wrong, 0, ids(), 1.0, 1)
    others = ids(1, 2), None, 0.1, None, None, None
    for wrong, message in ((vectors, "its tensors"), (extension.ask(3, 5, vectors, None), "of this memory")):
        with pytest.raises(TypeError, match=message):
            extension.margin_loss(slots, 4, wrong, *others)
    rows = vectors, torch.ones(2, 4), torch.ones(2, 4), torch.ones(2, 4), None
    with pytest.raises(ValueError, match=r"expected a tensor of torch\.int64"):
        extension.margin_loss(slots, 4, rows, *others)
    with pytest.raises(TypeError):
        type(found)()


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


def stream() -> list[float]:
    """What a few steps come to, of which some have a query and a target that are not compact."""
    memory = Memory(6, 20, k=4)
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(1)
    losses = []
    for step in range(12):
        query, target = unit(9, 6)[::2], (torch.arange(9) % 4)[::2]
        if step % 2:
            query, target = query.contiguous(), target.contiguous()
        recall = memory(query)
        losses.append(float(memory.loss(recall, target)))
        memory.update(recall, target, generator=generator)
    return [*losses, float(memory.keys.sum()), *map(float, memory.values), *map(float, memory.ages)]


@pytest.mark.skipif(native.extension() is None, reason="the extension was not built")
def test_tensors_of_a_torch_that_does_not_exchange_them_are_read_as_well() -> None:
    code = (
        "import torch; torch.Tensor.__dlpack_c_exchange_api__ = None\n"
        "from tests import test_native as test\n"
        "test.test_what_the_extension_could_not_read_is_refused()\n"
        "print(test.stream())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == stream()


@pytest.mark.skipif(native.extension() is None, reason="the extension was not built")
def test_a_tensor_without_numbers_is_refused() -> None:
    memory = Memory(3, 5)
    teach(memory, unit(2, 3), ids(1, 2))
    with torch._subclasses.FakeTensorMode():
        fake = torch.ones(2, 3)
    with pytest.raises(ValueError, match="expected a tensor"):
        native.loaded().ask(3, 4, fake, None)
