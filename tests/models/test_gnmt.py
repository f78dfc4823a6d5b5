from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

import rarecall.models
from rarecall import Memory
from rarecall.models import weights
from rarecall.models.gnmt import GNMT

SYMBOLS, UNITS = 20, 8


def network(memory: bool = True, search: str = "exact", **options: bool) -> GNMT:
    return GNMT(SYMBOLS, 1, 2, UNITS, 3, 0.0, Memory(UNITS, 9000, search=search) if memory else None, **options).eval()


@pytest.mark.parametrize(("question", "trust"), [(False, False), (True, False), (True, True)])
def test_the_attention_vector_is_the_query_and_the_answer_is_joined_before_the_softmax(
    question: bool, trust: bool
) -> None:
    net = network(question=question, trust=trust)
    assert net.memory is not None
    net.memory.update(net.memory(torch.randn(30, UNITS)), torch.randint(SYMBOLS, (30,)))
    with torch.no_grad():
        net.decoder.join.weight.normal_()
    source, target = torch.randint(3, SYMBOLS, (2, 5)), torch.randint(3, SYMBOLS, (2, 4))
    encoded = net.encoder(source)
    before = torch.cat((torch.ones(2, 1).long(), target[:, :-1]), 1)
    steps = net.decoder(before, encoded, net.decoder.begin(encoded))
    decoded = net(source, target)
    assert decoded.recall is not None
    query = F.normalize(steps.attended @ encoded.states, dim=-1)
    if question:
        asked, _ = net.decoder.bottom(net.decoder.embedding(before) * UNITS**0.5, encoded.last)
        query = F.normalize(query + F.normalize(asked, dim=-1), dim=-1)
    torch.testing.assert_close(decoded.recall.query, query)
    by = net.decoder.answer.trust(decoded.recall) if trust else decoded.recall.confidence
    answer = net.encoder.embedding(decoded.recall.value) * by[..., None]
    joined = net.decoder.join(torch.cat((steps.states, answer), -1))
    torch.testing.assert_close(decoded.logits, joined @ net.encoder.embedding.weight.T)


def test_with_a_memory_it_begins_as_the_network_without() -> None:
    without, with_memory = network(memory=False), network()
    with_memory.load_state_dict(without.state_dict(), strict=False)
    assert with_memory.memory is not None
    with_memory.memory.update(with_memory.memory(torch.randn(30, UNITS)), torch.randint(SYMBOLS, (30,)))
    source, target = torch.randint(3, SYMBOLS, (2, 2, 5))
    torch.testing.assert_close(with_memory(source, target).logits, without(source, target).logits)


@pytest.mark.parametrize("search", ["exact", "auto"])
def test_the_shared_embedding_is_saved_once_and_the_memory_with_it(search: str, tmp_path: Path) -> None:
    net = network(search=search)
    assert net.memory is not None
    net.memory.update(net.memory(torch.randn(30, UNITS)), torch.randint(SYMBOLS, (30,)))
    weights.save(net, tmp_path / "w.safetensors")
    names = set(rarecall.storage.read(tmp_path / "w.safetensors", kind="network")[0])
    assert [name for name in names if "embedding" in name] == ["encoder.embedding.weight"]
    assert not any("search" in name for name in names)
    loaded = rarecall.models.load(tmp_path / "w.safetensors")
    assert isinstance(loaded, GNMT)
    assert loaded.decoder.output.weight is loaded.encoder.embedding.weight
    source, target = torch.randint(3, SYMBOLS, (2, 2, 5))
    torch.testing.assert_close(loaded(source, target).logits, net(source, target).logits, rtol=0.02, atol=0.02)
    again = network(search=search)
    weights.load_into(again, rarecall.storage.read(tmp_path / "w.safetensors", kind="network")[0], "w")
    assert again.memory is not None
    assert len(again.memory) == 30
