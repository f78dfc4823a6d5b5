"""Kill, cut and damage folders, and see that nothing that was acknowledged is lost: python -m tests.store.torture

    --kills 1000    kill -9 at random moments of teach, relabel, forget, undo, compact and open
    --stops 40      stop at every write and sync of this many steps, by what strace saw: as a kill, and as a power cut
    --flips 5000    flip a bit of a file, or cut it short
    --out FILE      write what was done as JSON

Prints what it did. Exits with 1 where anything was lost or wrong.
"""

import argparse
import json
import logging
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch

from benchmarks.machine import provenance
from rarecall.store import FolderError
from rarecall.store.check import check
from tests.store.life import everything, open_folder, step

KILLS_IN_A_LIFE = 100  # then a new folder is begun: all of it is read after each kill
SCRATCH = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def kill(kills, seed=0):
    """Kill a process that lives in a folder, again and again; return what was done."""
    torch.set_num_threads(1)
    counts = Counter()
    for life in range(0, kills, KILLS_IN_A_LIFE):
        counts += _kill(min(KILLS_IN_A_LIFE, kills - life), seed + life)
    return counts


def _kill(kills, seed):
    chance, done, counts = random.Random(seed), 0, Counter()
    with tempfile.TemporaryDirectory() as place, tempfile.TemporaryDirectory(dir=SCRATCH) as aside:
        folder = Path(place) / "kept"
        reference = open_folder(Path(aside) / "reference")
        for _ in range(kills):
            acknowledged = _live_until_killed(folder, done, seed, chance.uniform(0, chance.choice([0.05, 0.5])))
            counts["kills"] += 1
            counts["acknowledged steps"] += acknowledged - done
            while done < acknowledged:
                step(reference, done, seed)
                done += 1
            if not (folder / "journal.sqlite").exists():
                continue
            with open_folder(folder, readonly=done > 0 and chance.random() < 0.5) as kept:
                found, expected = everything(kept), everything(reference)
            if found != expected:  # the step that was on its way was committed
                step(reference, done, seed)
                done += 1
                counts["found done, not acknowledged"] += 1
                expected = everything(reference)
            assert found == expected, f"after {done} steps (seed {seed})"
        counts["entries"] = len(reference.history())
        reference.close()
        report = check(folder)
        assert not report.problems, report.problems
    return counts


