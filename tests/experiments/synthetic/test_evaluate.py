from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from experiments.synthetic import evaluate as evaluation
from experiments.synthetic.answers import Answers, ask, per_cent, refill
from experiments.synthetic.evaluate import evaluate, evaluate_hamming, figures_of, network_of
from experiments.synthetic.inspection import by_confidence, look_inside
from experiments.synthetic.networks import make_network
from experiments.synthetic.pack import pack
from experiments.synthetic.task import Data
from experiments.synthetic.train import Run, train
from experiments.training import Pace
from rarecall import Memory
from rarecall.models import weights
from rarecall.models.decoded import Decoded
from tests.experiments.synthetic.conftest import TASK


class Oracle(nn.Module):
    """Knows the answers to some numbers, and gets the last digit of the others wrong."""

    memory = None

    def __init__(self, data: Data, known: Tensor) -> None:
        super().__init__()
        self.answers = {}
        for number in range(len(data.test)):
            length, start = int(data.test.lengths[number]), int(data.test.starts[number])
            output = data.test.outputs[number, :length].clone()
            if data.test.x[number] not in known:
                output[start + 2] = (output[start + 2] + 1) % 4
            self.answers[tuple(data.test.inputs[number, :length].tolist())] = output

    def forward(self, input: Tensor) -> Decoded:
        output = torch.stack([self.answers[tuple(row)] for row in input.tolist()])
        return Decoded(nn.functional.one_hot(output, 6).float(), None)


def test_only_fully_correct_sequences_count() -> None:
    data = Data(TASK)
    known = data.test.x.unique()[::2]
    answers = ask(Oracle(data, known), data.test, batch=3)
    expected = torch.isin(data.test.x, known)
    assert torch.equal(answers.right, expected)
    assert torch.equal(answers.digits[:, 2], expected)
    assert answers.digits[:, :2].all()
    figures = figures_of(answers, data, data.test)
    assert figures["test"]["mean"] == pytest.approx(100 * expected.float().mean().item(), abs=0.01)
    assert figures["by digit"]["output"][:2] == [100.0, 100.0]
    seen = data.times_seen(data.test.x)
    once = figures["by times seen"]["1"]
    assert once["asked"] == (seen == 1).sum()
    assert once["mean"] == pytest.approx(100 * expected[seen == 1].float().mean().item(), abs=0.01)
    assert sum(share["asked"] for share in figures["by times seen"].values()) == 40


def test_shares_have_intervals() -> None:
    share = per_cent(torch.tensor([True] * 30 + [False] * 70))
    assert share == {"mean": 30.0, "interval": 8.98, "asked": 100}
    assert per_cent(torch.zeros(0)) == {"mean": None, "interval": None, "asked": 0}


@pytest.mark.parametrize(("model", "forced"), [("neural-gpu", 0.0), ("seq2seq", 1.0)])
def test_a_new_memory_is_filled_from_the_training_examples_and_the_network_stays(model: str, forced: float) -> None:
    data = Data(TASK)
    network = make_network(model, 8, 1000)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    filled = refill({"model": model, "forced": forced}, network, data, 500)
    assert filled.memory is not None
    assert network.memory is not None
    assert (len(network.memory), filled.memory.capacity) == (0, 500)
    assert len(filled.memory) > 0
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, before[name])
    for name, parameter in network.named_parameters():
        assert torch.equal(parameter, dict(filled.named_parameters())[name])
    # Each slot can be traced to an example that has its value.
    for slot in filled.memory.values.ge(0).nonzero().squeeze(1).tolist():
        example = int(filled.memory.sources[slot])
        assert filled.memory.values[slot] in data.training.outputs[example]


def test_refilling_without_a_memory_is_told() -> None:
    with pytest.raises(ValueError, match="without a memory"):
        refill({"model": "neural-gpu", "forced": 0.0}, make_network("neural-gpu", 8, 0), Data(TASK), 0)


def test_a_look_inside_tells_numbers_from_surroundings() -> None:
    data = Data(TASK)
    same = [(data.training.x == x).nonzero().squeeze(1) for x in data.test.x]
    source = torch.tensor([int(found[0]) if len(found) else -1 for found in same])[:, None].expand(40, 3)
    right = source >= 0
    confidence = torch.where(right, 0.9, 0.2)
    inside = look_inside(Answers(right[:, 0], right, right, confidence, source), data)
    assert inside["nearest"]["number"]["mean"] == 100.0
    assert inside["random"]["number"]["mean"] < 20
    assert inside["same number where it was in training"]["mean"] == 100.0
    assert inside["nearest"]["length"]["mean"] < 60
    assert inside["confidence"] == {"right": 0.9, "wrong": 0.2}
    with pytest.raises(ValueError, match="without a memory"):
        look_inside(Answers(right[:, 0], right), data)


