"""Readers: what a class is worth, what is fitted, and what happens where there is little to go by."""

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize

from rarecall import Blend, Memory, MemoryClassifier, Nearest, Vote, leave_out, reading
from rarecall.class_means import UNITS
from tests.helpers import ids, unit

READERS = [Nearest, Vote, Blend]


def clusters(classes: int, examples: int, *, size: int = 32, noise: float = 1.0, seed: int = 0):
    """Examples of classes around random centres, and questions of the same."""
    generator = torch.Generator().manual_seed(seed)
    centres = normalize(torch.randn(classes, size, generator=generator))

    def draw(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        label = torch.arange(classes).repeat(count)
        return normalize(
            centres[label] + noise * size**-0.5 * torch.randn(len(label), size, generator=generator)
        ), label

    return draw(examples), draw(4)


def taught(keys: torch.Tensor, values: torch.Tensor, **options) -> Memory:
    memory = Memory(keys.shape[1], len(keys) + 8, **options)
    memory.write(keys, values)
    return memory


def accuracy(reader: reading.Reader, memory: Memory, questions) -> float:
    return float((reader(memory, memory(questions[0])).values[:, 0] == questions[1]).float().mean())


# ---- readings ----


@pytest.mark.parametrize("reader", READERS)
def test_a_reading_is_probabilities_best_first(reader) -> None:
    examples, (questions, _) = clusters(10, 5)
    memory = taught(*examples)
    read = reader(answers=1000)(memory, memory(questions))
    assert (read.probabilities.diff() <= 1e-6).all()
    torch.testing.assert_close(read.probabilities.sum(1), torch.ones(len(questions)))
    assert [len(set(row) - {-1}) == sum(v >= 0 for v in row) for row in read.values.tolist()]
    assert ((read.known >= 0) & (read.known <= 1)).all()


@pytest.mark.parametrize("reader", READERS)
def test_any_shape_of_questions(reader) -> None:
    examples, (questions, _) = clusters(6, 3)
    memory = taught(*examples)
    flat = reader()(memory, memory(questions[:24]))
    shaped = reader()(memory, memory(questions[:24].view(2, 3, 4, -1)))
    assert shaped.values.shape == (2, 3, 4, flat.values.shape[1])
    assert torch.equal(shaped.values.view(flat.values.shape), flat.values)
    assert shaped.known.shape == (2, 3, 4)
    assert reader()(memory, memory(questions[0])).values[0] == flat.values[0, 0]
    assert reader()(memory, memory(questions[:0])).values.shape == (0, 1)


def test_nearest_is_the_answer_of_the_recall() -> None:
    examples, (questions, _) = clusters(20, 5, noise=2.0)
    memory = taught(*examples)
    recall = memory(questions)
    assert torch.equal(Nearest()(memory, recall).values[:, 0], recall.value)


def test_the_first_of_each_value() -> None:
    assert reading._first(ids([5, 3, 5, -1, 3], [1, 1, 2, 2, 0])).tolist() == [[0, 1, 0, 3, 1], [0, 0, 2, 2, 4]]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("answers", [1, 3, 1000])
def test_the_extension_reads_as_torch_does(reader, answers) -> None:
    pytest.importorskip("rarecall._native")
    examples, (questions, _) = clusters(40, 5, noise=2.0)
    memory = taught(*examples, k=50)
    memory.write(examples[0][:3] + 1e-4, ids(0, 1, 50))  # all but taught twice
    questions = torch.cat([questions, examples[0]])
    read = reader(answers=answers)
    for _ in range(2):  # as it begins, and fitted
        recall = memory(questions, exclude=torch.arange(len(questions)) % 7)
        native = read(memory, recall)
        recall.values.add_(0)  # what was edited is read by torch
        by_torch = read(memory, recall)
        for each, other in zip(vars(native).values(), vars(by_torch).values(), strict=True):
            torch.testing.assert_close(each, other, rtol=1e-4, atol=1e-6)
        read.fit(memory)


def test_a_class_whose_keys_cancel_each_other_is_an_answer() -> None:
    memory = taught(torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]]), ids(4, 4, 9))
    assert Blend()(memory, memory(torch.tensor([[0.9, 0.1], [0.1, 0.9]]))).values[:, 0].tolist() == [4, 9]


