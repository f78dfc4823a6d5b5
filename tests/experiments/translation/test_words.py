from __future__ import annotations

from pathlib import Path

import pytest
import torch

from experiments.tables import tables
from experiments.translation import bleu, table, words
from experiments.translation.dictionary import Asked, Entry, asked_words, read_entries
from experiments.translation.networks import Trained
from experiments.translation.translator import translate
from rarecall.models.beam import Beam
from tests.experiments.test_tables import write
from tests.experiments.translation.conftest import NEW, sentences

DING = """# a remark :: not an entry
Aalspieß {m} | Aalspieße {pl} :: eel spear | eel spears
Aas {n}; Aasfleisch {n} [zool.] :: carrion
Aas fressen {vi} [zool.] :: to scavenge
fressen {vt} (Tiere) :: to eat; to devour [fig.]
"""


def test_a_dictionary_is_read_form_by_form(tmp_path: Path) -> None:
    (tmp_path / "de-en").write_text(DING)
    assert read_entries(tmp_path / "de-en") == {
        Entry("eel spear", "Aalspieß"),
        Entry("eel spears", "Aalspieße"),
        Entry("carrion", "Aas"),
        Entry("carrion", "Aasfleisch"),
        Entry("eat", "fressen"),
        Entry("devour", "fressen"),
    }
    with pytest.raises(FileNotFoundError, match="apt-get install trans-de-en"):
        read_entries(tmp_path / "en-de")
    (tmp_path / "empty").write_text("# nothing\n")
    with pytest.raises(ValueError, match='expected lines of the form "German :: English"'):
        read_entries(tmp_path / "empty")


def test_asked_are_rare_words_whose_english_side_is_in_the_line() -> None:
    entries = [Entry("eel", "Aal"), Entry("eel spear", "Spieß"), Entry("spear", "Spieß"), Entry("pike", "Spieß")]
    sources = ["An eel-spear!", "A pikestaff.", "The pike"]
    targets = ["Ein Aal und ein Spieß", "Ein Spieß", "Spieß, Aal"]
    assert asked_words(sources, targets, {"Spieß"}, entries) == [
        Asked(0, "eel spear", "Spieß"),
        Asked(2, "pike", "Spieß"),
    ]


def test_the_pieces_of_words_are_found_in_a_line() -> None:
    pieces = ["▁The", "▁e", "el", "-", "sp", "ear", "<0xC3>", "▁bee", "l", "."]
    assert words.pieces_of("eel spear", pieces) == [1, 2, 3, 4, 5]
    assert words.pieces_of("eel", pieces) == [1, 2]
    assert words.pieces_of("bee", pieces) == []  # part of another word


def test_the_word_that_attends_most_is_replaced_whole(trained: Trained) -> None:
    [told] = trained.vocabulary.encode(["sieht hund dann"])
    told = told[:-1]
    attended = torch.zeros(len(told) + 1, 5)
    starts = [place for place, piece in enumerate(told) if trained.vocabulary.piece(piece).startswith("▁")]
    attended[starts[1], 2:4] = 0.3
    attended[starts[0], 2] = 0.5
    assert words.place_of(attended, told, [2, 3], trained.vocabulary) == (starts[1], starts[2])
    assert words.place_of(attended[:1], [], [2, 3], trained.vocabulary) == (0, 0)


def test_words_that_were_never_seen_are_right_after_their_entries_are_taught(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bleu, "SAMPLES", 5)
    test, training = sentences(12, seed=9, names=NEW), sentences(10, seed=1)
    entries = {Entry(english, german) for english, german in NEW.items()}
    before = translate(trained.network, trained.vocabulary, test.sources, Beam(2))
    result = words.evaluate_words(trained, test, training, entries, beam=Beam(2), quiet=True)
    assert translate(trained.network, trained.vocabulary, test.sources, Beam(2)) == before  # a copy was taught
    assert result["words"] == result["lines"] == 12
    right = {how: of["right"] for how, of in result["figures"].items()}
    assert right["before"] < 6 < right["taught in place"]
    result |= {"command": "made", "seed": 0, "commit": "0" * 40, "training": trained.run}
    assert f"| taught in place | {right['taught in place']} |" in table.words_lines(result)
    write(tmp_path, "words", result)
    assert f"| taught in place | {right['taught in place']} |" in tables(tmp_path)
    with pytest.raises(ValueError, match="no rare word of this text"):
        words.evaluate_words(trained, test, training, set(), quiet=True)
