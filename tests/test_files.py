"""Files as a file system and a careless world treat them: modes, links, kills, and bytes that changed."""

import json
import os
import random
import resource
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rarecall import Memory, storage
from tests.helpers import SEARCHES, assert_same, check_found, ids, snapshot, teach, train, unit
from tests.processes import CONTEXT, in_a_process


def taught(search: str = "exact", seed: int = 0) -> Memory:
    memory = Memory(key_size=8, capacity=40, k=3, search=search)
    train(memory, 6, seed=seed)
    memory.forget(value=3)
    return memory


class TestTheFile:
    @pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
    def test_a_new_one_has_the_mode_of_the_umask(self, tmp_path, umask, mode) -> None:
        before = os.umask(umask)
        try:
            taught().save(tmp_path / "memory")
        finally:
            os.umask(before)
        assert stat.S_IMODE((tmp_path / "memory").stat().st_mode) == mode

    @pytest.mark.parametrize("mode", [0o640, 0o600, 0o666])
    def test_one_that_is_replaced_keeps_its_mode(self, tmp_path, mode) -> None:
        path = tmp_path / "memory"
        taught().save(path)
        path.chmod(mode)
        memory = taught(seed=1)
        memory.save(path)
        assert stat.S_IMODE(path.stat().st_mode) == mode
        assert_same(snapshot(memory), snapshot(Memory.load(path)))

    @pytest.mark.parametrize("relative", [True, False])
    @pytest.mark.parametrize("there", [True, False])
    def test_a_link_is_followed_and_stays(self, tmp_path, relative, there) -> None:
        (tmp_path / "disk").mkdir()
        target, link = tmp_path / "disk" / "memory", tmp_path / "link"
        link.symlink_to(Path("disk") / "memory" if relative else target)
        if there:
            taught().save(target)
        memory = taught(seed=1)
        memory.save(link)
        assert link.is_symlink()
        assert not target.is_symlink()
        for path in (link, target):
            assert_same(snapshot(memory), snapshot(Memory.load(path)))
        assert sorted(os.listdir(tmp_path)) == ["disk", "link"]
        assert os.listdir(tmp_path / "disk") == ["memory"]


def save_until_killed(path: str, at_the_end: bool) -> None:
    memory = Memory(key_size=64, capacity=2000)
    memory.update(memory(unit(2000, 64)), torch.arange(2000))
    if at_the_end:  # just before the whole file gets its name
        os.replace = os.rename = os.link = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
    while True:
        memory.save(path)


def kill_while_saving(path: Path, wait: float | None) -> None:
    process = CONTEXT.Process(target=save_until_killed, args=(str(path), wait is None))
    process.start()
    process.join(30 if wait is None else wait)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def test_what_killed_saves_leave_is_gone_after_the_next_one(tmp_path) -> None:
    path, other = tmp_path / "memory", tmp_path / "memory.backup"
    memory = taught()
    for saved in (path, other):
        memory.save(saved)
    (tmp_path / ".memory.notes").write_text("a file of the user's")
    for wait in (None, None, 0.3, 0.33, 0.36):
        kill_while_saving(path, wait)
    memory.save(path)
    assert sorted(os.listdir(tmp_path)) == [".memory.notes", "memory", "memory.backup"]
    for saved in (path, other):
        assert_same(snapshot(memory), snapshot(Memory.load(saved)))


def save_often(path: str, seed: int) -> None:
    memory = taught(seed=seed)
    for _ in range(60):
        memory.save(path)
        Memory.load(path)


