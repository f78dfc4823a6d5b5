from __future__ import annotations

import copy
import json
import os
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from experiments.translation import networks
from experiments.translation import state as module
from experiments.translation.state import Data, Run, State
from experiments.translation.train import train
from rarecall import storage
from tests.experiments.translation.conftest import QUIET, RUN
from tests.helpers import assert_same


def tensors(out: Path, kind: str = "checkpoint") -> dict[str, Tensor]:
    return storage.read(out / f"{kind}.safetensors", kind=kind)[0]


@pytest.mark.parametrize(
    "run",
    [RUN, replace(RUN, passage=10), replace(RUN, capacity=0, dropout=0.1, drawn=50)],
    ids=["memory", "passages", "no memory"],
)
def test_a_run_that_was_stopped_goes_on_to_the_very_same_weights_and_memory(
    run: Run, data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = replace(run, tokens=2000)  # an epoch is shorter than the run
    assert train(run, data, tmp_path / "whole", QUIET)
    forward_one = State.forward_one

    def interrupted(state: State) -> dict[str, float]:
        if state.step == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return forward_one(state)

    monkeypatch.setattr(State, "forward_one", interrupted)
    assert not train(run, data, tmp_path / "parts", QUIET)
    assert not (tmp_path / "parts" / "network.safetensors").exists()
    torch.rand(7)  # what happens in between does not matter
    monkeypatch.setattr(State, "forward_one", forward_one)
    assert train(run, data, tmp_path / "parts", QUIET)
    assert_same(tensors(tmp_path / "whole"), tensors(tmp_path / "parts"))
    assert_same(tensors(tmp_path / "whole", "network"), tensors(tmp_path / "parts", "network"))
    headers = [storage.read(tmp_path / p / "checkpoint.safetensors", kind="checkpoint")[1] for p in ("whole", "parts")]
    assert headers[0] == headers[1]
    with pytest.raises(ValueError, match="belongs to another run"):
        train(replace(run, vocabulary="another"), data, tmp_path / "whole", QUIET)
    lines = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [2, 4, 6]
    assert {"loss", "tokens_per_second", "epoch"} <= lines[0].keys()
    assert "bleu" in lines[1]


def test_a_step_is_smoothed_cross_entropy_plus_the_margin_loss_and_one_update(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = State(replace(RUN, smoothing=0.1), data)
    state.forward_one()  # something to remember
    before, batch = copy.deepcopy(state.network), state.next_batch()
    monkeypatch.setattr(state, "next_batch", lambda: batch)
    decoded = before(batch.source, batch.target, batch.ids)
    by_output = F.cross_entropy(decoded.logits[batch.mask], batch.target[batch.mask], label_smoothing=0.1)
    by_memory = before.memory.loss(decoded.recall, batch.target, mask=batch.mask)
    figures = state.forward_one()
    assert by_memory > 0
    assert figures["loss"] == pytest.approx((by_output + by_memory).item())
    missed = int((decoded.recall.value != batch.target)[batch.mask].sum())
    assert len(state.network.memory) == len(before.memory) + missed
    written = state.network.memory.sources[len(before.memory) : len(state.network.memory)]
    assert torch.isin(written, batch.ids).all()


def test_a_sentence_is_not_answered_by_itself(data: Data) -> None:
    state = State(RUN, data)
    batch = state.next_batch()
    for _ in range(2):
        recall = state.network(batch.source, batch.target, batch.ids).recall
        own = state.network.memory.sources[recall.slots] == batch.ids[:, None, None]
        assert not (own & (recall.slots >= 0)).any()
        source = batch.ids[:, None].expand_as(batch.target)
        state.network.memory.update(recall, batch.target, source=source, mask=batch.mask)


def test_passages_are_shown_again_before_others_and_some_sentences_answer_themselves(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TOGETHER", 3)
    state = State(replace(RUN, passage=10), data)
    before: Counter[int] = Counter()
    for _ in range(3):
        shown: Counter[int] = Counter()
        while shown.total() < before.total() + 60:  # three passages of 10, and as many alone
            batch = state.next_batch()
            shown += Counter(batch.ids.tolist())
        assert before <= shown
        before = shown - before
        whole = [first for first in range(0, 300, 10) if all(first + n in before for n in range(10))]
        assert len(whole) == 3
        assert len({number // 10 for number in before}) > 10  # those that come alone are from all over the text
    excluded = torch.cat([state.excluded(batch) for _ in range(200)]).view(200, -1)
    assert ((excluded == batch.ids) | (excluded == -1)).all()
    assert 0.5 * module.OWN < (excluded == -1).float().mean() < 1.5 * module.OWN
    state = State(RUN, data)
    assert torch.equal(state.excluded(batch), batch.ids)


def test_a_network_with_memory_begins_with_the_weights_of_one_without(data: Data, tmp_path: Path) -> None:
    run = replace(RUN, capacity=0, steps=2)
    assert train(run, data, tmp_path, QUIET)
    trained = networks.read(tmp_path / "network.safetensors")
    assert trained.run["pairs"] == len(data.training)
    state = State(RUN, data, trained)
    batch = state.next_batch()
    with_memory = state.network(batch.source, batch.target).logits
    torch.testing.assert_close(with_memory, trained.network(batch.source, batch.target).logits)
    with pytest.raises(ValueError, match="units 64 and not 16"):
        State(replace(RUN, units=16), data, trained)


def test_layers_are_added_on_top_of_a_trained_network(data: Data, tmp_path: Path) -> None:
    run = replace(RUN, capacity=0, steps=2)
    assert train(run, data, tmp_path, QUIET)
    trained = networks.read(tmp_path / "network.safetensors")
    deeper = State(replace(run, layers=run.layers + 1), data, trained)
    batch = deeper.next_batch()
    encoded = [network.encoder(batch.source).states for network in (deeper.network, trained.network)]
    torch.testing.assert_close(*encoded)  # the new layer outputs 0
    before = [layer[-1].weight_hh_l0.clone() for layer in (deeper.network.encoder.above, deeper.network.decoder.above)]
    deeper.forward_one()
    deeper.forward_one()
    after = [layer[-1].weight_hh_l0 for layer in (deeper.network.encoder.above, deeper.network.decoder.above)]
    assert not any(torch.equal(*both) for both in zip(before, after, strict=True))
    assert train(replace(run, layers=run.layers + 1), data, tmp_path / "deeper", QUIET, trained)
    with pytest.raises(ValueError, match=r"has 3 layers\. Use --layers 3 or more"):
        State(run, data, networks.read(tmp_path / "deeper" / "network.safetensors"))


def test_text_and_memories_of_no_use_are_told(data: Data) -> None:
    with pytest.raises(ValueError, match="None of the 300 pairs is usable"):
        State(replace(RUN, longest=1), data)
    with pytest.raises(ValueError, match="memory of 100 slots is too small for steps of 200 pieces"):
        State(replace(RUN, capacity=100), data)


def test_weights_that_do_not_fit_their_vocabulary_are_told(data: Data, tmp_path: Path) -> None:
    assert train(replace(RUN, capacity=0, steps=1), data, tmp_path, QUIET)
    path = tmp_path / "network.safetensors"
    found, header = storage.read(path, kind="network")
    found["encoder.embedding.weight"] = found["encoder.embedding.weight"][:-1]
    storage.write(path, found, kind="network", header=header)
    with pytest.raises(ValueError, match="weights for 419 pieces and a vocabulary of 420"):
        networks.read(path)
    storage.write(path, found, kind="network", header={})
    with pytest.raises(ValueError, match="does not hold a translation network"):
        networks.read(path)


@pytest.mark.parametrize("capacity", [0, RUN.capacity])
def test_a_network_computed_in_bfloat16_learns_about_the_same_in_float32_weights(data: Data, capacity: int) -> None:
    run = replace(RUN, capacity=capacity)
    states = [State(replace(run, bfloat16=bfloat16), data) for bfloat16 in (False, True)]
    losses = []
    for state in states:
        torch.manual_seed(0)
        losses.append([state.forward_one()["loss"] for _ in range(3)])
    assert losses[1] == pytest.approx(losses[0], rel=0.05)
    assert losses[1] != losses[0]
    assert all(parameter.dtype == torch.float32 for parameter in states[1].network.parameters())
