from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from rarecall import Memory
from rarecall.models.seq2seq import Attention, Decoder, Encoded, Encoder, Seq2Seq

SYMBOLS, UNITS = 6, 8


def network(memory: bool = True) -> Seq2Seq:
    return Seq2Seq(SYMBOLS, UNITS, memory=Memory(UNITS, 50) if memory else None).double()


def remembering(network: Seq2Seq) -> Seq2Seq:
    assert network.memory is not None
    recall = network.memory(torch.randn(30, UNITS).double())
    network.memory.update(recall, torch.randint(SYMBOLS, (30,)))
    return network


@pytest.mark.parametrize("memory", [False, True])
def test_all_places_at_once_are_the_same_as_one_after_the_other(memory: bool) -> None:
    net = network(memory)
    if memory:
        remembering(net)
    input = torch.randint(SYMBOLS, (3, 7))
    own = net(input)
    forced = net(input, own.output)
    torch.testing.assert_close(own.logits, forced.logits)
    if memory:
        assert own.recall is not None
        assert forced.recall is not None
        assert torch.equal(own.recall.slots, forced.recall.slots)
        assert own.recall.value.shape == (3, 7)


def test_forced_sequences_go_on_from_the_target_and_the_others_from_their_own_output() -> None:
    net = network()
    input, target = torch.randint(SYMBOLS, (2, 4, 6))
    forced = torch.tensor([True, False, True, False])
    mixed, own, right = net(input, target, forced).logits, net(input).logits, net(input, target).logits
    torch.testing.assert_close(mixed[forced], right[forced])
    torch.testing.assert_close(mixed[~forced], own[~forced])


def test_the_query_is_what_the_attention_found_and_the_answer_is_joined_before_the_softmax() -> None:
    net = remembering(network())
    input = torch.randint(SYMBOLS, (2, 5))
    encoded = net.encoder(input)
    before = torch.cat((torch.full((2, 1), net.decoder.start), input[:, :-1]), 1)
    states, found, *_ = net.decoder(before, encoded, net.decoder.begin(encoded))
    decoded = net(input, input)
    assert decoded.recall is not None
    torch.testing.assert_close(decoded.recall.query, F.normalize(found, dim=-1))
    decoder, recall = net.decoder, decoded.recall
    answer = decoder.answer.embedding(recall.value) * recall.confidence[..., None]
    torch.testing.assert_close(decoded.logits, decoder.output(decoder.join(torch.cat((states, answer), -1))))


def test_attention_is_a_weighted_mean_of_the_states() -> None:
    attention = Attention(UNITS).double()
    states, questions = torch.randn(2, 4, UNITS).double(), torch.randn(2, 3, UNITS).double()
    found, weights = attention(questions, Encoded(states, (torch.zeros(1), torch.zeros(1))))
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3).double())
    torch.testing.assert_close(found, (weights[..., None] * states[:, None]).sum(2))
    fits = torch.einsum("btu,vu,blv->btl", questions, attention.match.weight, states) / UNITS**0.5
    torch.testing.assert_close(weights, fits.softmax(-1))


def test_residual_connections_begin_at_the_third_layer() -> None:
    encoder = Encoder(SYMBOLS, UNITS, 3).double()
    input = torch.randint(SYMBOLS, (2, 6))
    below = encoder.above[0](encoder.bottom(encoder.embedding(input))[0])[0]
    torch.testing.assert_close(encoder(input).states, encoder.above[1](below)[0] + below)
    decoder = Decoder(SYMBOLS, UNITS, 3, None).double()
    encoded = encoder(input)
    steps = decoder(input, encoded, decoder.begin(encoded))
    bottom = decoder.bottom(decoder.embedding(input), encoded.last)[0]
    below = decoder.above[0](torch.cat((bottom, steps.read), -1))[0]
    above = decoder.above[1](torch.cat((below, steps.read), -1))[0]
    torch.testing.assert_close(steps.states, above + below)


def test_with_a_shortcut_the_words_themselves_are_in_the_states() -> None:
    encoder = Encoder(SYMBOLS, UNITS, 2).double()
    input = torch.randint(SYMBOLS, (2, 6))
    states = encoder(input).states
    encoder.shortcut = True
    torch.testing.assert_close(encoder(input).states, states + encoder.embedding(input))


def test_wrong_sizes_are_told() -> None:
    with pytest.raises(ValueError, match=r"key_size 5.*key_size=8"):
        Decoder(SYMBOLS, UNITS, 2, Memory(5, 10))
    with pytest.raises(ValueError, match="1 layers"):
        Encoder(SYMBOLS, UNITS, 1)
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        network()(torch.zeros(3, dtype=torch.int64))


def test_what_is_hidden_does_not_matter() -> None:
    seq2seq = remembering(network())
    input = torch.randint(SYMBOLS, (3, 7))
    hidden = torch.rand(input.shape) < 0.5
    other = torch.where(hidden, (input + 1) % SYMBOLS, input)
    assert seq2seq(input, hidden=hidden).logits.equal(seq2seq(other, hidden=hidden).logits)
    assert not seq2seq(input).logits.equal(seq2seq(other).logits)
