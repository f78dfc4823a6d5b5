"""The demo, with hardly any training."""

import contextlib
import io

import pytest
import torch
from PIL import Image

from rarecall.demo import demo, one_shot
from rarecall.demo.handwriting import Alphabet


def run(out, **settings) -> tuple[one_shot.Report, str]:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        result = demo.run(out, **settings)
    return result, printed.getvalue()


@pytest.fixture(scope="module")
def demonstration(tmp_path_factory) -> tuple[one_shot.Report, str]:
    return run(tmp_path_factory.mktemp("demo") / "demo.png", steps=8)


def test_before_any_showing_every_answer_is_i_do_not_know(demonstration) -> None:
    first = demonstration[0].rows[0]
    assert first == one_shot.Row(showings=0, memory=0.0, pixels=0.0, unknown=1.0, slots=0)


def test_each_showing_helps(demonstration) -> None:
    rows = demonstration[0].rows
    assert [row.showings for row in rows] == list(one_shot.SHOWINGS)
    assert rows[1].slots == demo.NEW
    assert rows[1].memory > 20 / demo.NEW  # by chance it would be 1 / NEW
    assert rows[-1].memory > rows[1].memory
    assert all(row.unknown == 0 for row in rows[1:])
    assert all(row.pixels > 0 for row in rows[1:])


def test_every_answer_traces_to_the_drawing_it_came_from(demonstration) -> None:
    answers = demonstration[0].answers
    new = torch.arange(demo.KNOWN, demo.KNOWN + demo.NEW)
    album = Alphabet(demo.KNOWN + demo.NEW, seed=0).draw(
        new.repeat(max(one_shot.SHOWINGS)), torch.Generator().manual_seed(1)
    )
    assert len(answers) == one_shot.CELLS[0] * one_shot.CELLS[1]
    for place, answer in enumerate(answers):
        assert answer.character == place  # the first questions, not chosen ones
        assert answer.value == answer.source  # one showing of each: the album begins with it
        assert torch.equal(answer.remembered, album[answer.source, 0])
        assert not torch.equal(answer.question, answer.remembered)
        assert -1 <= answer.similarity <= 1.001
        assert 0 < answer.confidence <= 1.001


def test_the_table_and_the_place_of_the_picture_are_printed(demonstration) -> None:
    result, printed = demonstration
    table = [line.split() for line in printed.splitlines() if line.strip()[:1].isdigit() and "%" in line]
    assert [int(line[0]) for line in table] == list(one_shot.SHOWINGS)
    assert [line[1] for line in table] == [f"{row.memory:.1%}" for row in result.rows]
    assert printed.rstrip().endswith(str(result.picture))


def test_the_picture_is_a_png_wide_enough_for_a_page(demonstration) -> None:
    with Image.open(demonstration[0].picture) as picture:
        picture.load()
        assert picture.format == "PNG"
        assert picture.width >= 1800
        assert len(picture.convert("L").getcolors(256)) > 50


def test_one_seed_gives_one_table_and_one_picture(demonstration, tmp_path) -> None:
    result, printed = demonstration
    again, printed_again = run(tmp_path / "again.png", steps=8)
    assert again.rows == result.rows
    assert printed_again.replace("again.png", "") == printed.replace(str(result.picture), str(tmp_path) + "/")
    assert again.picture.read_bytes() == result.picture.read_bytes()
    other, _ = run(tmp_path / "other.png", seed=1, steps=0)
    assert other.rows != result.rows


def test_a_picture_into_no_folder_is_refused_before_the_training(tmp_path) -> None:
    with pytest.raises(ValueError, match=r"there is no folder .*missing\. Create it first"):
        demo.run(tmp_path / "missing" / "demo.png")
