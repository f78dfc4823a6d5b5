from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from rarecall import Memory, Recall
from rarecall.models.neural_gpu import CGRU, NeuralGPU

SYMBOLS, CHANNELS = 6, 4


def network(width: int = 1, memory: bool = True) -> NeuralGPU:
    return NeuralGPU(SYMBOLS, CHANNELS, width, memory=Memory(CHANNELS, 50) if memory else None).double()


def remembering(network: NeuralGPU) -> NeuralGPU:
    """With some keys in its memory."""
    assert network.memory is not None
    recall = network.memory(torch.randn(30, CHANNELS).double())
    network.memory.update(recall, torch.randint(SYMBOLS, (30,)), source=torch.arange(30))
    return network


def convolved(image: Tensor, weight: Tensor) -> Tensor:
    """What a matrix over windows does, by a plain convolution of (batch, length, width, channels)."""
    width = image.shape[2]
    filters = weight.view(len(weight), 3 if width > 1 else 1, 3, -1)  # outputs, across the width, along, channels
    padded = (1, 1 if width > 1 else 0)
    return F.conv2d(image.permute(0, 3, 1, 2), filters.permute(0, 3, 2, 1), padding=padded).permute(0, 2, 3, 1)


@pytest.mark.parametrize("width", [1, 2, 4])
def test_a_cell_is_the_formula_of_the_paper(width: int) -> None:
    cell = CGRU(CHANNELS, width).double()
    state = torch.randn(2, 5, width, CHANNELS).double()
    update, reset = F.hardsigmoid(convolved(state, cell.gates.weight) + cell.gates.bias).chunk(2, -1)
    candidate = torch.tanh(convolved(reset * state, cell.candidate.weight) + cell.candidate.bias)
    torch.testing.assert_close(cell(state), update * state + (1 - update) * candidate)


@pytest.mark.parametrize("width", [1, 2, 4])
def test_the_updated_tape_is_the_whole_tape_convolved_again(width: int) -> None:
    gpu = network(width)
    written = torch.randn(3, 6, CHANNELS).double()
    tape = gpu.blank_tape().expand(3, 6, width, -1)
    for place in (2, 0, 5):
        tape = gpu.put(tape, place, written[:, place])
    image = torch.zeros(3, 6, width, CHANNELS).double()
    image[:, [2, 0, 5], 0] = written[:, [2, 0, 5]]
    # around[i, j] is what the symbol adds i - 1 places further along and j further across.
    along, across = gpu.around
    filters = gpu.tape.weight.view(along, across, -1, CHANNELS)
    expected = gpu.blank_tape().expand(3, 6, width, -1).clone()
    for place in range(6):
        for shift in range(along):
            for column in range(across):
                if 0 <= place + shift - 1 < 6:
                    expected[:, place + shift - 1, column] += image[:, place, 0] @ filters[shift, column].t()
    torch.testing.assert_close(tape, expected)


def reference(gpu: NeuralGPU, input: Tensor, target: Tensor) -> tuple[Tensor, list[Recall]]:
    """The paper's rules with nothing saved: the tape is kept as symbols, and convolved as a whole for each step."""
    batch, length = input.shape
    state = torch.zeros(batch, length, gpu.width, gpu.channels).double()
    state[:, :, 0] = gpu.embedding(input)
    for _ in range(length):
        for cell in gpu.encoder:
            state = cell(state)
    symbols = torch.zeros(batch, length, gpu.channels).double()
    logits, recalls = [], []
    for k in range(length):
        if gpu.memory is not None:
            recalls.append(gpu.memory(state[:, k, 0]))
            embedded = gpu.answer.embedding(recalls[-1].value.clamp(min=0))
            symbols = symbols.clone()
            symbols[:, k] = embedded * recalls[-1].confidence[:, None]
        tape = gpu.blank_tape().expand(batch, length, gpu.width, -1)
        for place in range(length):
            tape = gpu.put(tape, place, symbols[:, place])
        for cell, added in zip(gpu.decoder, tape.chunk(gpu.layers, -1), strict=True):
            state = cell(state, added.split((2 * gpu.channels, gpu.channels), -1))
        logits.append(gpu.output(state[:, k, 0]))
        symbols = symbols.clone()
        symbols[:, k] = gpu.written(target[:, k])
    return torch.stack(logits, 1), recalls


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("memory", [False, True])
def test_decoding_follows_the_paper_step_by_step(width: int, memory: bool) -> None:
    gpu = network(width, memory)
    if memory:
        remembering(gpu)
    input, target = torch.randint(SYMBOLS, (2, 3, 7))
    logits, recalls = reference(gpu, input, target)
    decoded = gpu(input, target)
    torch.testing.assert_close(decoded.logits, logits)
    if memory:
        assert decoded.recall is not None
        torch.testing.assert_close(decoded.recall.query, torch.stack([recall.query for recall in recalls], 1))
        assert torch.equal(decoded.recall.slots, torch.stack([recall.slots for recall in recalls], 1))
    else:
        assert decoded.recall is None


