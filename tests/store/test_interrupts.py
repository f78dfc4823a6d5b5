"""Ctrl-C at any line: what it stopped is done wholly or not at all, and the folder goes on."""

import random
import sys
from pathlib import Path

import pytest

import rarecall
from rarecall.store.check import check
from tests.store.life import everything, open_folder, step

CODE = tuple(str(Path(rarecall.__file__).parent / part) for part in ("kept", "store"))


def interrupted(call, line):
    """Call, and raise KeyboardInterrupt at the so many-th line of the product; return whether it came to that."""
    left = line

    def trace(frame, event, _):
        nonlocal left
        if not frame.f_code.co_filename.startswith(CODE):
            return None
        left -= event == "line"
        if event == "line" and left == 0:
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


@pytest.mark.parametrize("seed", range(3))
def test_a_folder_goes_on_after_ctrl_c(tmp_path, seed):
    chance, came = random.Random(seed), 0
    with open_folder(tmp_path / "kept", capacity=chance.choice(["grow", 20])) as kept:
        for number in range(60):
            came += interrupted(lambda number=number: step(kept, number, seed), chance.randrange(1, 160))
            kept.teach(f"word{number} goes on", "lost")
            assert kept.ask(f"word{number} goes on").label == "lost"
        expected = everything(kept)
    assert came > 20
    assert not check(tmp_path / "kept").problems
    with open_folder(tmp_path / "kept", readonly=True) as again:
        assert everything(again) == expected
