"""Memory against the naive reference, on random streams of showing, asking and forgetting."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rarecall import Memory
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
steps = st.one_of(
    st.lists(shown, min_size=1, max_size=6),
    st.tuples(st.sampled_from(["value", "source", "slots"]), st.integers(0, 4)),
)


@pytest.mark.parametrize("search", ["exact", "lsh"])
@given(
    stream=st.lists(steps, min_size=1, max_size=20),
    capacity=st.integers(6, 9),
    k=st.integers(1, 12),
    age_noise=st.sampled_from([0.0, 1.0, 2.5, 8.0]),
)
def test_a_stream_follows_the_rules_of_the_paper(search, stream, capacity, k, age_noise) -> None:
    torch.manual_seed(0)
    memory = Memory(KEY_SIZE, capacity, k=k, age_noise=age_noise, search=search)  # so small that LSH finds all
    reference = ReferenceMemory(capacity, k)
    for step in stream:
        if isinstance(step, tuple):
            forget(memory, reference, *step)
        else:
            show(memory, reference, step, age_noise)
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


def show(memory: Memory, reference: ReferenceMemory, batch: list, age_noise: float) -> None:
    query, target, source, mask, exclude = zip(*batch, strict=True)
    recall = memory(torch.tensor(np.stack(query)), exclude=torch.tensor(exclude))
    for i in range(len(batch)):
        found = [x[i].numpy() for x in (recall.slots, recall.similarities, recall.values, recall.weights)]
        reference.check_neighbours(query[i], exclude[i], *found)

    losses = [
        reference.loss(query[i], target[i], exclude[i], recall.slots[i].tolist()) for i in range(len(batch)) if mask[i]
    ]
    low = [min(loss) for loss in losses if loss]
    high = [max(loss) for loss in losses if loss]
    loss = memory.loss(recall, torch.tensor(target), mask=torch.tensor(mask)).item()
    if low:
        assert np.mean(low) - 1e-5 <= loss <= np.mean(high) + 1e-5
    else:
        assert loss == 0

    taking_part = [i for i in range(len(batch)) if mask[i]]
    nearest = recall.slots[:, 0].tolist()
    missed = [i for i in taking_part if recall.value[i] != target[i]]
    before = {i: (slot.key, slot.value, slot.source) for i, slot in reference.slots.items()}
    memory.update(recall, torch.tensor(target), source=torch.tensor(source), mask=torch.tensor(mask))
    written = find_written(memory, before, [(query[i], target[i], source[i]) for i in missed])
    reference.update(
        [query[i] for i in taking_part],
        [target[i] for i in taking_part],
        [source[i] for i in taking_part],
        [nearest[i] for i in taking_part],
        age_noise,
        written,
    )


def find_written(memory: Memory, before: dict, missed: list) -> list[int]:
    """Into which slots the missed queries went: of those of age 0 with the same key, value and source, one each."""
    free = {i for i in range(memory.capacity) if memory.ages[i] == 0}

    def holds(i: int, query: np.ndarray, value: int, source: int) -> bool:
        same = int(memory.values[i]) == value and int(memory.sources[i]) == source
        return same and np.allclose(memory.keys[i].numpy(), query, atol=1e-5)

    written = []
    for query, value, source in missed:
        matches = [i for i in free if holds(i, query, value, source)]
        assert matches, "a miss was written nowhere"
        # A slot that held the very same before may have been confirmed rather than written.
        chosen = min(matches, key=lambda i: i in before and holds(i, *before[i]))
        free.remove(chosen)
        written.append(chosen)
    return written


def compare(memory: Memory, reference: ReferenceMemory) -> None:
    assert len(memory) == len(reference.slots)
    for i in range(memory.capacity):
        if i in reference.slots:
            slot = reference.slots[i]
            assert (memory.values[i], memory.sources[i], memory.ages[i]) == (slot.value, slot.source, slot.age)
            np.testing.assert_allclose(memory.keys[i].numpy(), slot.key, atol=1e-5)
        else:
            assert (memory.values[i], memory.sources[i], memory.ages[i]) == (-1, -1, -1)