def test_the_memory_is_asked_at_the_place_before_its_symbol_is_produced() -> None:
    """The first query is of the encoder alone; the answer at a place does not reach its own query, but its symbol."""
    gpu = remembering(network())
    input = torch.randint(SYMBOLS, (3, 5))
    before = gpu(input, input)
    assert before.recall is not None
    torch.testing.assert_close(before.recall.query[:, 0], F.normalize(gpu.encode(input)[:, 0, 0], dim=-1))
    with torch.no_grad():
        gpu.answer.embedding.weight.add_(1.0)
    after = gpu(input, input)
    assert after.recall is not None
    torch.testing.assert_close(before.recall.query[:, 0], after.recall.query[:, 0])
    assert not torch.allclose(before.logits[:, 0], after.logits[:, 0])
    assert not torch.allclose(before.recall.query[:, 1], after.recall.query[:, 1])


def test_gradients_reach_the_query_through_the_confidence() -> None:
    gpu = remembering(network())
    input = torch.randint(SYMBOLS, (3, 5))
    with_confidence = torch.autograd.grad(gpu(input, input).logits.sum(), gpu.embedding.weight)[0]
    assert gpu.answer is not None
    gpu.answer.register_forward_hook(lambda module, arguments, embedded: embedded.detach())
    without = torch.autograd.grad(gpu(input, input).logits.sum(), gpu.embedding.weight)[0]
    assert not torch.allclose(with_confidence, without)


def test_forced_sequences_get_the_target_on_the_tape_and_the_others_their_own_output() -> None:
    gpu = remembering(network())
    with torch.no_grad():
        gpu.written.weight.mul_(5)
    input, target = torch.randint(SYMBOLS, (2, 4, 6))
    forced = torch.tensor([True, False, True, False])
    mixed, own, right = gpu(input, target, forced).logits, gpu(input).logits, gpu(input, target).logits
    torch.testing.assert_close(mixed[forced], right[forced])
    torch.testing.assert_close(mixed[~forced], own[~forced])
    assert not torch.allclose(own, right)


def test_no_sequence_is_answered_by_what_it_wrote_itself() -> None:
    gpu = network()
    assert gpu.memory is not None
    input = torch.randint(SYMBOLS, (3, 5))
    recall = gpu(input).recall
    source = torch.arange(3)[:, None].expand(3, 5)
    gpu.memory.update(recall, input, source=source)
    again = gpu(input, exclude=torch.arange(3)).recall
    assert again is not None
    found = gpu.memory.sources[again.slots.clamp(min=0)].masked_fill(again.slots < 0, -1)
    assert not (found == source[..., None]).any()


def test_wrong_sizes_and_types_are_told() -> None:
    with pytest.raises(ValueError, match=r"key_size 5.*key_size=4"):
        NeuralGPU(SYMBOLS, CHANNELS, memory=Memory(5, 10))
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        network()(torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ValueError, match="float32"):
        network()(torch.zeros(3, 4))


def test_what_is_hidden_does_not_matter() -> None:
    gpu = remembering(network())
    input = torch.randint(SYMBOLS, (3, 7))
    hidden = torch.rand(input.shape) < 0.5
    other = torch.where(hidden, (input + 1) % SYMBOLS, input)
    assert gpu(input, hidden=hidden).logits.equal(gpu(other, hidden=hidden).logits)
    assert not gpu(input).logits.equal(gpu(other).logits)
