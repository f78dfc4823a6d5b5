from __future__ import annotations

import copy
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from experiments.training import Pace
from experiments.translation import networks
from experiments.translation.frozen import Frozen, Pieces
from experiments.translation.networks import Trained
from experiments.translation.state import Data
from experiments.translation.text import Text
from experiments.translation.train import train
from experiments.translation.translator import Translator, show, translate
from rarecall import storage
from tests.experiments.translation.conftest import NEW, QUIET, RUN, sentences
from tests.helpers import assert_same

FROZEN = replace(RUN, ask=True, trust=True, frozen=True, passage=10, dropout=0.5)


@pytest.fixture(scope="module")
def below(data: Data, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A network without memory that has learned the language."""
    out = tmp_path_factory.mktemp("below")
    run = replace(RUN, capacity=0, steps=250, rate=1e-2, shortcut=True, seed=1)
    assert train(run, data, out, Pace(report=50, measure=1000, save=1000, quiet=True))
    return networks.read(out / "network.safetensors")


@pytest.fixture
def state(data: Data, below: Trained) -> Frozen:
    return Frozen(replace(FROZEN, shortcut=True), data, below)


def test_the_network_stays_and_what_has_to_do_with_the_memory_learns(state: Frozen) -> None:
    before = copy.deepcopy(state.network)
    for _ in range(3):
        state.forward_one()
    learned = {
        name for name, now in state.network.named_parameters() if not torch.equal(now, before.get_parameter(name))
    }
    trust = {f"decoder.trust.{name}" for name, _ in state.network.decoder.trust.named_parameters()}
    assert learned == {"decoder.ask.weight"} | trust
    assert not state.network.training  # keys are as they are in use, without dropout
    assert len(state.network.memory) == 0


def test_keys_and_queries_are_those_of_the_network_in_use(state: Frozen) -> None:
    pairs, which = state.data.training, torch.arange(5)
    pieces = state.decode(pairs, which, torch.Generator().manual_seed(0))
    assert len(pieces.ids) == sum(pairs.targets.lengths[:5])
    state.network.memory.write(torch.randn(5, RUN.units), torch.arange(5))
    for number in range(5):
        one, batch = pieces.of(torch.tensor([number])), pairs.batch(torch.tensor([number]))
        recall = state.network(batch.source, batch.target).recall
        keys = F.normalize(state.network.decoder.ask(one.taught), dim=-1)
        torch.testing.assert_close(keys, recall.query[0])
        assert torch.equal(one.values, batch.target[0])
        # Both prefixes begin with nothing.
        torch.testing.assert_close(one.asked[0], one.taught[0])
    says = state.network(batch.source, batch.target, among=torch.arange(state.network.symbols)).logits.log_softmax(-1)
    torch.testing.assert_close(one.says[0], says[0, 0, one.values[0]])


def test_some_queries_come_after_what_the_network_itself_would_write(data: Data) -> None:
    torch.manual_seed(0)
    begin = networks.make_network(len(data.vocabulary), vars(replace(RUN, capacity=0)))
    untrained = Frozen(FROZEN, data, Trained(begin, data.vocabulary, vars(RUN), ""))
    pieces = untrained.decode(data.training, torch.arange(50), torch.Generator().manual_seed(0))
    same = torch.isclose(pieces.asked, pieces.taught).all(-1).view(-1)
    first = torch.cat((torch.tensor([True]), pieces.ids.diff() != 0))
    assert same[first].all()
    assert 0.02 < same[~first].float().mean() < 0.9  # it writes nonsense, so one piece of its own changes all after it


def test_neighbours_are_the_nearest_keys_of_other_sentences(state: Frozen) -> None:
    pieces = state.decode(state.data.training, torch.arange(4), torch.Generator().manual_seed(0))
    n = len(pieces.ids)
    own = torch.arange(n) % 2 == 0
    found = state.ask(pieces, own)
    keys, queries = (F.normalize(state.network.decoder.ask(read), dim=-1) for read in (pieces.taught, pieces.asked))
    torch.testing.assert_close(found.query, queries)
    for row in range(n):
        others = (pieces.ids != pieces.ids[row]) | own[row]
        similarities, order = (queries[row] @ keys[others].T).sort(descending=True)
        there = len(order)
        torch.testing.assert_close(found.similarities[row, :there], similarities)
        # Equal keys come in any order.
        assert sorted(found.values[row, :there].tolist()) == sorted(pieces.values[others].tolist())
        assert (found.values[row, there:] == -1).all()
        assert (found.similarities[row, there:] == -torch.inf).all()


def test_a_sentence_without_others_is_what_the_network_says(state: Frozen) -> None:
    pieces = state.decode(state.data.training, torch.arange(1), torch.Generator().manual_seed(0))
    found = state.ask(pieces, torch.zeros(len(pieces.ids), dtype=torch.bool))
    assert (found.value == -1).all()
    loss = state.loss_of(found)
    torch.testing.assert_close(loss, -pieces.says.mean())
    loss.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in state.network.parameters())


def test_keys_are_trained_as_well_as_queries(state: Frozen) -> None:
    pieces = state.decode(state.data.training, torch.arange(20), torch.Generator().manual_seed(0))
    taught, asked = (read.clone().requires_grad_() for read in (pieces.taught, pieces.asked))
    pieces = Pieces(taught, asked, *pieces[2:])
    state.loss_of(state.ask(pieces, torch.zeros(len(pieces.ids), dtype=torch.bool))).backward()
    assert taught.grad.abs().sum() > 0
    assert asked.grad.abs().sum() > 0


def test_a_run_that_was_stopped_goes_on_to_the_very_same_weights(
    data: Data, below: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = replace(FROZEN, shortcut=True, steps=8)
    monkeypatch.setattr("experiments.translation.frozen.TOGETHER", 4)
    assert train(run, data, tmp_path / "whole", QUIET, below)
    forward_one = Frozen.forward_one

    def interrupted(state: Frozen) -> dict[str, float]:
        if state.step == 5:  # in the middle of passages that were decoded together
            os.kill(os.getpid(), signal.SIGINT)
        return forward_one(state)

    monkeypatch.setattr(Frozen, "forward_one", interrupted)
    assert not train(run, data, tmp_path / "parts", QUIET, below)
    torch.rand(7)
    monkeypatch.setattr(Frozen, "forward_one", forward_one)
    assert train(run, data, tmp_path / "parts", QUIET, below)
    folders = (tmp_path / "whole", tmp_path / "parts")
    assert_same(*(storage.read(out / "checkpoint.safetensors", kind="checkpoint")[0] for out in folders))
    assert "gain_on_development" in (tmp_path / "whole" / "metrics.jsonl").read_text()


def test_names_shown_in_one_sentence_are_right_in_another(data: Data, below: Trained, tmp_path: Path) -> None:
    """The names are none that the training had, and the memory holds all of the training besides."""
    run = replace(FROZEN, shortcut=True, steps=60, rate=3e-3)
    assert train(run, data, tmp_path, Pace(report=20, measure=1000, save=1000, quiet=True), below)
    trained = networks.read(tmp_path / "network.safetensors")
    others = sentences(60, seed=5, names=NEW)

    def right(of: Text) -> int:
        found = translate(trained.network, trained.vocabulary, of.sources)
        return sum(line == target for line, target in zip(found, of.targets, strict=True))

    known = sentences(60, seed=7)
    before, known_before = right(others), right(known)
    show(trained.network, data.training, passes=1)
    translator = Translator(trained.network, trained.vocabulary, known=300)
    for name, meaning in NEW.items():
        translator.teach(f"{name} sees dog then", f"{meaning} sieht hund dann")
    assert right(others) > before + 10
    assert right(known) >= known_before - 3


def test_what_it_cannot_train_is_told(data: Data, below: Trained) -> None:
    for run in (replace(FROZEN, passage=0), replace(FROZEN, trust=False), replace(FROZEN, ask=False)):
        with pytest.raises(ValueError, match="--frozen trains the query"):
            Frozen(replace(run, shortcut=True), data, below)
    for begin, asked in ((None, FROZEN), (below, replace(FROZEN, capacity=0))):
        with pytest.raises(ValueError, match="--frozen trains only the parameters that use the memory"):
            Frozen(replace(asked, shortcut=True), data, begin)
