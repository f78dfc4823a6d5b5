from __future__ import annotations

from pathlib import Path

import pytest
import sentencepiece
import torch

from experiments.translation import pairs as module
from experiments.translation.pairs import Pairs, Sentences, by_length, encode
from experiments.translation.selection import most_like
from experiments.translation.state import Data
from experiments.translation.text import Text
from experiments.translation.vocabulary import END, Vocabulary, learn
from tests.experiments.translation.conftest import sentences, vocabulary


def drawn(count: int = 200) -> Pairs:
    lengths = torch.randint(1, 9, (2, count)).tolist()
    sides = [Sentences.of([[3 + place for place in range(n - 1)] + [END] for n in some]) for some in lengths]
    return Pairs(*sides, (count // 4, count - count // 4))


def test_nothing_is_unknown_and_everything_comes_back(data: Data) -> None:
    for line in ("be sees fox", "Достоевский, 東京 & co.", "ünknown"):
        [pieces] = data.vocabulary.encode([line])
        assert pieces[-1] == END
        assert 0 not in pieces
        assert data.vocabulary.decode(pieces) == line
    assert data.vocabulary.encode(["", "  "]) == [[END], [END]]
    assert Vocabulary.from_text(data.vocabulary.to_text()).digest == data.vocabulary.digest


def test_typographic_punctuation_becomes_plain(data: Data) -> None:
    [typographic, plain] = data.vocabulary.encode(["„don’t“ – «he»", '"don\'t" - "he"'])
    assert typographic == plain
    assert data.vocabulary.decode(plain) == '"don\'t" - "he"'


def test_a_vocabulary_and_pairs_come_from_the_cache(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_encoded", None)
    text = sentences(300, seed=1)
    monkeypatch.setattr(sentencepiece, "SentencePieceTrainer", None)
    assert vocabulary().digest == data.vocabulary.digest
    again = encode(text, data.vocabulary, cached=True)
    assert torch.equal(again.targets.pieces, data.training.targets.pieces)
    assert torch.equal(again.sources.starts, data.training.sources.starts)


def test_too_many_pieces_are_told() -> None:
    with pytest.raises(ValueError, match="No vocabulary of 5000 pieces can be learned from 20 lines"):
        learn(sentences(10, seed=1), 5000, quiet=True)


def test_what_is_no_vocabulary_is_told() -> None:
    with pytest.raises(ValueError, match="not a vocabulary"):
        Vocabulary(b"something else")


def test_windows_hold_passages_whole_and_every_part_as_often_as_asked() -> None:
    pairs = drawn()
    usable = pairs.usable(6)
    windows = pairs.windows((3, 1), usable, 10, 4, torch.Generator().manual_seed(0))
    assert torch.equal(torch.cat(windows).sort().values, pairs.repeated((3, 1), usable))
    for window in windows[:-1]:
        starts = [number for number in window.tolist() if not usable[number // 10 * 10 : number].any()]
        whole = [torch.arange(start // 10 * 10, start // 10 * 10 + 10) for start in starts]
        assert len(starts) == 4
        assert torch.equal(window, torch.cat([lines[usable[lines]] for lines in whole]))
    # Passages from anywhere come together.
    assert any(abs(int(window[0]) - int(window[-1])) > 40 for window in windows)


def test_batches_hold_every_pair_once_without_padding_in_the_source() -> None:
    pairs = drawn()
    which = pairs.usable(6).nonzero().squeeze(1)
    batches = pairs.batches(which, 40, torch.Generator().manual_seed(0))
    assert torch.equal(torch.cat(batches).sort().values, which)
    for part in batches:
        batch = pairs.batch(part)
        assert len(pairs.sources.lengths[part].unique()) == 1
        assert batch.target.numel() <= 40
        assert (batch.source[:, -1] == END).all()
        assert torch.equal(batch.mask.sum(1), pairs.targets.lengths[part])
        assert (batch.target[~batch.mask] == END).all()
        for number, row, mask in zip(part.tolist(), batch.target, batch.mask, strict=True):
            start, stop = pairs.targets.starts[number : number + 2].tolist()
            assert torch.equal(row[mask], pairs.targets.pieces[start:stop].long())
    padding = 1 - sum(int(pairs.batch(part).mask.sum()) for part in batches) / sum(
        pairs.batch(part).mask.numel() for part in batches
    )
    assert padding < 0.2
    other = pairs.batches(which, 40, torch.Generator().manual_seed(1))
    assert not all(torch.equal(a, b) for a, b in zip(batches, other, strict=False))
    same = pairs.batches(which, 40, torch.Generator().manual_seed(0))
    assert all(torch.equal(a, b) for a, b in zip(batches, same, strict=True))


def test_empty_and_long_pairs_are_left_out_and_parts_repeated(data: Data) -> None:
    text = Text(["be", "", "bo", "  ", "be " * 9], ["BE", "BO", "", "x", "BE " * 9], (1, 4))
    pairs = encode(text, data.vocabulary)
    assert pairs.usable(5).tolist() == [True, False, False, False, False]
    assert pairs.usable(50).tolist() == [True, False, False, False, True]
    assert pairs.repeated((2, 3), pairs.usable(50)).tolist() == [0, 0, 4, 4, 4]


def test_lines_to_be_translated_come_by_length() -> None:
    lines = [[3, END], [END], [3, 4, END], [4, END], [5, END]]
    batches = by_length(lines, 2)
    assert [places for places, _ in batches] == [[2], [0, 3], [4]]
    assert batches[1][1].tolist() == [[3, END], [4, END]]


def test_the_cache_may_be_out_of_reach(data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RARECALL_CACHE", str(tmp_path / "file"))
    assert len(encode(sentences(5, seed=0), data.vocabulary, cached=True)) == 5


def test_the_pairs_most_like_the_wanted_text_are_selected() -> None:
    torch.manual_seed(0)
    # Pieces 3 to 9 are the news's, 10 to 16 the debates'; every third pair of the debates is of news pieces.
    news = [torch.randint(3, 10, (6,)).tolist() for _ in range(40)]
    debates = [torch.randint(3, 10, (6,)).add(0 if n % 3 == 0 else 7).tolist() for n in range(90)]
    side = Sentences.of([[*line, END] for line in debates + news])
    chosen = most_like(Pairs(side, side, (90, 40)), torch.tensor([False, True]), 1 / 3)
    assert chosen[:90].nonzero().squeeze(1).tolist() == list(range(0, 90, 3))
    assert chosen[90:].all()
    with pytest.raises(ValueError, match="some files must be repeated and others not"):
        most_like(Pairs(side, side, (90, 40)), torch.tensor([False, False]), 0.5)