def test_vote_sums_the_weights_of_the_neighbours() -> None:
    examples, (questions, _) = clusters(5, 4, noise=2.0)
    memory = taught(*examples)
    recall = memory(questions)
    read = Vote()(memory, recall)
    for row in range(len(questions)):
        for value, probability in zip(read.values[row].tolist(), read.probabilities[row].tolist(), strict=True):
            expected = float(recall.weights[row][recall.values[row] == value].sum())
            assert probability == pytest.approx(expected, abs=1e-4)


def test_of_equals_the_newest_comes_first() -> None:
    memory = Memory(4, 8)
    memory.write(torch.eye(4)[:1], ids(5))
    memory.write(torch.eye(4)[:1], ids(3))
    question = torch.tensor([[0.9, 0.3, 0.0, 0.0]])
    for reader in READERS:
        assert reader()(memory, memory(question)).values.tolist() == [[3, 5]]
    memory.write(torch.eye(4)[:1], ids(5))
    memory.forget(slots=0)
    for reader in READERS:
        assert reader()(memory, memory(question)).values.tolist() == [[5, 3]]


def test_a_taught_example_is_answered_by_what_was_taught() -> None:
    (keys, values), _ = clusters(2, 40, noise=0.5)
    memory = taught(keys, values)
    wrong = int((values == 0).nonzero()[3])
    memory.forget(slots=wrong)
    memory.write(keys[wrong : wrong + 1], ids(1))  # in the midst of the other class
    blend = Blend()
    blend.fit(memory)
    read = blend(memory, memory(keys[wrong : wrong + 1]))
    assert read.values[0, 0] == 1
    assert read.probabilities[0, 0] > 0.9


# ---- little to go by ----


@pytest.mark.parametrize("reader", READERS)
def test_an_empty_memory_knows_nothing(reader) -> None:
    memory, read = Memory(4, 8), reader()
    read.fit(memory)
    answer = read(memory, memory(torch.eye(4)))
    assert answer.values.tolist() == [[-1]] * 4
    assert answer.probabilities.tolist() == [[0]] * 4
    assert answer.known.tolist() == [0] * 4


@pytest.mark.parametrize("reader", READERS)
def test_where_nothing_can_be_left_out_a_fit_changes_nothing(reader) -> None:
    one_class = taught(unit(6, 4), ids(*[3] * 6))
    one_example_each = taught(torch.eye(4), ids(3, 5, 7, 9))
    for memory in (one_class, one_example_each):
        fitted = reader()
        fitted.fit(memory)
        before = reader().settings() | {"fitted": len(memory)}
        assert fitted.settings() == before
    read = fitted(one_example_each, one_example_each(torch.eye(4) + 0.05))
    assert read.values[:, 0].tolist() == [3, 5, 7, 9]
    assert (read.known > 0.9).all()
    assert fitted(one_class, one_class(torch.eye(4))).probabilities[:, 0].tolist() == pytest.approx([1] * 4)


def test_a_class_with_one_example_is_answered_beside_classes_with_many() -> None:
    examples, questions = clusters(8, 20)
    memory = taught(*examples)
    alone = normalize(torch.randn(1, 32, generator=torch.Generator().manual_seed(9)))
    memory.write(alone, ids(99))
    blend = Blend()
    blend.fit(memory)
    assert blend(memory, memory(alone + 0.02)).values[0, 0] == 99
    assert accuracy(blend, memory, questions) > 0.95


@pytest.mark.parametrize("reader", READERS)
def test_a_value_forgotten_after_the_fit_is_no_answer(reader) -> None:
    examples, (questions, labels) = clusters(4, 6, noise=0.3)
    memory, read = taught(*examples), reader()
    read.fit(memory)
    memory.forget(value=2)
    answer = read(memory, memory(questions))
    assert not (answer.values == 2).any()
    others = labels != 2
    assert torch.equal(answer.values[others, 0], labels[others])
    assert not memory.class_means(ids(2)).any()


