import contextlib
import io

import pytest
import torch
from PIL import Image
from torch.nn import functional as F

from rarecall.experiments import meeting
from rarecall.experiments.handwriting import demo
from rarecall.experiments.handwriting.characters import Alphabet


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def alphabet() -> Alphabet:
    return Alphabet(classes=200, seed=0)


# The characters


def test_a_drawing_is_28_by_28_from_paper_0_to_ink_1(alphabet) -> None:
    drawings = alphabet.draw(torch.arange(200), generator())
    assert drawings.shape == (200, 1, 28, 28)
    assert drawings.dtype == torch.float32
    assert drawings.amin(dim=(1, 2, 3)).eq(0).all()
    assert drawings.amax(dim=(1, 2, 3)).gt(0.9).all()


def test_no_drawing_is_empty_or_a_blot(alphabet) -> None:
    ink = alphabet.draw(torch.arange(200).repeat(10), generator()).mean(dim=(1, 2, 3))
    assert ink.min() > 0.01
    assert ink.max() < 0.5


def test_drawings_keep_away_from_the_edge(alphabet) -> None:
    drawings = alphabet.draw(torch.arange(200).repeat(10), generator())
    frame = torch.ones(28, 28, dtype=torch.bool)
    frame[1:-1, 1:-1] = False
    assert drawings[..., frame].sum() / drawings.sum() < 0.005


def test_one_seed_makes_one_alphabet_and_one_drawing(alphabet) -> None:
    classes = torch.arange(200)
    drawings = alphabet.draw(classes, generator())
    assert torch.equal(Alphabet(classes=200, seed=0).draw(classes, generator()), drawings)
    assert not torch.equal(alphabet.draw(classes, generator(1)), drawings)
    assert not torch.equal(Alphabet(classes=200, seed=1).draw(classes, generator()), drawings)


def test_without_a_generator_the_global_seed_draws(alphabet) -> None:
    torch.manual_seed(3)
    drawings = alphabet.draw(torch.arange(5))
    assert torch.equal(drawings, alphabet.draw(torch.arange(5), generator(3)))


def test_a_larger_alphabet_begins_with_the_same_characters(alphabet) -> None:
    classes = torch.arange(200)
    assert torch.equal(Alphabet(classes=600, seed=0).draw(classes, generator()), alphabet.draw(classes, generator()))


def test_every_drawing_is_new(alphabet) -> None:
    drawings = alphabet.draw(torch.zeros(50, dtype=torch.int64), generator()).flatten(1)
    assert len(drawings.unique(dim=0)) == 50


def test_drawings_of_one_class_are_more_alike_than_of_two(alphabet) -> None:
    first, second = (
        F.normalize(alphabet.draw(torch.arange(200), generator(seed)).flatten(1), dim=1) for seed in (0, 1)
    )
    similarities = first @ second.T
    assert similarities.diag().mean() > similarities.mean() + 0.2


def test_pixels_alone_recognise_some_drawings_but_far_from_all(alphabet) -> None:
    draws, right = generator(), []
    for _ in range(50):
        classes = torch.randperm(200, generator=draws)[:20]
        shown, asked = alphabet.draw(classes, draws), alphabet.draw(classes, draws)
        right.append(meeting.share(meeting.nearest_pixels(asked, shown, classes) == classes))
    assert 0.4 < sum(right) / len(right) < 0.7


def test_no_classes_no_drawings(alphabet) -> None:
    assert alphabet.draw(torch.empty(0, dtype=torch.int64)).shape == (0, 1, 28, 28)


def test_an_alphabet_of_no_classes_is_refused() -> None:
    with pytest.raises(ValueError, match="Alphabet got classes=0; expected at least 1"):
        Alphabet(classes=0)


@pytest.mark.parametrize("classes", [torch.zeros(2, 2, dtype=torch.int64), torch.tensor(3), torch.zeros(3)])
def test_classes_of_another_shape_or_type_are_refused(alphabet, classes) -> None:
    with pytest.raises(ValueError, match=r"expected \(n,\) and torch.int64"):
        alphabet.draw(classes)


@pytest.mark.parametrize("classes", [[0, 200], [-1, 5]])
def test_classes_beyond_the_alphabet_are_refused(alphabet, classes) -> None:
    with pytest.raises(
        ValueError, match=f"draw got classes from {classes[0]} to {classes[1]}; this alphabet has 0 to 199"
    ):
        alphabet.draw(torch.tensor(classes))


# The demo, with hardly any training


def run(out, **settings) -> tuple[meeting.Meeting, str]:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        result = demo.run(out, **settings)
    return result, printed.getvalue()


@pytest.fixture(scope="module")
def demonstration(tmp_path_factory) -> tuple[meeting.Meeting, str]:
    return run(tmp_path_factory.mktemp("demo") / "demo.png", steps=8)


def test_before_any_showing_every_answer_is_i_do_not_know(demonstration) -> None:
    first = demonstration[0].rows[0]
    assert first == meeting.Row(showings=0, memory=0.0, pixels=0.0, unknown=1.0, slots=0)


def test_each_showing_helps(demonstration) -> None:
    rows = demonstration[0].rows
    assert [row.showings for row in rows] == list(meeting.SHOWINGS)
    assert rows[1].slots == demo.NEW
    assert rows[1].memory > 20 / demo.NEW  # by chance it would be 1 / NEW
    assert rows[-1].memory > rows[1].memory
    assert all(row.unknown == 0 for row in rows[1:])
    assert all(row.pixels > 0 for row in rows[1:])


def test_every_answer_traces_to_the_drawing_it_came_from(demonstration) -> None:
    answers = demonstration[0].answers
    new = torch.arange(demo.KNOWN, demo.KNOWN + demo.NEW)
    album = Alphabet(demo.KNOWN + demo.NEW, seed=0).draw(new.repeat(max(meeting.SHOWINGS)), generator(1))
    assert len(answers) == meeting.CELLS[0] * meeting.CELLS[1]
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
    assert [int(line[0]) for line in table] == list(meeting.SHOWINGS)
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
    with pytest.raises(ValueError, match=r"there is no folder .*missing\. Make it first"):
        demo.run(tmp_path / "missing" / "demo.png")
