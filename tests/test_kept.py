"""A classifier in a folder: what it promises to who teaches it and asks it."""

import contextlib
import hashlib
import logging
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import torch

import rarecall
from rarecall.store import FolderError, FolderInUse

SIZE = 48


def encode(texts):
    """Sums of random word vectors: texts with words in common are near each other."""
    keys = np.zeros((len(texts), SIZE), np.float32)
    for row, text in enumerate(texts):
        for word in str(text).split():
            seed = int(hashlib.md5(word.encode()).hexdigest()[:8], 16)
            keys[row] += np.random.default_rng(seed).normal(size=SIZE)
    return keys


def other_encode(texts):
    return np.roll(encode(texts), 1, axis=1)


@pytest.fixture
def tickets(tmp_path):
    with rarecall.open(tmp_path / "tickets", embed=encode) as opened:
        yield opened


def state(kept):
    """All that a memory holds, for comparing bit for bit."""
    memory = kept.memory
    if memory is None:
        return {}
    filled = memory.slots()
    fields = {name: getattr(filled, name).numpy().tobytes() for name in filled._fields}
    return fields | {"now": int(memory.now), "table": kept._kept.places.table.tobytes()}


def folder_bytes(folder):
    return b"".join(path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file())


def test_the_whole_of_it_in_six_lines(tmp_path):
    tickets = rarecall.open(tmp_path / "tickets", embed=encode)
    tickets.teach("the machine ate my card", "card_swallowed")
    answer = tickets.ask("the ATM ate my card")
    tickets.forget(label="card_swallowed", reason="asked by customer 812")
    tickets.close()
    tickets = rarecall.open(tmp_path / "tickets", embed=encode)

    assert (answer.label, answer.known) == ("card_swallowed", True)
    assert 0 < answer.probability <= 1
    assert tickets.ask("the ATM ate my card").label is None
    assert len(tickets) == 0
    tickets.close()


def test_because_are_the_examples_with_similarity_time_and_who(tickets):
    before = datetime.now(UTC)
    number = tickets.teach("the machine ate my card", "swallowed", who="anna")
    tickets.teach(["my card was stolen", "I lost my card"], ["stolen", "lost"])

    first, *others = tickets.ask("a machine ate my card").because
    assert (first.id, first.example, first.label, first.who) == (number, "the machine ate my card", "swallowed", "anna")
    assert before <= first.when <= datetime.now(UTC)
    assert 0.5 < first.similarity <= 1.0
    assert [each.similarity for each in others] == sorted((each.similarity for each in others), reverse=True)


def test_asking_before_anything_was_taught(tickets):
    answer = tickets.ask("hello")
    assert (answer.label, answer.probability, answer.known, answer.because) == (None, 0.0, False, [])
    assert [each.label for each in tickets.ask(["a", "b"])] == [None, None]


@pytest.mark.parametrize("label", ["text", "ünïcode 🎈", 7, -1, 2.5, True, 10**12])
def test_labels_are_text_and_numbers(tmp_path, label):
    with rarecall.open(tmp_path, embed=encode) as kept:
        kept.teach("one", label)
    with rarecall.open(tmp_path, embed=encode) as kept:
        answer = kept.ask("one").label
        assert (answer, type(answer)) == (label, type(label))
        assert kept.classes() == {label: 1}


def test_labels_of_equal_value_and_different_type_are_different(tickets):
    tickets.teach(["one", "two"], ["1", 1])
    assert (tickets.ask("one").label, tickets.ask("two").label) == ("1", 1)


@pytest.mark.parametrize("label", [None, ["nested"], {"a": 1}, float("nan"), b"bytes"])
def test_other_labels_are_refused(tickets, label):
    with pytest.raises((TypeError, ValueError)):
        tickets.teach(["one"], [label])
    with pytest.raises((TypeError, ValueError)):
        tickets.teach("one", [label] if isinstance(label, list) else label)
    assert len(tickets) == 0


@pytest.mark.parametrize(
    "example", ["text", b"bytes \x00\xff", 812, {"id": 812, "of": ["a"]}, np.arange(6.0).reshape(2, 3), Path("a/b.png")]
)
def test_examples_come_back_as_they_were(tmp_path, example):
    with rarecall.open(tmp_path / "kept", keep="reference" if isinstance(example, Path) else "content") as kept:
        kept.teach(example, "label", keys=np.ones(8))
        back = kept.ask(example, keys=np.ones(8)).because[0].example
    assert np.array_equal(back, example) if isinstance(example, np.ndarray) else back == example


