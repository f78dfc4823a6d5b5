import pytest
import torch
from torch.nn import functional as F

from rarecall.demo import one_shot
from rarecall.demo.handwriting import Alphabet


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def alphabet() -> Alphabet:
    return Alphabet(classes=200, seed=0)


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
        right.append(one_shot.share(one_shot.nearest_pixels(asked, shown, classes) == classes))
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