def test_a_value_forgotten_after_the_recall_is_no_answer() -> None:
    examples, (questions, labels) = clusters(4, 6)
    memory = taught(*examples)
    blend = Blend()
    blend.fit(memory)
    recall = memory(questions[:4])
    memory.forget(value=int(labels[0]))
    read = blend(memory, recall)
    assert not (read.values == labels[0]).any()
    for reader in (Nearest, Vote):  # read what was found, as the memory stood then
        assert reader()(memory, recall).values[0, 0] == labels[0]
    memory.reset()
    assert blend(memory, recall).values.tolist() == [[-1]] * 4
    assert blend(memory, recall).known.tolist() == [0] * 4


# ---- fitting ----


def test_a_blend_is_as_good_as_the_better_of_neighbours_and_means() -> None:
    few, few_questions = clusters(40, 5, noise=1.6)
    # Two far apart clusters a class: their mean is between them.
    examples, questions = clusters(40, 30, noise=1.2)
    many, many_questions = (examples[0], examples[1] // 2), (questions[0], questions[1] // 2)
    for (keys, values), asked in ((few, few_questions), (many, many_questions)):
        memory = taught(keys, values)
        means = normalize(memory.class_means(values.unique()))
        by_mean = float(((asked[0] @ means.T).argmax(1) == asked[1]).float().mean())
        blend = Blend()
        blend.fit(memory)
        assert accuracy(blend, memory, asked) >= max(by_mean, accuracy(Nearest(), memory, asked)) - 0.02


def test_a_metric_pays_where_only_some_directions_tell_classes_apart() -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.arange(20).repeat(30)
    centres = torch.randn(20, 8, generator=generator)

    def draw(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        label = torch.arange(20).repeat(count)
        noise = torch.randn(len(label), 56, generator=generator)  # of no meaning
        return torch.cat([centres[label] + 0.3 * torch.randn(len(label), 8, generator=generator), noise], 1), label

    (keys, values), questions = draw(30), draw(5)
    memory, blend = taught(keys, values), Blend()
    unfitted = accuracy(blend, memory, questions)
    blend.fit(memory)
    assert accuracy(blend, memory, questions) > unfitted + 0.05
    # What is taught after the fit profits as well.
    memory.forget(value=7)
    memory.write(keys[values == 7], ids(*[70] * 30))
    of_seven = questions[0][questions[1] == 7]
    assert (blend(memory, memory(of_seven)).values[:, 0] == 70).float().mean() > 0.7


@pytest.mark.parametrize(("classes", "examples", "noise"), [(200, 2, 1.5), (2, 3, 0.5), (30, 5, 0.0), (3, 40, 0.5)])
def test_a_blend_fits_what_has_little_variation_within_classes(classes, examples, noise) -> None:
    (keys, values), questions = clusters(classes, examples, noise=noise)
    memory, blend = taught(keys, values), Blend()
    blend.fit(memory)
    assert all(each.isfinite().all() for each in blend.projection(keys))
    assert accuracy(blend, memory, questions) >= accuracy(Nearest(), memory, questions) - 0.01


@pytest.mark.parametrize("alike", [True, False])
def test_a_blend_fits_a_few_keys_of_many_dimensions_most_of_which_say_nothing(alike) -> None:
    keys = torch.zeros(12, 1400)
    keys[:, :1200] = torch.rand(12, 1200, generator=torch.Generator().manual_seed(0))
    values = ids(0, 0, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9)
    if alike:
        keys[1], keys[4] = keys[0], keys[3]
    for count in range(2, 13):
        memory, blend = taught(keys[:count], values[:count]), Blend()
        blend.fit(memory)
        read = blend(memory, memory(keys))
        assert read.probabilities.isfinite().all()
        assert read.known.isfinite().all()
        assert all(each.isfinite().all() for each in blend.projection(keys))


def test_whitening_pays_where_what_varies_within_classes_means_nothing() -> None:
    generator = torch.Generator().manual_seed(0)
    centres, scale = 0.3 * torch.randn(30, 48, generator=generator), torch.linspace(2, 0.05, 48)

    def draw(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        label = torch.arange(30).repeat(count)
        return 1 + centres[label] + scale * torch.randn(len(label), 48, generator=generator), label

    memory, questions = taught(*draw(10)), draw(10)
    blend = Blend()
    blend.fit(memory)
    fitted, whitening = accuracy(blend, memory, questions), blend.projection.whitening
    blend.projection = reading.Projection(blend.weights[1], blend.projection.metric, None, None)
    assert whitening is not None
    assert fitted > accuracy(blend, memory, questions) + 0.1


def test_probabilities_are_calibrated() -> None:
    examples, (questions, labels) = clusters(30, 10, noise=2.0)
    memory, blend = taught(*examples), Blend()
    blend.fit(memory)
    read = blend(memory, memory(questions))
    right = float((read.values[:, 0] == labels).float().mean())
    assert 0.3 < right < 0.9
    assert float(read.probabilities[:, 0].mean()) == pytest.approx(right, abs=0.12)


@pytest.mark.parametrize("reader", READERS)
def test_what_was_never_taught_is_less_known(reader) -> None:
    (keys, values), (questions, labels) = clusters(40, 10, noise=0.8)
    memory, fitted = taught(keys[values < 30], values[values < 30]), reader()
    fitted.fit(memory)
    known = fitted(memory, memory(questions)).known
    assert known[labels < 30].median() > 0.9
    assert known[labels >= 30].median() < 0.5


def test_examples_are_left_out_with_their_block() -> None:
    column, ages = ids(*[0] * 10, 1, 1, 1), torch.arange(13)
    blocks = leave_out._blocks(column, ages, 2)
    assert blocks.tolist() == [4, 4, 3, 3, 2, 2, 1, 1, 0, 0, 3, 1, 0]  # the oldest first


def test_a_fit_is_the_same_every_time_and_in_any_mode() -> None:
    examples, _ = clusters(20, 8)
    memory = taught(*examples)
    first, second = Blend(), Blend()
    first.fit(memory)
    with torch.inference_mode():
        second.fit(memory)
        second(memory, memory(examples[0]))
    assert first.settings() == second.settings()
    second.fit(memory)
    assert first.settings() == second.settings()


def test_settings_are_json_and_make_the_same_reader() -> None:
    examples, (questions, _) = clusters(12, 6)
    memory = taught(*examples)
    for kind in READERS:
        reader = kind(answers=5)
        reader.fit(memory)
        other = reading.from_settings(json.loads(json.dumps(reader.settings())))
        ours, theirs = (each(memory, memory(questions)) for each in (reader, other))
        for name in ("values", "probabilities", "known"):
            assert torch.equal(getattr(ours, name), getattr(theirs, name))
        assert ours.values.shape[1] == 5
        assert other.settings() == reader.settings()


def test_it_is_fitted_again_when_the_memory_has_grown() -> None:
    examples, _ = clusters(10, 8)
    memory, blend = Memory(32, 200), Blend()
    assert not blend.refit(memory)
    memory.write(examples[0][:40], examples[1][:40])
    assert blend.refit(memory)
    memory.write(examples[0][40:45], examples[1][40:45])
    assert not blend.refit(memory)
    memory.write(examples[0][45:], examples[1][45:])
    assert blend.refit(memory)
    memory.reset()
    assert blend.refit(memory)


def test_errors() -> None:
    with pytest.raises(ValueError, match="answers=0; expected 1 or greater"):
        Vote(answers=0)
    with pytest.raises(ValueError, match="No reader is called 'mean'; expected one of nearest, vote, blend"):
        reading.make("mean")
    with pytest.raises(ValueError, match="settings of the reader 'vote'; this one is 'blend'"):
        Blend().restore(Vote().settings())


# ---- class means ----


def fresh(memory: Memory, values: torch.Tensor) -> torch.Tensor:
    """Sums of whole units, from the slots as they are."""
    rows = []
    for value in values.tolist():
        mine = memory.values == value
        units = (memory.keys[mine].double() * UNITS).round().long()
        rows.append((units * memory.counts[mine, None]).sum(0))
    return torch.stack(rows)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_class_means_are_those_of_the_slots_after_any_stream(data) -> None:
    memory = Memory(4, 12, k=3).to(data.draw(st.sampled_from([torch.float32, torch.float64])))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    everything = torch.arange(8)
    for _ in range(data.draw(st.integers(1, 12))):
        n = data.draw(st.integers(1, 4))
        keys = torch.randn(n, 4, generator=generator)
        values = torch.randint(6, (n,), generator=generator)
        kind = data.draw(st.sampled_from(["update", "update", "write", "forget", "reset", "edit", "load", "ask"]))
        if kind == "update":
            memory.update(memory(keys), values)
        elif kind == "write":
            memory.write(keys, values, counts=torch.randint(1, 5, (n,), generator=generator))
        elif kind == "forget":
            memory.forget(value=int(values[0]))
        elif kind == "reset":
            memory.reset()
        elif kind == "edit":
            memory.values[memory.values == 1] = 7
        elif kind == "load":
            memory.load_state_dict(memory.state_dict())
        else:
            memory.class_means(everything)
    means = memory.class_means(everything)
    expected = fresh(memory, everything)
    state = memory._state.means
    rows = [state.row_of.get(value) for value in everything.tolist()]
    for value, row in enumerate(rows):
        assert torch.equal(state.sums[row] if row is not None else torch.zeros(4).long(), expected[value])
    counts = torch.stack([memory.counts[memory.values == value].sum() for value in everything.tolist()])
    project = reading.Projection(1.0, None, None, None)
    vectors, offsets, examples = memory.class_vectors(project, everything)
    assert torch.equal(examples, counts)
    assert not offsets.any()
    torch.testing.assert_close(vectors, normalize(expected.double()).to(memory.keys))
    slots = (memory.values >= 0).nonzero().squeeze(1)
    assert torch.equal(
        state.rows[slots], torch.tensor([state.row_of[value] for value in memory.values[slots].tolist()])
    )
    torch.testing.assert_close(
        means.double() * counts[:, None], expected / UNITS, atol=1e-5, rtol=1e-5, check_dtype=False
    )


def test_rows_of_values_that_are_gone_are_given_up() -> None:
    memory = Memory(4, 4)
    memory.class_means(ids(0))
    for value in range(100):
        memory.write(torch.eye(4)[:1], ids(value))
        if value >= 2:
            memory.forget(value=value - 2)
        memory.class_means(ids(value))
    assert len(memory._state.means.sums) <= 16
    assert memory.class_means(ids(99, 98, 97)).any(1).tolist() == [True, True, False]


# ---- the classifier ----


def test_it_makes_no_difference_in_which_portions_examples_are_taught() -> None:
    (keys, values), (questions, _) = clusters(20, 10, noise=1.5)
    answers = []
    for portion in (1, 7, 200):
        classifier = MemoryClassifier(torch.nn.Identity(), Memory(32, 200))
        for some, label in zip(keys.split(portion), values.split(portion), strict=True):
            classifier.teach(some, label)
        answers.append(classifier.predict(questions).label)
    assert torch.equal(answers[0], answers[1])
    assert torch.equal(answers[0], answers[2])


def test_a_full_memory_goes_by_its_rules() -> None:
    classifier = MemoryClassifier(torch.nn.Identity(), Memory(4, 2))
    classifier.teach(torch.eye(4)[:2], ids(1, 2))
    classifier.teach(torch.tensor([[0.9, 0.1, 0, 0]]), 1)
    assert sorted(classifier.memory.counts.tolist()) == [1, 2]


def test_the_reader_goes_with_the_state() -> None:
    (keys, values), (questions, _) = clusters(10, 6)
    classifier = MemoryClassifier(torch.nn.Identity(), Memory(32, 60), min_known=0.5)
    classifier.teach(keys, values)
    expected = classifier.predict(questions)
    other = MemoryClassifier(torch.nn.Identity(), Memory(32, 60), min_known=0.5)
    other.load_state_dict(classifier.state_dict())
    assert other.reader.settings() == classifier.reader.settings()
    answer = other.predict(questions)
    assert torch.equal(answer.label, expected.label)
    assert torch.equal(answer.known_prob, expected.known_prob)
    with pytest.raises(ValueError, match=r"min_known=2; expected 0 to 1"):
        MemoryClassifier(torch.nn.Identity(), Memory(4, 8), min_known=2)
