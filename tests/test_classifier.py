import pytest
import torch
from torch import nn

from rarecall import Memory, MemoryClassifier
from tests.helpers import assert_same, ids, snapshot


@pytest.fixture
def classifier() -> MemoryClassifier:
    return MemoryClassifier(nn.Flatten(), Memory(key_size=4, capacity=8, k=3), min_similarity=0.5)


def test_it_knows_what_it_was_taught_once(classifier) -> None:
    x = torch.eye(4).view(4, 2, 2)
    assert classifier.predict(x).label.tolist() == [-1] * 4
    classifier.teach(x[:3], ids(7, 8, 9), source=ids(100, 101, 102))
    prediction = classifier.predict(x)
    assert prediction.label.tolist() == [7, 8, 9, -1]
    assert prediction.known.tolist() == [True, True, True, False]
    assert prediction.similarity.tolist() == [1, 1, 1, 0]


def test_one_label_for_all(classifier) -> None:
    classifier.teach(torch.eye(4)[:2], label=5, source=9)
    assert classifier.memory.values.tolist()[:2] == [5, 5]
    assert classifier.memory.sources.tolist()[:2] == [9, 9]


def test_it_does_not_know_when_different_answers_are_equally_near() -> None:
    classifier = MemoryClassifier(nn.Identity(), Memory(4, 8, k=3), min_confidence=0.9)
    classifier.teach(torch.eye(4)[:2], ids(1, 2))
    prediction = classifier.predict(torch.tensor([[1.0, 0, 0, 0], [1.0, 1.0, 0, 0]]))
    assert prediction.label.tolist() == [1, -1]
    assert prediction.confidence[1] == pytest.approx(0.5)


def test_it_explains_itself(classifier) -> None:
    classifier.teach(torch.eye(4)[:1], 7, source=100)
    classifier.teach(torch.eye(4)[1:2], 8)
    why = classifier.explain(torch.tensor([[0.6, 0.8, 0.0, 0.0]]), neighbours=3)
    assert why.labels.tolist() == [[8, 7, -1]]
    assert why.sources.tolist() == [[-1, 100, -1]]
    assert why.ages.tolist() == [[0, 1, -1]]
    assert why.similarities[0, :2].tolist() == pytest.approx([0.8, 0.6])
    assert str(why).splitlines()[0] == "question 0: 2 neighbours"
    assert str(why).splitlines()[2].split() == ["8", "-1", "0.800", "1.000", "0", "1"]
    assert "nothing known" in str(MemoryClassifier(nn.Identity(), Memory(4, 8)).explain(torch.eye(4)[:1]))


def test_it_forgets(classifier) -> None:
    classifier.teach(torch.eye(4), ids(7, 8, 8, 9), source=ids(1, 2, 3, 4))
    assert classifier.forget(label=8) == 2
    assert classifier.forget(source=4) == 1
    assert classifier.predict(torch.eye(4)).label.tolist() == [7, -1, -1, -1]


def test_teaching_trains_nothing_and_answers_do_not_depend_on_the_mode() -> None:
    embedder = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    embedder[2].eval()
    classifier = MemoryClassifier(embedder, Memory(4, 8))
    before = snapshot(embedder)
    classifier.teach(torch.eye(4), ids(1, 2, 3, 4))
    assert torch.equal(classifier.predict(torch.eye(4)).similarity, classifier.predict(torch.eye(4)).similarity)
    assert_same(before, snapshot(embedder))
    assert [module.training for module in embedder] == [True, True, False], "modes are as they were"
    assert embedder[0].weight.grad is None


def test_its_forward_trains_the_embedder() -> None:
    classifier = MemoryClassifier(nn.Linear(3, 4), Memory(4, 20))
    x, target = torch.randn(6, 3), torch.arange(6) % 2
    classifier.teach(x, target)
    classifier.memory.loss(classifier(torch.randn(6, 3)), target).backward()
    assert classifier.embedder.weight.grad.abs().sum() > 0


def test_errors() -> None:
    with pytest.raises(ValueError, match=r"min_confidence=1\.5; expected 0 to 1"):
        MemoryClassifier(nn.Identity(), Memory(4, 8), min_confidence=1.5)
    with pytest.raises(ValueError, match="min_similarity=-2"):
        MemoryClassifier(nn.Identity(), Memory(4, 8), min_similarity=-2)
