from __future__ import annotations

import copy
import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from experiments.synthetic.evaluate import network_of
from experiments.synthetic.task import A
from experiments.synthetic.train import Run, State, train
from experiments.training import Pace
from rarecall import storage
from tests.experiments.synthetic.conftest import TASK
from tests.helpers import assert_same

RUN = Run(TASK, "neural-gpu", units=6, capacity=400, steps=8, seed=3, batch=12, first=16, short=5)
QUIET = Pace(report=2, measure=4, quiet=True)


def tensors(out: Path, kind: str = "checkpoint") -> dict[str, Tensor]:
    return storage.read(out / f"{kind}.safetensors", kind=kind)[0]


@pytest.mark.parametrize(
    "run",
    [
        RUN,
        replace(RUN, anew=False, forced=0.5, hide=1.0),
        replace(RUN, model="seq2seq", forced=1.0),
        replace(RUN, capacity=0),
    ],
    ids=["own output", "fixed and half forced", "seq2seq", "no memory"],
)
def test_a_run_that_was_stopped_goes_on_to_the_very_same_weights_and_memory(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert train(run, tmp_path / "whole", QUIET)
    forward_one = State.forward_one

    def interrupted(state: State) -> dict[str, float]:
        if state.step == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return forward_one(state)

    monkeypatch.setattr(State, "forward_one", interrupted)
    assert not train(run, tmp_path / "parts", QUIET)
    assert not (tmp_path / "parts" / "network.safetensors").exists()
    torch.rand(7)  # what happens in between does not matter
    monkeypatch.setattr(State, "forward_one", forward_one)
    assert train(run, tmp_path / "parts", QUIET)
    whole = tensors(tmp_path / "whole")
    assert_same(whole, tensors(tmp_path / "parts"))
    assert_same(tensors(tmp_path / "whole", "network"), tensors(tmp_path / "parts", "network"))
    assert any(name.endswith("memory.values") and (t >= 0).any() for name, t in whole.items()) == (run.capacity > 0)
    headers = [storage.read(tmp_path / p / "checkpoint.safetensors", kind="checkpoint")[1] for p in ("whole", "parts")]
    assert headers[0] == headers[1]


def test_a_checkpoint_of_another_run_is_refused_but_more_steps_are_not(tmp_path: Path) -> None:
    assert train(RUN, tmp_path, QUIET)
    with pytest.raises(ValueError, match="belongs to another run"):
        train(replace(RUN, capacity=300), tmp_path, QUIET)
    assert train(replace(RUN, steps=9), tmp_path, QUIET)
    assert network_of(tmp_path / "network.safetensors")[1]["plans"] == [[8, 8]]


def test_metrics_tell_of_every_digit_running_free(tmp_path: Path) -> None:
    train(replace(RUN, forced=0.5), tmp_path, QUIET)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [2, 4, 6, 8]
    told = {f"{what}_{digit}" for what in ("memory", "output") for digit in (1, 2, 3)}
    assert all(told | {"numbers", "longest", "first", "right", "by_memory"} <= line.keys() for line in lines)
    assert {"validation", "validation_1", "validation_3"} <= lines[1].keys()


def test_with_the_right_output_given_no_digit_counts_as_free(tmp_path: Path) -> None:
    state = State(replace(RUN, forced=1.0))
    assert not {"right", "output_1"} & state.forward_one().keys()


def test_surroundings_are_drawn_anew_or_fixed() -> None:
    for anew in (True, False):
        state = State(replace(RUN, anew=anew, first=0, short=7))
        same = []
        for _ in range(30):
            which, examples = state.next_batch()
            assert torch.equal(examples.x, state.data.training.x[which])
            assert len(examples.lengths.unique()) == 1
            known = state.data.training[which]
            same.append(known.inputs.shape == examples.inputs.shape and torch.equal(known.inputs, examples.inputs))
        assert all(same) != anew


def test_a_fixed_example_is_not_answered_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    state = State(replace(RUN, anew=False, first=0, short=7))
    asked = []
    forward = type(state.network).forward

    def watched(network, input, target, forced, exclude, hidden):
        decoded = forward(network, input, target, forced, exclude, hidden)
        asked.append((exclude, network.memory.sources[decoded.recall.slots], decoded.recall.slots >= 0))
        return decoded

    monkeypatch.setattr(type(state.network), "forward", watched)
    for _ in range(16):  # more than an epoch
        state.forward_one()
    answered = 0
    for exclude, sources, found in asked:
        assert not ((sources == exclude[:, None, None]) & found).any()
        answered += int(found.sum())
    assert answered


def test_only_letters_are_hidden_and_hidden_ones_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    state = State(replace(RUN, anew=False, hide=1.0, first=0, short=7))
    shown = []
    forward, update = type(state.network).forward, type(state.network.memory).update

    def watched(network, input, target, forced, exclude, hidden):
        shown.append((input, hidden))
        return forward(network, input, target, forced, exclude, hidden)

    def updating(memory, recall, target, source, mask):
        assert mask.equal(~shown[-1][1])
        update(memory, recall, target, source=source, mask=mask)

    monkeypatch.setattr(type(state.network), "forward", watched)
    monkeypatch.setattr(type(state.network.memory), "update", updating)
    for _ in range(16):
        state.forward_one()
    letters = torch.cat([(input >= A).flatten() for input, _ in shown])
    hidden = torch.cat([hidden.flatten() for _, hidden in shown])
    assert not hidden[~letters].any()
    assert 0.35 < hidden[letters].float().mean() < 0.65


def test_a_step_is_cross_entropy_plus_the_margin_loss_and_one_update(monkeypatch: pytest.MonkeyPatch) -> None:
    state = State(RUN)
    state.forward_one()  # something to remember
    before, (which, examples) = copy.deepcopy(state.network), state.next_batch()
    monkeypatch.setattr(state, "next_batch", lambda: (which, examples))
    decoded = before(examples.inputs)
    by_output = F.cross_entropy(decoded.logits.flatten(0, 1), examples.outputs.flatten())
    by_memory = before.memory.loss(decoded.recall, examples.outputs)
    figures = state.forward_one()
    assert by_memory > 0
    assert figures["by_memory"] == pytest.approx(by_memory.item())
    assert figures["loss"] == pytest.approx((by_output + by_memory).item())
    missed = int((decoded.recall.value != examples.outputs).sum())
    assert len(state.network.memory) == len(before.memory) + missed
    written = state.network.memory.sources[len(before.memory) : len(state.network.memory)]
    assert torch.isin(written, which).all()
    assert all(
        not torch.equal(new, old) for new, old in zip(state.network.parameters(), before.parameters(), strict=True)
    )


def test_a_run_begins_with_the_weights_of_another_and_an_empty_memory(tmp_path: Path) -> None:
    assert train(RUN, tmp_path / "before", QUIET)
    trained, _ = network_of(tmp_path / "before" / "network.safetensors")
    state = State(replace(RUN, anew=False))
    state.begin_with(trained)
    assert_same(dict(trained.named_parameters()), dict(state.network.named_parameters()))
    assert state.network.memory is not None
    assert len(state.network.memory) == 0


@pytest.mark.parametrize("other", [replace(RUN, units=8), replace(RUN, model="seq2seq"), replace(RUN, capacity=0)])
def test_a_run_does_not_begin_with_another_network(other: Run, tmp_path: Path) -> None:
    assert train(replace(other, steps=1), tmp_path, QUIET)
    with pytest.raises(ValueError, match="network given by --from"):
        State(RUN).begin_with(network_of(tmp_path / "network.safetensors")[0])


@pytest.mark.parametrize("model", ["neural-gpu", "seq2seq"])
def test_in_bfloat16_the_weights_and_the_memory_stay_in_float32(model: str) -> None:
    state = State(replace(RUN, model=model, forced=1.0, bfloat16=True))
    figures = state.forward_one()
    assert figures["loss"] == pytest.approx(State(replace(state.run, bfloat16=False)).forward_one()["loss"], rel=0.05)
    assert {tensor.dtype for tensor in state.network.state_dict().values() if tensor.is_floating_point()} == {
        torch.float32
    }