def test_answers_are_counted_by_confidence() -> None:
    parts = by_confidence(torch.tensor([0.05, 0.95, 1.0, 0.99]), torch.tensor([False, True, True, False]))
    assert [part["asked"] for part in parts] == [1, 0, 0, 0, 0, 0, 0, 0, 0, 3]
    assert parts[-1]["mean"] == pytest.approx(66.67)


def test_what_training_wrote_is_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "LONGER", 9)
    train(Run(TASK, "neural-gpu", units=6, capacity=400, steps=3, batch=12), tmp_path, Pace(quiet=True))
    network, run = network_of(tmp_path / "network.safetensors")
    assert network.memory is not None
    assert len(network.memory) > 0
    torch.testing.assert_close(network.memory.keys[: len(network.memory)].norm(dim=1), torch.ones(len(network.memory)))
    result = evaluate(network, run, capacities=(50, 100), quiet=True)
    figures = result["figures"]
    assert {"test", "by times seen", "by digit", "length 9", "slots", "inside", "by capacity"} == figures.keys()
    assert figures["test"]["asked"] == 40
    assert figures["by capacity"].keys() == {"50", "100"}


def test_packing_keeps_the_newest_slots_and_all_of_the_network(tmp_path: Path) -> None:
    run = Run(TASK, "neural-gpu", units=6, capacity=400, steps=4, batch=12)
    train(run, tmp_path, Pace(quiet=True))
    whole, _ = network_of(tmp_path / "network.safetensors")
    assert pack(tmp_path / "network.safetensors", 30, tmp_path / "packed.safetensors") == 30
    packed, about = network_of(tmp_path / "packed.safetensors")
    assert about["kept"] == 30
    assert len(packed.memory) == packed.memory.used == 30
    for name, parameter in whole.named_parameters():
        assert torch.equal(parameter, dict(packed.named_parameters())[name])
    newest = whole.memory.ages[whole.memory.ages >= 0].sort().values[:30]
    assert torch.equal(packed.memory.ages[:30].sort().values, newest)
    # Each of them is as it was, but for rounding.
    assert torch.cdist(packed.memory.keys[:30], whole.memory.keys).amin(1).max() < 1e-3
    train(replace(run, capacity=0), tmp_path / "none", Pace(quiet=True))
    with pytest.raises(ValueError, match="without a memory"):
        pack(tmp_path / "none" / "network.safetensors", 30, tmp_path / "packed.safetensors")


def test_the_hamming_neighbour_is_measured() -> None:
    figures = evaluate_hamming(TASK)["figures"]
    assert 0 <= figures["test"]["mean"] < 60
    assert figures["by times seen"]["0"]["mean"] < 30


def test_weights_of_something_else_are_told(tmp_path: Path) -> None:
    weights.save(make_network("neural-gpu", 8, 0), tmp_path / "w.safetensors")
    with pytest.raises(ValueError, match="not hold a network of the synthetic task"):
        network_of(tmp_path / "w.safetensors")


def test_a_network_and_its_memory_load_with_one_line(tmp_path: Path) -> None:
    import rarecall.models

    for model in ("neural-gpu", "seq2seq"):
        network = make_network(model, 8, 300).eval()
        memory = network.memory
        assert isinstance(memory, Memory)
        memory.update(memory(torch.randn(20, memory.key_size)), torch.randint(6, (20,)), source=torch.arange(20) * 1000)
        weights.save(network, tmp_path / "w.safetensors")
        loaded = rarecall.models.load(tmp_path / "w.safetensors")
        assert len(loaded.memory) == 20
        assert loaded.memory.capacity == 300
        assert torch.equal(loaded.memory.sources, memory.sources)
        torch.testing.assert_close(loaded.memory.keys, memory.keys, atol=1e-3, rtol=0)
        input = torch.randint(6, (4, 6))
        assert (loaded(input).output == network(input).output).float().mean() > 0.9
    assert (tmp_path / "w.safetensors").stat().st_size < 25_000