def _live_until_killed(folder, done, seed, seconds):
    """Go on from a step in a process of its own; return how many steps were acknowledged before the kill."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            with open_folder(folder) as kept:
                for number in range(done, done + 1000):
                    step(kept, number, seed)
                    os.write(writer, struct.pack("<Q", number + 1))
        finally:
            os._exit(0)
    os.close(writer)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with os.fdopen(reader, "rb") as pipe:
        written = pipe.read()
    return struct.unpack("<Q", written[-8:])[0] if written else done


# ---- every write and every sync ----

CALLS = "openat,write,pwrite64,ftruncate,fsync,fdatasync,rename,renameat2,unlink,unlinkat,mkdir"
LINE = re.compile(r"^(?:\[pid +\d+\] |\d+ +)?(\w+)\((.*)\) += (-?\d+)")


def record(steps, seed=0):
    """Live so many steps under strace; return what was written: (call, path, ...) in order."""
    with tempfile.TemporaryDirectory() as place:
        trace, folder = Path(place) / "trace", Path(place) / "kept"
        command = [
            "strace",
            "-f",
            "--seccomp-bpf",
            "-y",
            "-xx",
            "-s",
            "100000000",
            "-e",
            f"trace={CALLS}",
            "-o",
            str(trace),
        ]
        command += [sys.executable, "-m", "tests.store.torture", "--live", str(folder), "--stops", str(steps)]
        subprocess.run([*command, "--seed", str(seed)], check=True, stderr=subprocess.DEVNULL)
        return list(_parsed(trace.read_text(errors="replace").splitlines(), str(folder)))


def live(folder, steps, seed):
    """Live so many steps, and say after each that it was done."""
    torch.set_num_threads(1)
    with open_folder(folder) as kept:
        for number in range(steps):
            step(kept, number, seed)
            os.write(2, b"done %d" % (number + 1))


def _parsed(lines, folder):
    """Yield what concerns the folder, with paths relative to it."""
    unfinished = {}
    for text in lines:
        process = text.split(None, 1)[0]
        if text.endswith("<unfinished ...>"):
            unfinished[process] = text[: -len("<unfinished ...>")].rstrip()
            continue
        resumed = re.match(r"^\d+ +<\.\.\. \w+ resumed>(.*)$", text)
        if resumed:
            text = unfinished.pop(process) + resumed[1]
        found = LINE.match(text)
        if not found or int(found[3]) < 0:
            continue
        call, arguments = found[1], found[2]
        texts = [bytes.fromhex(each.replace("\\x", "")) for each in re.findall(r'"((?:\\x[0-9a-f]{2})*)"', arguments)]
        numbers = [int(number) for number in re.findall(r", (\d+)(?=,|$)", re.sub(r'"[^"]*"', '""', arguments))]
        named = re.match(r"^(\d+)<((?:\\x[0-9a-f]{2})*)>", arguments)
        path = bytes.fromhex(named[2].replace("\\x", "")).decode() if named else texts[0].decode() if texts else ""
        if call == "write" and named and named[1] == "2" and texts[0].startswith(b"done "):
            yield ("done", int(texts[0][5:]))
        if call == "openat":
            path = texts[0].decode()
        relative = os.path.relpath(path, folder)
        if relative.startswith("..") or relative.endswith("-shm"):
            continue
        if call == "openat" and "O_CREAT" in arguments:
            yield ("create", relative, "O_TRUNC" in arguments)
        elif call == "pwrite64":
            yield ("write", relative, numbers[-1], texts[0])
        elif call == "ftruncate":
            yield ("cut", relative, numbers[-1])
        elif call in ("fsync", "fdatasync"):
            yield ("sync", relative)
        elif call.startswith("rename"):
            yield ("rename", relative, os.path.relpath(texts[-1].decode(), folder))
        elif call.startswith("unlink"):
            yield ("unlink", relative)


class Disk:
    """What a disk holds: names and contents that are synced, and those that are on their way."""

    def __init__(self):
        self.names, self.synced_names = {}, {}  # path -> number of a file
        self.now, self.synced, self.pending = [], [], []  # of each file: contents, and writes since the last sync
        self.moves = []  # names since the last sync

    def do(self, call, path, *rest):
        if call == "create" and path not in self.names:
            self.names[path] = len(self.now)
            self.now.append(bytearray())
            self.synced.append(b"")
            self.pending.append([])
            self.moves.append((path, self.names[path]))
        elif call == "create" and rest[0]:
            self.do("cut", path, 0)
        elif call in ("write", "cut"):
            file = self.names[path]
            _write(self.now[file], rest)
            self.pending[file].append(rest)
        elif call == "sync" and path == ".":
            self.synced_names, self.moves = dict(self.names), []
        elif call == "sync":
            file = self.names[path]
            self.synced[file], self.pending[file] = bytes(self.now[file]), []
        elif call == "rename":
            self.names[rest[0]] = self.names.pop(path)
            self.moves.append((path, None, rest[0], self.names[rest[0]]))
        elif call == "unlink":
            del self.names[path]
            self.moves.append((path, None))

    def image(self, folder, how, chance):
        """Write what is there after a kill, or after a power cut that lost all or some of what was not synced."""
        names = dict(self.names if how == "kill" else self.synced_names)
        if how == "cut, some":
            for move in self.moves[: chance.randint(0, len(self.moves))]:
                for path, file in zip(move[::2], move[1::2], strict=True):
                    names.pop(path, None)
                    if file is not None:
                        names[path] = file
        folder.mkdir(parents=True)
        for path, file in names.items():
            data = bytearray(self.now[file] if how == "kill" else self.synced[file])
            if how == "cut, some":
                for write in self.pending[file]:
                    if chance.random() < 0.5:
                        torn = len(write) == 2 and chance.random() < 0.3
                        _write(data, (write[0], write[1][: chance.randrange(len(write[1]) + 1)]) if torn else write)
            (folder / path).write_bytes(data)


def _write(data, write):
    if len(write) == 1:  # a cut, which may also make it longer
        data[:] = data[: write[0]].ljust(write[0], b"\0")
    else:
        offset, new = write
        if new:
            data.extend(bytes(max(offset - len(data), 0)))
            data[offset : offset + len(new)] = new


def stop(steps, seed=0, share=1.0):
    """Stop at every write and sync of so many steps (or at a share of them); return what was done."""
    calls, chance, counts = record(steps, seed), random.Random(seed), Counter()
    with tempfile.TemporaryDirectory(dir=SCRATCH) as aside:
        with open_folder(Path(aside) / "reference") as reference:
            states = [everything(reference)]
            for number in range(steps):
                step(reference, number, seed)
                states.append(everything(reference))
        disk, done = Disk(), 0
        for call in calls:
            if call[0] == "done":
                done = call[1]
                continue
            counts["writes and syncs"] += 1
            for how in ("kill", "cut, all", "cut, some"):
                if chance.random() >= share:
                    continue
                folder = Path(aside) / "image"
                disk.image(folder, how, chance)
                try:
                    with open_folder(folder) as kept:
                        found = everything(kept)
                except FolderError as error:
                    found = str(error)
                before = f"{counts['writes and syncs']} ({call[:2]}), {how}, after {done} steps"
                assert found in states[done : done + 2], f"stop before call {before}: {found}"
                shutil.rmtree(folder)
                counts[f"stops: {how}"] += 1
            disk.do(*call)
    return counts


# ---- damage ----


def flip(flips, seed=0):
    """Flip bits of files and cut them short; return what became of it."""
    torch.set_num_threads(1)
    chance, counts = random.Random(seed), Counter()
    with tempfile.TemporaryDirectory(dir=SCRATCH) as aside:
        folders = []
        for killed in (False, True):
            folder = Path(aside) / f"whole{killed}"
            kept = open_folder(folder)
            for number in range(60):
                step(kept, number, seed)
            kept.compact()
            for number in range(60, 75):  # entries after the snapshot
                step(kept, number, seed)
            expected = everything(kept)
            if killed:  # what a killed process leaves: the log of SQLite is not empty
                shutil.copytree(folder, Path(aside) / "killed")
                folder = Path(aside) / "killed"
            kept.close()
            folders.append((folder, expected))
        for _ in range(flips):
            folder, expected = chance.choice(folders)
            names = sorted(path.name for path in folder.iterdir() if path.name != "lock" and path.stat().st_size)
            image, name = Path(aside) / "image", chance.choice(names)
            shutil.copytree(folder, image)
            data = bytearray((image / name).read_bytes())
            cut = chance.random() < 0.2
            if cut:
                del data[chance.randrange(len(data)) :]
            else:
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            (image / name).write_bytes(data)
            what = f"{name}: {'cut' if cut else 'flip'}"
            try:
                with open_folder(image, readonly=chance.random() < 0.3) as kept:
                    same = everything(kept) == expected
                assert same, f"{what} of {folder.name} gave another memory, unnoticed"
                counts[f"{what}, harmless"] += 1
            except FolderError:
                counts[f"{what}, detected"] += 1
            shutil.rmtree(image)
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--stops", type=int, default=40)
    parser.add_argument("--flips", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--live", help=argparse.SUPPRESS)
    args = parser.parse_args()
    logging.getLogger("rarecall").setLevel(logging.ERROR)  # that a damaged snapshot is not used is expected here
    if args.live:
        return live(args.live, args.stops, args.seed)
    command = f"python -m tests.store.torture --kills {args.kills} --stops {args.stops} --flips {args.flips}"
    result = provenance() | {"command": command, "experiment": "kept-torture", "seed": args.seed}
    for run, amount in ((kill, args.kills), (stop, args.stops), (flip, args.flips)):
        if amount:
            began = time.monotonic()
            counts = dict(sorted(run(amount, args.seed).items()))
            seconds = round(time.monotonic() - began)
            print(f"{run.__name__}: nothing lost, nothing wrong, in {seconds} s")
            for name, count in counts.items():
                print(f"  {count:8d} {name}", flush=True)
            result[run.__name__] = {"result": "nothing lost, nothing wrong", "seconds": seconds} | counts
    if args.out:
        args.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