def test_a_reference_keeps_no_content(tmp_path):
    with rarecall.open(tmp_path, embed=encode, keep="reference") as kept:
        kept.teach("a secret sentence", "label")
        assert kept.ask("a secret sentence").because[0].example.startswith("sha256:")
        assert kept.forget(example="a secret sentence") == 1
    assert b"secret" not in folder_bytes(tmp_path)


def test_a_file_is_kept_as_its_bytes(tmp_path):
    picture = tmp_path / "picture.png"
    picture.write_bytes(b"\x89PNG...")
    with rarecall.open(tmp_path / "kept", embed=lambda many: np.ones((len(many), 4))) as kept:
        kept.teach(picture, "cat")
        assert kept.ask(picture).because[0].example == b"\x89PNG..."


def test_without_an_embedder_examples_are_embeddings(tmp_path):
    with rarecall.open(tmp_path) as kept:
        kept.teach(np.eye(4), ["a", "b", "c", "d"])
        kept.teach(torch.tensor([1.0, 1.0, 0.0, 0.0]), "e")
        assert kept.ask([0.0, 0.0, 1.0, 0.1]).label == "c"
        assert [answer.label for answer in kept.ask(torch.eye(4))] == ["a", "b", "c", "d"]
        with pytest.raises(TypeError, match="embed="):
            kept.ask("text")


def test_bad_embeddings_change_nothing(tmp_path):
    with rarecall.open(tmp_path) as kept:
        kept.teach(np.ones(4), "a")
        for bad in (np.zeros(4), np.full(4, np.nan), np.ones(5), np.ones((2, 2, 2))):
            with pytest.raises(ValueError, match="Got"):
                kept.teach(bad, "b")
        assert kept.classes() == {"a": 1}
        assert len(kept.history()) == 2


# ---- the same memory, bit for bit ----


def live(kept, random, steps):
    """Teach, relabel, forget and undo at random."""
    words = [f"word{i}" for i in range(12)]
    for _ in range(steps):
        action = random.choice(["teach", "teach", "batch", "relabel", "forget", "undo", "settings"])
        text = " ".join(random.choice(words, 3))
        if action == "teach":
            kept.teach(text, int(random.integers(4)), who=f"w{random.integers(3)}")
        elif action == "batch":
            texts = [" ".join(random.choice(words, 3)) for _ in range(random.integers(1, 9))]
            kept.teach(texts, random.integers(4, size=len(texts)))
        elif action == "relabel" and len(kept):
            there = np.flatnonzero(kept._kept.places.table[:, 1] >= 0)
            kept.relabel(None, int(random.integers(6)), id=int(random.choice(there)))
        elif action == "forget" and random.random() < 0.3:
            there = np.flatnonzero(kept._kept.places.table[:, 1] >= 0)
            kept.forget(id=random.choice(there, min(len(there), 3)).tolist()) if len(there) else None
        elif action == "undo":
            with contextlib.suppress(ValueError):  # later entries changed its examples
                kept.undo()


@pytest.mark.parametrize("capacity", ["grow", 16])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.filterwarnings("ignore:.*slots:RuntimeWarning")
def test_a_folder_opened_again_holds_the_same_memory_bit_for_bit(tmp_path, seed, capacity):
    random, folder = np.random.default_rng(seed), tmp_path / "kept"
    kept = rarecall.open(folder, embed=encode, capacity=capacity)
    follower = rarecall.open(folder, embed=encode, readonly=True)
    for _ in range(3):
        live(kept, random, 20)
        follower.refresh()
        assert state(follower) == state(kept)
        expected = state(kept)
        kept.close()
        kept = rarecall.open(folder, embed=encode)  # from the snapshot, and the entries after it
        assert state(kept) == expected
        kept.close()
        (folder / "snapshot.safetensors").unlink(missing_ok=True)
        kept = rarecall.open(folder, embed=encode)  # from the journal alone
        assert state(kept) == expected
    follower.close()
    kept.close()


def test_teaching_gives_the_memory_that_update_gives(tmp_path):
    random = np.random.default_rng(0)
    memory = rarecall.Memory(8, 1024)
    with rarecall.open(tmp_path) as kept:
        for _ in range(30):
            keys = random.normal(size=(random.integers(1, 6), 8)).astype(np.float32)
            labels = random.integers(3, size=len(keys))
            kept.teach(keys, labels)
            memory.update(memory(torch.from_numpy(keys)), torch.from_numpy(labels))
        names = [list(kept.classes()).index(label) for label in range(3)]
        got, expected = kept.memory.slots(), memory.slots()
        assert torch.equal(got.slots, expected.slots)
        assert torch.equal(got.counts, expected.counts)
        assert torch.equal(got.values, torch.tensor(names)[expected.values])
        assert torch.allclose(got.keys, expected.keys, atol=1e-6)


