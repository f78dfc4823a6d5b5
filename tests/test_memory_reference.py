"""Memory against the naive reference, on random streams of showing, asking and forgetting."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rarecall import Memory, backend
from tests.helpers import BACKENDS, SEARCHES, using
from tests.reference import ReferenceMemory

KEY_SIZE = 4
# Half of the vectors come from a few directions, so that equal keys, ties and opposite queries are common.
CORNERS = [np.array(v, dtype=np.float64) for v in ([1, 0, 0, 0], [0, 1, 0, 0], [0.5, 0.5, 0.5, 0.5], [-1, 0, 0, 0])]


@st.composite
def queries(draw: st.DrawFn) -> np.ndarray:
    if draw(st.booleans()):
        return draw(st.sampled_from(CORNERS))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    vector = rng.normal(size=KEY_SIZE)
    return vector / np.linalg.norm(vector)


shown = st.tuples(queries(), st.integers(0, 4), st.integers(-1, 5), st.booleans(), st.integers(-1, 5))
# Which of the optional arguments are given; without any, too.
options = st.sets(st.sampled_from(["gradient", "mask", "source", "exclude"]))
steps = st.one_of(
    st.tuples(st.just("show"), st.lists(shown, min_size=1, max_size=6), options),
    st.tuples(st.sampled_from(["value", "source", "slots"]), st.integers(0, 4)),
)


@pytest.mark.parametrize("search", SEARCHES)  # the memory is so small that all of them find all
@pytest.mark.parametrize("name", BACKENDS)
@settings(max_examples=40)
@given(
    stream=st.lists(steps, min_size=1, max_size=20),
    capacity=st.integers(6, 9),
    k=st.integers(1, 12),
    age_noise=st.sampled_from([0.0, 1.0, 2.5, 8.0]),
    averaging=st.sampled_from(["half", "count"]),
)
def test_a_stream_follows_the_rules_of_the_paper(name, search, stream, capacity, k, age_noise, averaging) -> None:
    if name == "native" and backend.extension() is None:
        pytest.skip("the extension was not built")
    torch.manual_seed(0)
    with using(name) as new_memory:
        memory = new_memory(KEY_SIZE, capacity, k=k, age_noise=age_noise, averaging=averaging, search=search)
        # "auto" reads similarities off copies of the keys, of two bytes a number.
        tolerance = 4e-5 if (name, search) == ("native", "auto") else 1e-5
        reference = ReferenceMemory(capacity, k, tolerance=tolerance, averaging=averaging)
        for kind, *step in stream:
            if kind == "show":
                show(memory, reference, *step, age_noise)
            else:
                forget(memory, reference, kind, *step)
            compare(memory, reference)


def forget(memory: Memory, reference: ReferenceMemory, what: str, which: int) -> None:
    chosen = {
        i
        for i, slot in reference.slots.items()
        if which == {"value": slot.value, "source": slot.source, "slots": i}[what]
    }
    assert memory.forget(**{what: which}) == len(chosen)
    for i in chosen:
        del reference.slots[i]


def show(memory: Memory, reference: ReferenceMemory, batch: list, given: set[str], age_noise: float) -> None:
    query, target, source, mask, exclude = (list(column) for column in zip(*batch, strict=True))
    every = range(len(batch))
    source = source if "source" in given else [-1] * len(batch)
    mask = mask if "mask" in given else [True] * len(batch)
    exclude = exclude if "exclude" in given else [-1] * len(batch)
    asked = torch.tensor(np.stack(query), dtype=memory.keys.dtype, requires_grad="gradient" in given)
    recall = memory(asked, exclude=torch.tensor(exclude)) if "exclude" in given else memory(asked)
    assert recall.similarities.requires_grad == ("gradient" in given)
    tensors = (recall.slots, recall.similarities, recall.values, recall.weights)
    for i in every:
        found = [tensor[i].detach().numpy() for tensor in tensors]
        reference.check_neighbours(query[i], exclude[i], *found, memory.keys.numpy())

    taking_part = [i for i in every if mask[i]]

    def those(column: list) -> list:
        return [column[i] for i in taking_part]

    expected, gradient = reference.loss(
        np.stack(query)[taking_part], those(target), those(exclude), those(recall.slots.tolist())
    )
    masked = {"mask": torch.tensor(mask)} if "mask" in given else {}
    loss = memory.loss(recall, torch.tensor(target), **masked)
    assert loss.item() == pytest.approx(expected, abs=2 * reference.tolerance)
    if "gradient" in given:
        loss.backward()
        if gradient is not None:
            np.testing.assert_allclose(asked.grad[taking_part].numpy(), gradient, atol=1e-4)
        assert (asked.grad[[i for i in every if not mask[i]]] == 0).all()

    nearest = recall.slots[:, 0].tolist()
    missed = [i for i in taking_part if recall.value[i] != target[i]]
    before = {i: (slot.key, slot.value, slot.source) for i, slot in reference.slots.items()}
    sourced = {"source": torch.tensor(source)} if "source" in given else {}
    memory.update(recall, torch.tensor(target), **sourced, **masked)
    written = find_written(memory, before, [(query[i], target[i], source[i]) for i in missed])
    reference.update(those(query), those(target), those(source), those(nearest), age_noise, written)


def find_written(memory: Memory, before: dict, missed: list) -> list[int]:
    """Into which slots the missed queries went: of those of age 0 with the same key, value and source, one each."""
    free = {i for i in range(memory.capacity) if memory.ages[i] == 0}

    def holds(i: int, query: np.ndarray, value: int, source: int) -> bool:
        same = int(memory.values[i]) == value and int(memory.sources[i]) == source
        return same and np.allclose(memory.keys[i].numpy(), query, atol=1e-5)

    written = []
    for query, value, source in missed:
        matches = [i for i in free if holds(i, query, value, source) and memory.counts[i] == 1]
        assert matches, "a miss was written nowhere"
        # A slot that held the very same before may have been confirmed rather than written.
        chosen = min(matches, key=lambda i: i in before and holds(i, *before[i]))
        free.remove(chosen)
        written.append(chosen)
    return written


def compare(memory: Memory, reference: ReferenceMemory) -> None:
    assert len(memory) == len(reference.slots)
    assert memory.now == reference.now
    for i in range(memory.capacity):
        held = tuple(int(part[i]) for part in (memory.values, memory.sources, memory.counts, memory.times, memory.ages))
        if i in reference.slots:
            slot = reference.slots[i]
            assert held == (slot.value, slot.source, slot.count, slot.time, reference.age(i))
            np.testing.assert_allclose(memory.keys[i].numpy(), slot.key, atol=1e-5)
        else:
            assert held == (-1, -1, 0, -1, -1)
            assert (memory.keys[i] == 0).all()
