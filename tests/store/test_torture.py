"""Killed, cut and damaged in short; `make torture` does it for long."""

import os
import resource
import shutil
import subprocess
from contextlib import contextmanager

import pytest

from rarecall.store import FolderError
from rarecall.store.check import check
from tests.store import torture
from tests.store.life import everything, open_folder, step


def can_trace():
    return (
        shutil.which("strace")
        and subprocess.run(["strace", "-f", "--seccomp-bpf", "-o", "/dev/null", "true"], check=False).returncode == 0
    )


def lived(folder, steps=40):
    with open_folder(folder) as kept:
        for number in range(steps):
            step(kept, number)
        return everything(kept)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_what_was_acknowledged_survives_kills():
    assert torture.kill(12)["kills"] >= 10


@pytest.mark.skipif(not can_trace(), reason="strace cannot be run here")
def test_what_was_acknowledged_survives_a_stop_at_any_write():
    assert torture.stop(5, share=0.1)["writes and syncs"] > 30


def test_damage_is_noticed_or_harmless():
    assert sum(torture.flip(100).values()) == 100


@contextmanager
def no_file_larger_than(size):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_without_room_nothing_is_taught_and_nothing_is_lost(tmp_path):
    with open_folder(tmp_path / "kept") as kept:
        kept.teach("one", "a")
        before = everything(kept)
        with no_file_larger_than(4096):
            for _ in range(3):
                with pytest.raises((OSError, FolderError)):
                    kept.teach(["two"] * 100, "b")
            assert everything(kept) == before
            kept.compact()  # it has no room either, and says so in the log
        kept._kept.journal._db.execute("PRAGMA max_page_count = 10")  # what SQLite says of a full disk
        with pytest.raises(OSError, match="disk is full: nothing was written"):
            kept.teach(["three " * 1000] * 100, "b")
        kept._kept.journal._db.execute("PRAGMA max_page_count = 1000000")
        assert everything(kept) == before
        kept.teach("four", "c")
        after = everything(kept)
    with open_folder(tmp_path / "kept") as kept:
        assert everything(kept) == after


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_folder_that_cannot_be_written_to_can_be_asked():
    folder = torture.Path(torture.tempfile.mkdtemp())
    expected = lived(folder / "kept")
    for path in (folder, folder / "kept"):
        path.chmod(0o755)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setuid(65534)
            with open_folder(folder / "kept", readonly=True) as kept:
                same = everything(kept) == expected
            try:
                open_folder(folder / "kept")
            except FolderError as error:
                code = 0 if same and "readonly=True" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    shutil.rmtree(folder)


def test_a_whole_folder_is_found_whole_and_rebuilding_changes_nothing(tmp_path):
    folder = tmp_path / "kept"
    expected = lived(folder, 80)
    report = check(folder)
    assert report.problems == []
    assert report.figures["entries"] > 40
    assert 0 < report.figures["forgotten"] < report.figures["examples"]
    size = (folder / "journal.sqlite").stat().st_size
    assert check(folder, rebuild=True).problems == []
    assert (folder / "journal.sqlite").stat().st_size <= size
    with open_folder(folder) as kept:
        assert everything(kept) == expected


def test_a_check_finds_what_opening_does_not_read_and_a_rebuild_gives_it_up(tmp_path):
    folder = tmp_path / "kept"
    with open_folder(folder) as kept:
        kept.teach([f"text nr{i}x" for i in range(50)], [i % 3 for i in range(50)])
    data = (folder / "journal.sqlite").read_bytes()
    (folder / "journal.sqlite").write_bytes(data.replace(b"text nr40x", b"text nr41x", 1))
    with open_folder(folder) as kept:  # the snapshot has its key
        assert kept.ask("text nr40x").label == 1
        with pytest.raises(FolderError, match="example 41"):
            kept.ask("text nr40x").because  # noqa: B018
    assert "1 examples cannot be read: [41]" in check(folder).problems[0]
    report = check(folder, rebuild=True)
    assert report.problems == []
    assert "forgotten" in report.repaired[0]
    with open_folder(folder) as kept:
        assert len(kept) == 49


def test_a_lost_log_is_noticed_and_can_be_done_without(tmp_path):
    folder, copy = tmp_path / "kept", tmp_path / "copy"
    with open_folder(folder) as kept:
        for number in range(30):
            step(kept, number)
        shutil.copytree(folder, copy)
    (copy / "journal.sqlite-wal").unlink()
    (copy / "snapshot.safetensors").unlink(missing_ok=True)
    with pytest.raises(FolderError, match="lost"):
        open_folder(copy)
    assert any("are lost" in problem for problem in check(copy).problems)
    assert check(copy, rebuild=True).problems == []
    open_folder(copy).close()