# ---- forgetting ----


def test_a_slot_is_what_it_were_had_the_forgotten_example_never_confirmed_it(tmp_path):
    texts = [f"my card is gone {word}" for word in "abcdefgh"]
    for without in range(len(texts)):
        with rarecall.open(tmp_path / f"all{without}", embed=encode) as kept:
            for text in texts:
                kept.teach(text, "gone")
            assert len(kept.memory) == 1  # all in one slot
            kept.forget(example=texts[without])
            got = kept.memory.slots()
        with rarecall.open(tmp_path / f"some{without}", embed=encode) as kept:
            for text in texts[:without] + texts[without + 1 :]:
                kept.teach(text, "gone")
            expected = kept.memory.slots()
        assert got.keys.numpy().tobytes() == expected.keys.numpy().tobytes()
        assert got.counts.tolist() == expected.counts.tolist()


def test_what_is_forgotten_is_nowhere_in_the_folder(tmp_path):
    folder = tmp_path / "kept"
    with rarecall.open(folder, embed=encode) as kept:
        for number in range(300):
            kept.teach(f"ticket {number} of a customer", f"label{number % 7}", who=f"customer{number % 3}")
        kept.compact()
        mine = [number for number in range(300) if number % 3 == 1]
        units = encode([f"ticket {number} of a customer" for number in mine])
        units /= np.linalg.norm(units, axis=1, keepdims=True)
        there = folder_bytes(folder)
        assert b"ticket 1 of" in there
        assert kept.forget(who="customer1", reason="asked to") == len(mine)
        for data in (
            folder_bytes(folder),
            kept.compact() or folder_bytes(folder),
            kept.close() or folder_bytes(folder),
        ):
            for number, unit in zip(mine, units, strict=True):
                assert f"ticket {number} of".encode() not in data
                assert unit[4:12].tobytes() not in data
    with rarecall.open(folder, embed=encode) as kept:
        assert len(kept) == 200
        line = kept.history()[-1]
        assert (line.kind, line.count, line.reason) == ("forget", 100, "asked to")


def test_forgetting_by_label_example_id_and_time(tickets):
    numbers = tickets.teach(["a one", "b two", "c three", "d four"], ["x", "x", "y", "z"])
    assert tickets.forget(label="x") == 2
    assert tickets.forget(example="c three") == 1
    assert tickets.forget(id=numbers[3]) == 1
    assert tickets.forget(label="x") == tickets.forget(label="never taught") == 0
    time.sleep(0.01)
    between = time.time()
    tickets.teach("e five", "z")
    assert tickets.forget(before="2020-01-01T12:00+01:00") == 0
    assert tickets.forget(after=between, before=between + 60) == 1
    assert tickets.classes() == {}
    with pytest.raises(ValueError, match="nothing to go by"):
        tickets.forget(reason="none")


def test_what_was_undone_can_be_forgotten_too(tmp_path):
    with rarecall.open(tmp_path, embed=encode) as kept:
        kept.teach("a secret", "x", who="anna")
        kept.undo()
        assert len(kept) == 0
        assert kept.forget(who="anna") == 1
    assert b"a secret" not in folder_bytes(tmp_path)


# ---- undo, relabel, correct ----


def test_undo_takes_back_the_last_entry_and_then_the_one_before(tickets):
    tickets.teach("one", "a")
    once = state(tickets)
    tickets.teach("one", "b")
    assert tickets.ask("one").label == "b"
    assert tickets.undo() == 1
    assert tickets.ask("one").label == "a"
    assert state(tickets)["keys"] == once["keys"]
    assert tickets.undo() == 1
    assert tickets.ask("one").label is None
    assert tickets.undo() == 0


def test_undo_by_number_and_undo_of_an_undo(tickets):
    tickets.teach("one", "a")
    tickets.teach("two", "b")
    first = tickets.history()[1].id
    tickets.undo(first)
    assert tickets.classes() == {"b": 1}
    assert tickets.history()[1].undone == tickets.history()[-1].id
    with pytest.raises(ValueError, match="undone already"):
        tickets.undo(first)
    tickets.undo(tickets.history()[-1].id)
    assert tickets.classes() == {"a": 1, "b": 1}
    with pytest.raises(ValueError, match="has entries 1 to"):
        tickets.undo(99)


def test_what_is_forgotten_cannot_be_restored(tickets, caplog):
    tickets.teach("one", "a")
    tickets.forget(label="a")
    with caplog.at_level(logging.WARNING):
        assert tickets.undo() == 0
    assert "gone for good" in caplog.text
    assert len(tickets) == 0


