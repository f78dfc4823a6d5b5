from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from experiments import results
from experiments.translation import bleu, evaluate, networks, table
from experiments.translation.evaluate import (
    BASELINE,
    DEVELOPMENT,
    EMPTIED,
    EVEN,
    FULL,
    MEMORY,
    ODD,
    WHOLE,
    Measured,
)
from experiments.translation.networks import Trained
from experiments.translation.text import Text
from rarecall.models.beam import Beam
from tests.experiments.translation.conftest import NEW, sentences


def text() -> Text:
    """Names that training never had, each in an even line and again in the odd line after it."""
    lines = [sentences(1, seed, {name: NEW[name]}) for name in NEW for seed in (1, 2)] + [sentences(2, seed=9)]
    return Text([s for line in lines for s in line.sources], [t for line in lines for t in line.targets], (12,))


def without_memory(trained: Trained) -> Trained:
    network = networks.make_network(len(trained.vocabulary), trained.run | {"capacity": 0})
    own = {n: p for n, p in trained.network.named_parameters() if n.split(".")[1] not in ("join", "trust")}
    network.load_state_dict(own, strict=False)
    return replace(trained, network=network.eval(), run=trained.run | {"capacity": 0})


@pytest.fixture
def measured() -> Measured:
    return Measured(text(), sentences(4, seed=2), sentences(300, seed=1))


def test_the_protocol_of_the_paper(
    trained: Trained, measured: Measured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bleu, "SAMPLES", 20)
    monkeypatch.setattr(bleu, "RARE", 30)  # every name is rare in so short a text
    shown: list[list[str]] = []
    show = evaluate.show

    def watched(network, pairs, **how):
        shown.append(
            [trained.vocabulary.decode(pairs.batch(torch.tensor([n])).source[0].tolist()) for n in range(len(pairs))]
        )
        assert how["passes"] == 3
        assert how["first_id"] == 300
        assert network is not trained.network
        show(network, pairs, **how)

    monkeypatch.setattr(evaluate, "show", watched)
    before = copy.deepcopy(trained.network.state_dict())
    result = evaluate.evaluate(
        trained, without_memory(trained), measured, beam=Beam(2), translations=tmp_path / "told", quiet=True
    )
    after = trained.network.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before if "search" not in name)
    assert shown == [measured.test.sources[::2], measured.test.sources]
    scores = result["figures"]["bleu"]
    assert {whose: set(of) for whose, of in scores.items()} == {
        BASELINE: {FULL, ODD, DEVELOPMENT},
        EMPTIED: {FULL, ODD},
        MEMORY: {FULL, ODD, DEVELOPMENT},
        EVEN: {ODD, DEVELOPMENT},
        WHOLE: {FULL},
    }
    if trained.run["trust"]:  # then the network without its memory is the one that never had any
        assert scores[EMPTIED][FULL]["score"] == scores[BASELINE][FULL]["score"]
    assert scores[MEMORY][ODD]["sentences"] == 6
    assert "version:" in scores[MEMORY][ODD]["signature"]
    assert scores[WHOLE][FULL]["score"] > scores[MEMORY][FULL]["score"]
    rare = result["figures"]["rare words"]
    assert rare["sentences"] >= len(NEW)
    assert scores[EVEN][ODD]["score"] > scores[MEMORY][ODD]["score"]
    assert rare["by"][EVEN]["accuracy"] > rare["by"][MEMORY]["accuracy"]
    compared = {(one["of"], one["from"], one["on"]) for one in result["figures"]["differences"]}
    assert {
        (EMPTIED, BASELINE, FULL),
        (MEMORY, EMPTIED, FULL),
        (MEMORY, BASELINE, FULL),
        (EVEN, MEMORY, ODD),
        (WHOLE, MEMORY, FULL),
        (EVEN, MEMORY, DEVELOPMENT),
    } <= compared
    assert all(0 <= one["p"] <= 1 for one in result["figures"]["differences"])
    told = (tmp_path / "told" / "even-lines-as-context-odd-lines.txt").read_text().splitlines()
    assert len(told) == 6
    # And what the table makes of it.
    training = {MEMORY: trained.run | {"commit": "0" * 40}}
    results.write(tmp_path / "a.json", {"training": training} | result, results.origin("made", 0))
    printed = table.table(tmp_path)
    score = f"{scores[EVEN][ODD]['score']:.2f}"
    paper, ours = ("not measured", score) if trained.run["trust"] else (score, "not measured")
    assert f"| GNMT with memory and even lines as context, as in the paper | – | 23.60 | – | {paper} |" in printed
    assert f"as context, learned query, mixed output | – | – | – | {ours} |" in printed
    assert "trained on toy" in printed
    assert json.loads((tmp_path / "a.json").read_text())["protocol"]["passes"] == 3


