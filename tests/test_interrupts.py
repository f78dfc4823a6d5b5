"""Ctrl-C at any moment: it is raised, and what it stopped is done wholly or not at all."""

import random
import signal
import time
from collections.abc import Callable

import pytest
import torch

from tests.helpers import check_found, teach, unit, using
from tests.processes import in_a_process

SIZE = 16


def interrupt(call: Callable[[], object], after: float) -> None:
    """Calls, and raises KeyboardInterrupt `after` so many seconds, be it during the call or later."""
    came = False

    def raise_it(*_: object) -> None:
        nonlocal came
        came = True
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, raise_it)
    try:
        signal.setitimer(signal.ITIMER_REAL, after)
        call()
        assert not came, "KeyboardInterrupt was lost"
        while True:
            time.sleep(1)
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)  # where the call itself has failed


def typical(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    for _ in range(5):
        call()
    return (time.perf_counter() - start) / 5


def interrupt_often(backend: str, search: str, small: int | None, times: int) -> None:
    chance = random.Random(0)
    with using(backend, small) as new_memory:
        memory = new_memory(SIZE, 600, k=4, search=search)
        for _ in range(3):
            teach(memory, unit(200, SIZE), torch.arange(200))
        value = 1000

        def update() -> None:
            teach(memory, unit(8, SIZE), torch.arange(value, value + 8))

        def forget() -> None:
            memory.forget(slots=torch.arange(value % 600, value % 600 + 40) % 600)

        def write() -> None:
            memory.write(unit(20, SIZE), torch.arange(value, value + 20))

        changes = {change: typical(change) for change in (update, forget, write)}
        for step in range(times):
            value += 100
            change, duration = chance.choice(list(changes.items()))
            before = {name: getattr(memory, name).clone() for name in ("keys", "values", "times")}
            interrupt(change, after=max(chance.random() * 1.5 * duration, 1e-6))
            new = int((memory.values >= value).sum())
            assert new in {update: (0, 8), write: (0, 20), forget: (0,)}[change], "half of it was done"
            if new == 0 and change is not forget:
                assert all(torch.equal(getattr(memory, name), tensor) for name, tensor in before.items())
            if change is forget:
                at = torch.arange(value % 600, value % 600 + 40) % 600
                emptied = int((memory.values[at] < 0).sum())
                assert emptied in (40, int((before["values"][at] < 0).sum())), "half of it was forgotten"
            if step % 10 == 9:
                check_found(memory, share=0.97 if search == "auto" and small == 0 else 1.0)


CASES = [("exact", 0), ("hash", 0), ("auto", 0), ("auto", None)]


@pytest.mark.parametrize("backend", ["native", "torch"])
@pytest.mark.parametrize(("search", "small"), CASES)
def test_nothing_is_lost(backend, search, small) -> None:
    in_a_process(interrupt_often, backend, search, small, 80)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["native", "torch", "float64"])
@pytest.mark.parametrize(("search", "small"), CASES)
def test_nothing_is_lost_in_thousands(backend, search, small) -> None:
    in_a_process(interrupt_often, backend, search, small, 5000, timeout=300.0)