def test_what_was_corrected_is_answered_rightly(tickets):
    random = np.random.default_rng(0)
    texts = [" ".join(random.choice(["card", "lost", "stolen", "my", "the", "where"], 4)) for _ in range(60)]
    tickets.teach(texts, random.choice(["a", "b", "c"], len(texts)))
    for text in texts:
        right = str(random.choice(["a", "b", "c", "d"]))
        tickets.correct(text, right)
        assert tickets.ask(text).label == right
    tickets.correct("never taught before", "new")
    assert tickets.ask("never taught before").label == "new"
    number = tickets.teach("by its number", "a")
    assert tickets.relabel(None, "b", id=number) == 1
    assert tickets.ask("by its number").label == "b"
    with pytest.raises(KeyError):
        tickets.relabel("nobody taught this", "a")


# ---- one writer, many readers ----


def test_ids_that_came_with_keys_are_found_without_an_embedder(tmp_path):
    with rarecall.open(tmp_path / "kept") as kept:
        kept.teach(["id1", "id2", 3], ["a", "b", "c"], keys=np.eye(3))
        assert kept.relabel("id2", "z") == 1
        kept.correct("id9", "y", keys=[0.5, 0.5, 0.0])
        assert kept.forget(example="id1") == kept.forget(example=3) == 1
        assert kept.classes() == {"z": 1, "y": 1}


def test_examples_that_are_embeddings_are_found_by_their_key(tmp_path):
    with rarecall.open(tmp_path / "kept") as kept:
        kept.teach(np.eye(4), ["a", "b", "c", "d"])
        assert kept.relabel(np.eye(4)[0], "z") == 1
        kept.correct(2 * np.eye(4)[1], "y")  # of the same direction
        assert [answer.label for answer in kept.ask(np.eye(4))] == ["z", "y", "c", "d"]
        assert kept.forget(example=np.eye(4)[2]) == 1
        with pytest.raises(ValueError, match="expected one"):
            kept.forget(example=np.eye(4))
        assert kept.classes() == {"d": 1, "z": 1, "y": 1}


def test_several_examples_that_are_relabelled_together_are_all_answered_rightly(tickets):
    texts = [f"a{i} b{i} c{i}" for i in range(20)]
    ids = tickets.teach(texts, ["card"] * 20)
    tickets.teach([f"{text} d" for text in texts], ["other"] * 20)
    assert tickets.relabel(None, "phone", id=ids) == 20
    assert [answer.label for answer in tickets.ask(texts)] == ["phone"] * 20


@pytest.mark.parametrize("capacity", ["grow", 12])
def test_an_undo_finds_other_slots_for_those_that_are_taken(tmp_path, capacity):
    """Their old slots may be of other labels by now; a free one may be the old slot of another of them."""
    with rarecall.open(tmp_path / "kept", capacity=capacity) as kept:
        axes = np.eye(12)
        ids = kept.teach(axes[:4], ["a", "b", "c", "d"])
        kept.relabel(None, "z", id=ids)
        relabelled = kept.entry
        kept.teach(axes[4:6], ["p", "q"])  # in the lowest slots, which were those of a and b
        kept.undo(relabelled)
        assert [answer.label for answer in kept.ask(axes[:6])] == ["a", "b", "c", "d", "p", "q"]
        table = kept._kept.places.table[1:]
        assert len(np.unique(table[:, 0])) == 6


def test_a_second_writer_is_told_who_the_first_is(tickets):
    with pytest.raises(FolderInUse, match=r"taught by process \d+ .*readonly=True"):
        rarecall.open(tickets.folder, embed=encode)


def test_a_follower_sees_within_a_second_what_is_taught(tickets):
    tickets.teach("one", "a")
    with rarecall.open(tickets.folder, embed=encode, readonly=True) as follower:
        assert follower.ask("one").label == "a"
        tickets.teach("two", "b")
        tickets.forget(label="a")
        deadline = time.monotonic() + 5  # a second, on a machine that is not busy
        while follower.classes() != {"b": 1} and time.monotonic() < deadline:
            time.sleep(0.01)
        assert follower.classes() == {"b": 1}
        with pytest.raises(FolderError, match="readonly"):
            follower.teach("three", "c")


def test_another_embedder_is_refused(tickets):
    tickets.teach("one two three", "a")
    tickets.close()
    with pytest.raises(ValueError, match="other_encode is another"):
        rarecall.open(tickets.folder, embed=other_encode)
    rarecall.open(tickets.folder, embed=lambda texts: encode(texts)).close()  # the same by another name


