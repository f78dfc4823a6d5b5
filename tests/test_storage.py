import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest
import safetensors.torch
import torch

from examples.own_search import HashSearch
from rarecall import AutoSearch, ExactSearch, Memory, storage
from tests.helpers import assert_same, ids, snapshot, teach, train, unit


@pytest.fixture(params=["exact", "hash"])
def memory(request) -> Memory:
    memory = Memory(key_size=16, capacity=200, k=5, margin=0.2, age_noise=3.0, search=request.param)
    train(memory, 10, seed=0)
    memory.forget(value=3)
    return memory


def test_a_run_saved_and_resumed_equals_a_run_that_never_stopped(memory, tmp_path) -> None:
    memory.save(tmp_path / "memory.safetensors")
    resumed = Memory.load(tmp_path / "memory.safetensors")
    assert repr(resumed) == repr(memory)
    assert_same(snapshot(memory), snapshot(resumed))
    for seed in (1, 2):
        train(memory, 40, seed=seed)
        train(resumed, 40, seed=seed)
        resumed.save(tmp_path / "again.safetensors")
        resumed = Memory.load(tmp_path / "again.safetensors")
        assert_same(snapshot(memory), snapshot(resumed))


def test_slots_that_were_never_written_take_no_room(tmp_path) -> None:
    memory = Memory(key_size=64, capacity=100_000)
    teach(memory, unit(10, 64), torch.arange(10))
    memory.save(tmp_path / "memory.safetensors")
    assert (tmp_path / "memory.safetensors").stat().st_size < 10_000
    assert_same(snapshot(memory), snapshot(Memory.load(tmp_path / "memory.safetensors")))


def test_the_file_is_safetensors_with_a_version_and_the_settings(memory, tmp_path) -> None:
    memory.save(tmp_path / "memory.safetensors")
    with safetensors.safe_open(tmp_path / "memory.safetensors", framework="pt") as file:
        header = file.metadata()
    assert header["format"] == "rarecall.memory"
    assert header["version"] == "2"
    settings = json.loads(header["settings"])
    assert settings["capacity"] == 200
    assert settings["margin"] == 0.2


def test_a_search_keeps_its_settings(tmp_path) -> None:
    for search in (HashSearch(8, 100, tables=3, bits=5), AutoSearch(8, 100, target_recall=0.8)):
        Memory(8, 100, search=search).save(tmp_path / "memory.safetensors")
        loaded = Memory.load(tmp_path / "memory.safetensors").search
        assert type(loaded) is type(search)
        assert loaded.settings() == search.settings()


def test_a_search_of_ones_own_is_passed_when_loading(tmp_path) -> None:
    class MySearch(ExactSearch):
        pass

    memory = Memory(4, 8, search=MySearch(4, 8))
    teach(memory, torch.eye(4), ids(1, 2, 3, 4))
    memory.save(tmp_path / "memory.safetensors")
    with pytest.raises(ValueError, match=r"search of type 'MySearch'.*search=MySearch\(\.\.\.\)"):
        Memory.load(tmp_path / "memory.safetensors")
    loaded = Memory.load(tmp_path / "memory.safetensors", search=MySearch(4, 8))
    assert loaded(torch.eye(4)).value.tolist() == [1, 2, 3, 4]


def test_a_failed_save_leaves_the_old_file_and_nothing_else(memory, tmp_path, monkeypatch) -> None:
    path = tmp_path / "memory.safetensors"
    memory.save(path)
    old = path.read_bytes()
    train(memory, 5, seed=1)

    def fail(*args: object, **kwargs: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        memory.save(path)
    assert path.read_bytes() == old
    assert os.listdir(tmp_path) == [path.name]


def test_a_kill_at_any_moment_leaves_the_old_file_or_the_new_one(tmp_path) -> None:
    path = tmp_path / "memory.safetensors"
    code = textwrap.dedent(f"""
        import torch
        from rarecall import Memory
        memory = Memory(key_size=64, capacity=4000)
        memory.update(memory(torch.randn(4000, 64)), torch.zeros(4000, dtype=torch.int64))
        memory.save({str(path)!r})
        print("saved", flush=True)
        while True:
            memory.values += 1  # every slot of one file has one value
            memory.save({str(path)!r})
    """)
    for wait in (0.01, 0.05):
        writer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert writer.stdout.readline() == "saved\n"
        try:
            writer.wait(wait)
        except subprocess.TimeoutExpired:
            writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        assert len(Memory.load(path).values.unique()) == 1


class TestErrors:
    def test_no_file(self, tmp_path) -> None:
        with pytest.raises(FileNotFoundError, match="There is no file"):
            Memory.load(tmp_path / "nothing")

    def test_no_folder(self, memory, tmp_path) -> None:
        with pytest.raises(FileNotFoundError, match="no folder"):
            memory.save(tmp_path / "nowhere" / "memory.safetensors")

    @pytest.mark.parametrize("keep", [0, 4, 100, 0.5, 0.999])
    def test_a_truncated_file(self, memory, tmp_path, keep) -> None:
        path = tmp_path / "memory.safetensors"
        memory.save(path)
        whole = path.read_bytes()
        path.write_bytes(whole[: int(keep * len(whole)) if isinstance(keep, float) else keep])
        with pytest.raises(ValueError, match="not a whole safetensors file"):
            Memory.load(path)

    def test_a_foreign_file(self, tmp_path) -> None:
        path = tmp_path / "foreign"
        path.write_text("hello, I am a text and not a memory")
        with pytest.raises(ValueError, match="not a whole safetensors file"):
            Memory.load(path)
        safetensors.torch.save_file({"weight": torch.zeros(3)}, path)
        with pytest.raises(ValueError, match=r"has the format 'none'; expected 'rarecall\.memory'"):
            Memory.load(path)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"version": "3"}, "version '3' of the format; this rarecall reads version 2. Install"),
            ({"version": "new"}, "version 'new' of the format"),
            ({"settings": '{"key_size": 4}'}, "checksum is wrong"),
            ({"checksum": "0"}, "checksum is wrong"),
        ],
    )
    def test_another_header(self, memory, tmp_path, change, message) -> None:
        path = tmp_path / "memory.safetensors"
        memory.save(path)
        with safetensors.safe_open(path, framework="pt") as file:
            header = file.metadata()
        safetensors.torch.save_file(safetensors.torch.load_file(path), path, metadata=header | change)
        with pytest.raises(ValueError, match=message.replace(".", r"\.")):
            Memory.load(path)

    @pytest.mark.parametrize("settings", ['{"key_size": 4}', "nonsense", "[]", '{"search": 1, "search_settings": 2}'])
    def test_other_settings(self, memory, tmp_path, settings) -> None:
        path = tmp_path / "memory.safetensors"
        memory.save(path)
        tensors, header = storage.read(path, kind="memory")
        storage.write(path, tensors, kind="memory", header=header | {"settings": settings})
        with pytest.raises(ValueError, match="settings that this version"):
            Memory.load(path)

    @pytest.mark.parametrize("name", ["keys", "values", "times"])
    def test_tensors_that_do_not_fit_the_settings(self, memory, tmp_path, name) -> None:
        path = tmp_path / "memory.safetensors"
        memory.save(path)
        tensors, header = storage.read(path, kind="memory")
        for damaged in (tensors | {name: torch.zeros(300, 3)}, {k: t for k, t in tensors.items() if k != name}):
            storage.write(path, damaged, kind="memory", header=header)
            with pytest.raises(ValueError, match="does not hold the tensors that its settings announce"):
                Memory.load(path)
