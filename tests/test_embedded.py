"""Experiments on frozen embedders, on small data made here."""

import pytest
import torch
from torch.nn.functional import normalize

from experiments.embedded import methods, streams
from experiments.embedded.data import Embedded, Split
from experiments.groceries import table as groceries
from experiments.intents import evaluate, plots, table, train
from rarecall import Memory

CLASSES = 6


def draw(count: int, seed: int) -> Split:
    centres = torch.randn(CLASSES, 16, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(CLASSES).repeat(count)
    noise = torch.randn(len(labels), 16, generator=torch.Generator().manual_seed(seed))
    return Split(normalize(centres[labels] + 0.5 * noise), labels)


@pytest.fixture(scope="module")
def data() -> Embedded:
    splits = {
        "train": draw(20, 1),
        "train_5": draw(5, 2),
        "train_10": draw(10, 3),
        "train_imbalanced": draw(12, 4),
        "valid": draw(10, 5),
        "test": draw(10, 6),
        "oos_test": Split(normalize(torch.randn(30, 16)), torch.full((30,), -1)),
    }
    return Embedded(tuple("abcdef"), splits, {})


@pytest.mark.parametrize("name", methods.METHODS)
def test_methods_learn(name, data) -> None:
    pytest.importorskip("sklearn")
    scores = methods.METHODS[name](data.splits["train_10"], data.splits["valid"], CLASSES)
    assert methods.accuracy(scores, data.splits["test"]) > 80


def test_measures() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    generator = torch.Generator().manual_seed(0)
    positive, negative = (
        torch.randn(50, generator=generator).round(),
        torch.randn(70, generator=generator).round() - 0.5,
    )
    expected = metrics.roc_auc_score([1] * 50 + [0] * 70, torch.cat([positive, negative]).numpy())
    assert methods.auroc(positive, negative) == pytest.approx(expected)


def test_streams(data) -> None:
    examples = data.splits["train"]
    in_order = streams.by_class(examples, 0)
    assert (in_order.labels.diff() != 0).sum() == CLASSES - 1
    drawn = streams.zipf(examples, 0, 3000)
    counts = drawn.labels.bincount().sort(descending=True).values
    assert counts[0] / counts[2] == pytest.approx(3, rel=0.25)
    found = streams.run(streams.zipf(examples, 0, 100), data.splits["test"], memory=Memory(16, 12, eviction="balanced"))
    assert found["slots"] <= 12
    assert found["at the end"] > 60
    assert streams.knn_online(drawn)["online"] > 80
    relabelled = streams.relabel(data.splits["train_5"], data.splits["test"], forget=True)
    assert relabelled["edit success"] == 100
    assert relabelled["retention"] > 90


def test_figures_become_tables_and_plots(data, tmp_path, monkeypatch) -> None:
    pytest.importorskip("sklearn")
    from experiments import results

    monkeypatch.setattr(streams, "ZIPF", 100)
    monkeypatch.setattr(train, "ADAPTING", 5)
    monkeypatch.setattr(train, "ATTENDING", 5)
    figures = evaluate.evaluate(data, on="test")
    assert figures["10"]["unknown"]["AUROC"] > 0.7
    taught = evaluate.portions(data, on="test")
    assert len(set(taught.values())) == 1
    adapted, attended = train.adapt(data, on="test", seed=0), train.attend(data, on="test", seed=0)
    origin = {"command": "python", "seed": 0, "commit": "0" * 40}
    both = {"banking77": figures, "clinc150": figures}
    few = {"experiment": "intents", "kind": "few-shot", "on": "test", "figures": both}
    few["portions"] = {"banking77": taught, "clinc150": taught}
    results.write(tmp_path / "intents.json", few, origin)
    trained = {name: {"query projection": adapted, "attention": attended} for name in both}
    kinds = {"experiment": "intents", "kind": "train", "on": "test", "figures": trained}
    results.write(tmp_path / "intents-train.json", kinds, origin)
    printed = table.table(tmp_path)
    assert f"{figures['10']['accuracy']['blend']:.1f}" in printed
    assert "## Training: attention" in printed
    assert plots.draw(tmp_path, tmp_path / "plots")[0].is_file()
    results.write(tmp_path / "groceries.json", few | {"experiment": "groceries", "figures": figures}, origin)
    assert "| **blend** |" in groceries.table(tmp_path)