def test_a_network_that_was_frozen_is_not_measured_with_its_memory_emptied(
    trained: Trained, measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bleu, "SAMPLES", 20)
    frozen = replace(trained, run=trained.run | {"frozen": True})
    result = evaluate.evaluate(frozen, without_memory(trained), measured, beam=Beam(1), quiet=True)
    assert set(result["figures"]["bleu"]) == {BASELINE, MEMORY, EVEN, WHOLE}


def test_the_odd_lines_alone_are_a_quarter_of_the_work(
    trained: Trained, measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bleu, "SAMPLES", 20)
    frozen = replace(trained, run=trained.run | {"frozen": True})
    result = evaluate.evaluate(frozen, without_memory(trained), measured, beam=Beam(1), odd_only=True, quiet=True)
    assert {whose: set(of) for whose, of in result["figures"]["bleu"].items()} == {
        BASELINE: {ODD},
        MEMORY: {ODD},
        EVEN: {ODD},
    }
    assert {(one["of"], one["from"]) for one in result["figures"]["differences"]} == {
        (MEMORY, BASELINE),
        (EVEN, MEMORY),
        (EVEN, BASELINE),
    }
    assert "| even lines as context | – |" in table.lines_of(result)


def test_the_full_test_alone_has_no_context(
    trained: Trained, measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bleu, "SAMPLES", 20)
    frozen = replace(trained, run=trained.run | {"frozen": True})
    result = evaluate.evaluate(frozen, without_memory(trained), measured, beam=Beam(1), full_only=True, quiet=True)
    assert {whose: set(of) for whose, of in result["figures"]["bleu"].items()} == {
        BASELINE: {FULL, ODD},
        MEMORY: {FULL, ODD},
    }
    assert {(one["of"], one["on"]) for one in result["figures"]["differences"]} == {(MEMORY, FULL), (MEMORY, ODD)}


def test_a_network_without_memory_has_less_to_measure(trained: Trained, measured: Measured) -> None:
    result = evaluate.evaluate(without_memory(trained), None, measured, beam=Beam(1), quiet=True)
    assert set(result["figures"]["bleu"]) == {BASELINE}
    assert result["figures"]["differences"] == []
    assert "without memory" in table.lines_of(result)


def test_a_memory_is_filled_again_from_the_end_of_the_training_text_always_the_same(trained: Trained) -> None:
    filled = []
    for _ in range(2):
        evaluate.fill(trained, sentences(300, seed=1), 20, quiet=True)
        memory = trained.network.memory
        filled.append((len(memory), memory.keys.clone(), memory.values.clone()))
    assert 0 < filled[0][0] == filled[1][0]
    assert set(memory.sources[memory.values >= 0].tolist()) <= set(range(280, 300))
    assert all(torch.equal(a, b) for a, b in zip(filled[0][1:], filled[1][1:], strict=True))


def test_what_does_not_belong_together_is_told(trained: Trained, measured: Measured) -> None:
    with pytest.raises(ValueError, match="trained on other text"):
        evaluate.evaluate(trained, None, replace(measured, training=sentences(5, seed=0)), quiet=True)
    with pytest.raises(ValueError, match="--baseline"):
        evaluate.evaluate(trained, trained, measured, quiet=True)


def test_rare_words_are_those_of_the_context_that_training_hardly_had() -> None:
    training = ["Haus " * 6, "Hund Hund", "Katze"]
    rare = bleu.rare_words(["das Haus, ein Hund 1999 E-Mail"], training)
    assert rare == {"das", "ein", "Hund", "E", "Mail"}
    lines = bleu.with_rare_words(["Haus", "mein Hund", "Hund und E-Mail"], rare)
    assert lines == {1: {"Hund"}, 2: {"Hund", "E", "Mail"}}
    figures = bleu.of_rare_words(["", "mein Hund", "Hund"], ["Haus", "mein Hund", "Hund und E-Mail"], lines)
    assert (figures["accuracy"], figures["words"], figures["bleu"]["sentences"]) == (50.0, 4, 2)


def test_a_difference_is_significant_where_it_is_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bleu, "SAMPLES", 100)
    right = sentences(60, seed=1).targets
    wrong = [line.replace("sieht", "hoert") for line in right]
    assert bleu.difference(right, wrong, right)["significant"]
    assert not bleu.difference(right, right, right)["significant"]
    assert bleu.bleu(right, right)["score"] == 100


def test_a_table_of_nothing_says_so(tmp_path: Path) -> None:
    printed = table.table(tmp_path)
    assert "not measured" in printed
    assert "| GNMT | 23.25 | 23.17 | not measured | not measured |" in printed
