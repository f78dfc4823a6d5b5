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


@pytest.mark.parametrize(("ask", "trust"), [(False, False), (True, False), (True, True)])
def test_the_attention_vector_is_the_query_and_the_answer_is_joined_before_the_softmax_or_mixed_in_after(
    ask: bool, trust: bool
) -> None:
    net = network(ask=ask, trust=trust)
    assert net.memory is not None
    net.memory.update(net.memory(torch.randn(30, UNITS)), torch.randint(SYMBOLS, (30,)))
    source, target = torch.randint(3, SYMBOLS, (2, 5)), torch.randint(3, SYMBOLS, (2, 4))
    encoded = net.encoder(source)
    before = torch.cat((torch.ones(2, 1).long(), target[:, :-1]), 1)
    steps = net.decoder(before, encoded, net.decoder.begin(encoded))
    if not trust:
        with torch.no_grad():
            net.decoder.join.weight.normal_()
    decoded = net(source, target)
    assert decoded.recall is not None
    query = F.normalize(steps.attended @ encoded.states, dim=-1)
    if ask:
        asked, _ = net.decoder.bottom(net.decoder.embedding(before) * UNITS**0.5, encoded.last)
        query = query + F.normalize(asked, dim=-1) + F.normalize(steps.states, dim=-1)
    torch.testing.assert_close(decoded.recall.query, F.normalize(query, dim=-1))
    own = steps.states @ net.encoder.embedding.weight.T
    if trust:
        torch.testing.assert_close(decoded.logits, net.decoder.trust.mix(own, decoded.recall))
    else:
        answer = net.encoder.embedding(decoded.recall.value) * decoded.recall.confidence[..., None]
        joined = net.decoder.join(torch.cat((steps.states, answer), -1))
        torch.testing.assert_close(decoded.logits, joined @ net.encoder.embedding.weight.T)
    # Of some pieces, what trust is learned by is wanted: the network's own.
    some = torch.tensor([3, 7])
    torch.testing.assert_close(
        net(source, target, among=some).logits, own[..., some] if trust else decoded.logits[..., some]
    )


@pytest.mark.parametrize("trust", [False, True])
def test_with_an_empty_memory_it_begins_as_the_network_without(trust: bool) -> None:
    without, with_memory = network(memory=False), network(trust=trust)
    with_memory.load_state_dict(without.state_dict(), strict=False)
    assert with_memory.memory is not None
    source, target = torch.randint(3, SYMBOLS, (2, 2, 5))
    right = without(source, target).logits.log_softmax(-1)
    torch.testing.assert_close(with_memory(source, target).logits.log_softmax(-1), right)
    if not trust:  # joined, the answer is not listened to yet, whatever it is
        with_memory.memory.update(with_memory.memory(torch.randn(30, UNITS)), torch.randint(SYMBOLS, (30,)))
        torch.testing.assert_close(with_memory(source, target).logits.log_softmax(-1), right)


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


def test_a_second_attention_changes_nothing_until_it_is_trained_and_then_every_step_reads_the_input_again() -> None:
    without, again = network(memory=False), network(memory=False, reattend=True)
    again.load_state_dict(without.state_dict(), strict=False)
    source, target = torch.randint(3, SYMBOLS, (2, 5)), torch.randint(3, SYMBOLS, (2, 4))
    expected = without(source, target).logits
    torch.testing.assert_close(again(source, target).logits, expected)
    decoder = again.decoder
    assert decoder.add is not None
    torch.nn.init.eye_(decoder.add.weight)
    encoded = again.encoder(source)
    before = torch.cat((torch.ones(2, 1).long(), target[:, :-1]), 1)
    states = without.decoder(before, encoded, decoder.begin(encoded)).states
    weights_of = (decoder.reattention.match(states) @ encoded.states.mT / UNITS**0.5).softmax(-1)
    after = states + weights_of @ encoded.states
    torch.testing.assert_close(again(source, target).logits, F.linear(after, decoder.output.weight))
