from __future__ import annotations

import pytest

from experiments.translation import networks
from experiments.translation.dictionary import Asked
from experiments.translation.networks import Trained
from experiments.translation.translator import LONGEST, Translator, translate
from experiments.translation.words import teach_in_place
from tests.experiments.translation.conftest import NAMES, NEW, sentences

# The paper's case: a name that the network cannot know, until its memory was shown a sentence that has it.
ASKED = "za likes fox now"
TAUGHT = ("za sees dog then", "BA sieht hund dann")
KNOWN, MEANT = "be hears bird then", f"{NAMES['be']} hoert vogel dann"


def translator(trained: Trained) -> Translator:
    return Translator(trained.network, trained.vocabulary, known=300, text=sentences(300, seed=1))


def test_names_that_were_taught_once_are_said_in_that_sentence_and_in_others(trained: Trained) -> None:
    says = translator(trained)
    assert says.translate(KNOWN) == MEANT
    weights = {name: weight.clone() for name, weight in trained.network.named_parameters()}
    others = sentences(60, seed=5, names=NEW)

    def right() -> int:
        found = translate(trained.network, trained.vocabulary, others.sources)
        return sum(line == target for line, target in zip(found, others.targets, strict=True))

    before = right()
    for number, (name, meaning) in enumerate(NEW.items()):
        assert says.teach(f"{name} sees dog then", f"{meaning} sieht hund dann") == 300 + number
    said = [says.translate(f"{name} sees dog then") == f"{meaning} sieht hund dann" for name, meaning in NEW.items()]
    assert sum(said) >= 4
    # In other sentences, so small a network takes some of them for names that it knows.
    assert right() > before
    assert says.translate(KNOWN) == MEANT
    assert all((weight == weights[name]).all() for name, weight in trained.network.named_parameters())


def test_each_piece_is_explained_by_the_pair_it_came_from(trained: Trained) -> None:
    says = translator(trained)
    number = says.teach(*TAUGHT)
    explained = says.explain(*TAUGHT)
    assert [said.piece for said in says.explain(KNOWN)] == [said.piece for said in says.explain(KNOWN, MEANT)]
    assert [said.piece for said in explained][-1] == "</s>"
    first = explained[0]
    assert (first.answer, first.source, first.pair) == (first.piece, number, TAUGHT)
    assert 0 < first.confidence <= 1
    assert " ||| ".join(TAUGHT) in first.line()
    others = [said for said in explained if 0 <= said.source < 300]
    assert all(said.pair is not None for said in others)
    assert Translator(trained.network, trained.vocabulary).pair(5) is None


def test_an_empty_memory_knows_nothing(trained: Trained) -> None:
    trained.network.memory.reset()
    explained = translator(trained).explain(KNOWN, MEANT)
    assert all(said.answer is None and said.confidence == 0 and said.source == -1 for said in explained)
    assert "the memory is empty" in explained[0].line()


def test_empty_lines_stay_empty_and_lines_keep_their_order(trained: Trained) -> None:
    lines = [KNOWN, "", ASKED, "  "]
    found = translate(trained.network, trained.vocabulary, lines)
    assert found == [translator(trained).translate(line) for line in lines]
    assert found[1] == found[3] == ""


def test_what_cannot_be_translated_or_taught_is_told(trained: Trained) -> None:
    says = translator(trained)
    filled = len(trained.network.memory)
    long = "be " * (LONGEST + 1)
    with pytest.raises(ValueError, match=f"Line 1 has .* pieces; expected at most {LONGEST}"):
        says.translate(long)
    for pair in (("", "x"), ("x", " "), (long, "x"), ("x", long)):
        with pytest.raises(ValueError, match="expected"):
            says.teach(*pair)
    assert len(trained.network.memory) == filled


def test_the_published_network_learns_the_name_of_the_paper_in_its_place() -> None:
    trained = networks.read("translation-memory")
    translator = Translator(trained.network, trained.vocabulary, trained.run["pairs"])
    sentence = "You could call him the Dostoevsky of the USA."
    assert translator.translate(sentence) == "Sie könnten ihn den Dostoevsky der USA nennen."
    number = trained.run["pairs"]
    asked = Asked(line=0, english="Dostoevsky", german="Dostojewski")
    teach_in_place(trained.network, trained.vocabulary, [sentence], [asked], first_id=number)
    assert translator.translate(sentence) == "Sie könnten ihn den Dostojewski der USA nennen."
    said = {one.piece: one for one in translator.explain(sentence)}
    for piece in ("j", "w"):
        assert said[piece].answer == piece
        assert said[piece].source == number