@pytest.mark.parametrize(
    "setting", [{"search": "fast"}, {"reader": "x"}, {"keep": "all"}, {"capacity": 0}, {"expire": -1}]
)
def test_a_setting_that_cannot_be_makes_no_folder(tmp_path, setting):
    with pytest.raises(ValueError, match=f"open got {next(iter(setting))}="):
        rarecall.open(tmp_path / "kept", **setting)
    assert not (tmp_path / "kept").exists()


def test_lists_columns_and_arrays_of_texts_are_many(tickets):
    pandas, texts = pytest.importorskip("pandas"), ["one two", "three four"]
    for each in (texts, tuple(texts), np.array(texts), pandas.Series(texts)):
        assert len(tickets.teach(each, np.array(["a", "b"]))) == 2
        assert [answer.label for answer in tickets.ask(each)] == ["a", "b"]


def test_a_closed_folder_says_so(tickets):
    tickets.close()
    tickets.close()
    for use in (lambda: tickets.teach("one", "a"), lambda: tickets.ask("one"), lambda: tickets.history()):
        with pytest.raises(FolderError, match="was closed"):
            use()


def test_a_folder_of_other_things_is_left_alone(tmp_path):
    (tmp_path / "letter.txt").write_text("dear reader")
    with pytest.raises(FolderError, match="other files"):
        rarecall.open(tmp_path)
    with pytest.raises(FileNotFoundError, match="no journal"):
        rarecall.open(tmp_path, readonly=True)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_a_fixed_capacity_warns_once_and_writes_over_the_oldest(tmp_path):
    with rarecall.open(tmp_path, capacity=4) as kept:
        kept.teach(np.eye(8)[:3], ["a", "b", "c"])
        with pytest.warns(RuntimeWarning, match=r"4 of its 4 slots.*a slot of 'a'.*grow"):
            kept.teach(np.eye(8)[3], "d")
        kept.teach(np.eye(8)[4:6], ["e", "f"])
        assert kept.history()[-1].detail == {"evicted": [["a", 1], ["b", 1]]}
        assert set(kept.classes()) == {"c", "d", "e", "f"}
        kept.undo()
        assert set(kept.classes()) == {"a", "b", "c", "d"}


def test_it_grows(tmp_path):
    keys = np.random.default_rng(0).normal(size=(3000, 8))
    with rarecall.open(tmp_path) as kept:
        kept.teach(keys, np.arange(3000))
        assert len(kept) == 3000
        assert kept.memory.capacity >= 3000
    with rarecall.open(tmp_path) as kept:
        assert [answer.label for answer in kept.ask(keys[::500])] == list(range(0, 3000, 500))


def test_examples_are_listed_newest_first(tickets):
    ids = tickets.teach(["a lost card", "my lost card", "a stolen card"], ["lost", "lost", "stolen"], who="anna")
    assert [each.id for each in tickets.examples()] == ids[::-1]
    assert [(each.example, each.who) for each in tickets.examples("lost", last=1)] == [("my lost card", "anna")]
    assert [each.id for each in tickets.examples("lost", before=ids[1])] == [ids[0]]
    assert [each.label for each in tickets.examples(ids=[ids[2]])] == ["stolen"]
    assert tickets.examples("never taught") == []
    assert tickets.newest(1) == {"lost": [ids[1]], "stolen": [ids[2]]}
    tickets.forget(label="lost")
    assert tickets.newest(1) == {"stolen": [ids[2]]}


def test_a_class_is_renamed_and_classes_become_one(tickets, tmp_path):
    tickets.teach(["a lost card", "where is my purse", "a stolen card"], ["lost", "lost", "stolen"])
    before = tickets.memory.slots()
    assert tickets.rename("lost", "mislaid") == 2
    assert tickets.classes() == {"stolen": 1, "mislaid": 2}
    assert tickets.ask("where is my purse").label == "mislaid"
    after = tickets.memory.slots()
    assert torch.equal(before.keys, after.keys)

    tickets.rename("mislaid", "stolen")
    assert tickets.classes() == {"stolen": 3}
    assert tickets.undo() == 2
    assert tickets.undo() == 2
    assert tickets.classes() == {"lost": 2, "stolen": 1}
    assert torch.equal(tickets.memory.slots().values, before.values)
    with pytest.raises(KeyError, match="nothing that is taught as 'nowhere'"):
        tickets.rename("nowhere", "somewhere")

    tickets.rename("lost", "gone")
    was = state(tickets)
    tickets.close()
    with rarecall.open(tmp_path / "tickets", embed=encode) as again:
        assert state(again) == was