def test_two_processes_may_save_to_one_path(tmp_path) -> None:
    """Neither takes what the other is writing for what a kill has left."""
    path = tmp_path / "memory"
    processes = [CONTEXT.Process(target=save_often, args=(str(path), seed)) for seed in (1, 2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert os.listdir(tmp_path) == ["memory"]
    loaded = snapshot(Memory.load(path))
    assert any(torch.equal(loaded["keys"], taught(seed=seed).keys) for seed in (1, 2))


def flip_bits(search: str, path: str, flips: int) -> tuple[int, int]:
    """Flips one bit of the file at a time, half of them in the header; returns how many were refused and how many not.

    What is not refused has to be harmless: it is the same memory.
    """
    memory = taught(search)
    memory.save(path)
    whole = Path(path).read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    before, description, query = snapshot(memory), repr(memory), unit(10, 8)
    slots, chance, refused = memory(query).slots, random.Random(0), 0
    for flip in range(flips):
        at = chance.randrange(header) if flip % 2 else chance.randrange(header, len(whole))
        damaged = bytearray(whole)
        damaged[at] ^= 1 << chance.randrange(8)
        Path(path).write_bytes(damaged)
        try:
            loaded = Memory.load(path)
        except ValueError:
            refused += 1
            continue
        assert at < header, f"a flipped bit of the tensors, at byte {at}, was not refused"
        assert repr(loaded) == description
        assert_same(before, snapshot(loaded))
        assert torch.equal(loaded(query).slots, slots)
    return refused, flips - refused


@pytest.mark.parametrize("search", SEARCHES)
def test_a_flipped_bit_is_refused_or_harmless(search, tmp_path) -> None:
    refused, harmless = in_a_process(flip_bits, search, str(tmp_path / "memory"), 200)
    assert refused > 0.9 * (refused + harmless)


@pytest.mark.slow
@pytest.mark.parametrize("search", SEARCHES)
def test_any_flipped_bit_is_refused_or_harmless(search, tmp_path) -> None:
    in_a_process(flip_bits, search, str(tmp_path / "memory"), 20_000, timeout=600.0)


def rewrite(path: Path, tensors: Callable[[dict[str, Tensor]], object], settings: dict[str, Any] | None = None) -> None:
    """Writes a file anew as a program of another's would: whole, with right checksums, and wrong in what it says."""
    held, header = storage.read(path, kind="memory")
    tensors(held)
    changed = json.dumps(json.loads(header["settings"]) | (settings or {}))
    storage.write(path, held, kind="memory", header={"settings": changed})


def row(name: str, value: float) -> Callable[[dict[str, Tensor]], object]:
    return lambda tensors: tensors[name].view(-1)[:1].fill_(value)


def shorter(name: str) -> Callable[[dict[str, Tensor]], object]:
    return lambda tensors: tensors.update({name: tensors[name][:-1].clone()})


def longer(tensors: dict[str, Tensor]) -> None:
    for name in ("keys", "values", "sources", "counts", "times"):
        tensors[name] = torch.cat([tensors[name]] * 10)


def nothing(tensors: dict[str, Tensor]) -> None:
    pass


WRONG: dict[str, tuple[Callable[[dict[str, Tensor]], object], dict[str, Any], str]] = {
    "a huge key": (lambda tensors: tensors["keys"][0].mul_(1e35), {}, "key"),
    "a key of zeros": (lambda tensors: tensors["keys"][0].zero_(), {}, "key"),
    "a key of length 1.01": (lambda tensors: tensors["keys"][0].mul_(1.01), {}, "key"),
    "a key of nan": (lambda tensors: tensors["keys"][0].fill_(float("nan")), {}, "key"),
    "a time past the end of time": (row("times", 2**63 - 1), {}, "time"),
    "a time later than now": (lambda tensors: tensors["times"][0].copy_(tensors["now"] + 1), {}, "time"),
    "a filled slot without a time": (row("times", -1), {}, "time"),
    "a time below -1": (row("times", -2), {}, "time"),
    "a negative now": (row("now", -5), {}, "now|time"),
    "a now past the end of time": (row("now", 2**63 - 1), {}, "now|time"),
    "a value below -1": (row("values", -2), {}, "value"),
    "the least value": (row("values", -(2**63)), {}, "value"),
    "a source below -1": (row("sources", -2), {}, "source"),
    "a negative count": (row("counts", -1), {}, "count"),
    "a filled slot that stands for nothing": (row("counts", 0), {}, "count"),
    "fewer keys than values": (shorter("keys"), {}, "slot|keys"),
    "fewer values than keys": (shorter("values"), {}, "slot|values"),
    "fewer times than keys": (shorter("times"), {}, "slot|times"),
    "fewer counts than keys": (shorter("counts"), {}, "slot|counts"),
    "more slots than the capacity": (longer, {}, "keys|slots|capacity"),
    "no keys": (lambda tensors: tensors.pop("keys"), {}, "key"),
    "values of another type": (lambda tensors: tensors.update(values=tensors["values"].float()), {}, "values"),
    "another key size": (nothing, {"key_size": 7}, "key"),
    "a capacity of fewer slots": (nothing, {"capacity": 3}, "capacity|keys|slots"),
    "too many neighbours": (nothing, {"k": 2**61}, "k="),
    "no neighbours": (nothing, {"k": 0}, "k="),
    "a negative margin": (nothing, {"margin": -1.0}, "margin"),
    "a margin that is no number": (nothing, {"margin": "wide"}, "margin|settings"),
    "a capacity that is no number": (nothing, {"capacity": None}, "capacity|settings"),
    "a key size past all bounds": (nothing, {"key_size": 2**62}, "key|slots"),
    "a setting that there is not": (nothing, {"colour": 3}, "colour|settings"),
}


def load_wrong_files(search: str, path: str) -> None:
    for name, (tensors, settings, message) in WRONG.items():
        taught(search).save(path)
        rewrite(Path(path), tensors, settings)
        print(name)  # pytest shows it where this fails
        with pytest.raises(ValueError, match=rf"(?s)(?=.*({message}))(?=.{{30}})"):  # a sentence that names it
            Memory.load(path)


@pytest.mark.parametrize("search", SEARCHES)
def test_a_file_that_says_what_cannot_be_is_refused(search, tmp_path) -> None:
    in_a_process(load_wrong_files, search, str(tmp_path / "memory"))


def load_announced(path: str) -> int:
    """How many bytes more than before the process had at most, in vain."""
    room = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + 2**30
    resource.setrlimit(resource.RLIMIT_AS, (room, room))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=r"capacity|slots"):
        Memory.load(path)
    return 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)


@pytest.mark.parametrize("search", SEARCHES)
def test_a_small_file_that_announces_many_slots_is_refused_before_they_are_made(search, tmp_path) -> None:
    path = tmp_path / "memory"
    memory = Memory(32, 40, k=3, search=search)
    teach(memory, unit(2, 32), ids(1, 2))
    memory.save(path)
    rewrite(path, nothing, {"capacity": 10**8})
    assert in_a_process(load_announced, str(path)) < 100 * 2**20


@pytest.mark.parametrize("search", ["exact", "auto"])
def test_a_file_may_be_loaded_with_another_capacity(search, tmp_path) -> None:
    memory = taught(search)
    memory.save(tmp_path / "memory")
    larger = Memory.load(tmp_path / "memory", capacity=100)
    assert larger.capacity == 100
    assert torch.equal(larger.values[:40], memory.values)
    check_found(larger)
    train(larger, 20, seed=1)
    check_found(larger)
    with pytest.raises(ValueError, match=r"capacity|slots|keys"):
        Memory.load(tmp_path / "memory", capacity=2)
