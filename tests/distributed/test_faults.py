"""A rank that dies: the others are told within the timeout, and what was learned goes on from the last checkpoint."""

from __future__ import annotations

import os
import random
import runpy
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

import rarecall.distributed
from rarecall import Memory
from tests.helpers import assert_same, snapshot
from tests.processes import CONTEXT

EXAMPLE = Path(__file__).parents[2] / "examples" / "sharded.py"
STEPS, EVERY = 20, 4
TIMEOUT = 10.0  # seconds, of the ranks' process groups


def train(rank: int, size: int, port: int, folder: str, steps: int) -> None:
    """What torchrun does, without the time to import torch."""
    about = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ |= {name: str(value) for name, value in about.items()} | {"GLOO_SOCKET_IFNAME": "lo"}
    torch.set_num_threads(1)
    told = open(f"{folder}/told.{rank}", "w")  # noqa: SIM115 - the rank's own, until it dies
    os.dup2(told.fileno(), 1)
    os.dup2(told.fileno(), 2)
    made = rarecall.distributed.shard

    def shard(*args: Any) -> Any:
        memory = made(*args)
        Path(f"{folder}/begun.{rank}").touch()
        return memory

    rarecall.distributed.shard = shard
    arguments = {"--out": folder, "--steps": steps, "--every": EVERY, "--timeout": TIMEOUT}
    sys.argv = [str(EXAMPLE), *(str(each) for pair in arguments.items() for each in pair)]
    runpy.run_path(str(EXAMPLE), run_name="__main__")


def run(
    folder: Path, size: int, kill: tuple[int, float] | None = None, by: int = signal.SIGKILL, steps: int = STEPS
) -> list[int | None]:
    """Exit codes of all ranks; kill: a rank, and after how many seconds."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = [CONTEXT.Process(target=train, args=(rank, size, port, str(folder), steps)) for rank in range(size)]
    for begun in folder.glob("begun.*"):
        begun.unlink()
    for rank in ranks:
        rank.start()
    # Not while they connect: torch's init_process_group may wait for ever then (torchrun ends the others itself).
    while kill is not None and len(list(folder.glob("begun.*"))) < size:
        time.sleep(0.02)
    if kill is not None:
        ranks[kill[0]].join(kill[1])
        os.kill(ranks[kill[0]].pid or 0, by) if ranks[kill[0]].is_alive() else None
    killed = time.monotonic()
    others = [rank for i, rank in enumerate(ranks) if kill is None or i != kill[0]]
    try:
        for rank in others:
            rank.join(60.0 if kill is None else max(killed + 3 * TIMEOUT - time.monotonic(), 0))
        hang = [i for i, rank in enumerate(ranks) if rank in others and rank.is_alive()]
        assert not hang, (
            f"ranks {hang} hang {time.monotonic() - killed:.0f} seconds after {kill=}: {heard(folder, size)}"
        )
    finally:
        for rank in ranks:
            rank.kill()
            rank.join()
    return [rank.exitcode for rank in ranks]


def heard(folder: Path, size: int) -> str:
    return "\n".join((folder / f"told.{rank}").read_text()[-2000:] for rank in range(size))


def learned(folder: Path) -> dict[str, Any]:
    """All that is in the last checkpoint, and the memory that was saved as one file."""
    dcp_to_torch_save(folder / str(STEPS), folder / "all.pt")
    state = torch.load(folder / "all.pt")
    moments = {
        f"{number}.{name}": tensor
        for number, each in state["optimizer"]["state"].items()
        for name, tensor in each.items()
    }
    return state["network"] | moments | snapshot(Memory.load(folder / "memory.safetensors"))


def kill_and_resume(folder: Path, size: int, kills: int, seed: int) -> None:
    """Kill random ranks at random moments, and start all again each time, from what is left."""
    whole, broken = folder / "whole", folder / "broken"
    whole.mkdir()
    broken.mkdir()
    assert run(whole, size) == [0] * size, heard(whole, size)
    seconds = (whole / "memory.safetensors").stat().st_mtime - (whole / "begun.0").stat().st_mtime
    chance = random.Random(seed)
    done = 0
    while done < kills:
        codes = run(broken, size, kill=(chance.randrange(size), chance.uniform(0, seconds)))
        if codes == [0] * size:  # it was done before; there is more to kill in a new run
            assert_same(learned(whole), learned(broken))
            broken = folder / f"broken{done}.{chance.random()}"
            broken.mkdir()
            continue
        done += 1
        assert 0 not in codes or -signal.SIGKILL in codes
    assert run(broken, size) == [0] * size, heard(broken, size)
    assert_same(learned(whole), learned(broken))


def test_killed_ranks_are_noticed_and_training_goes_on_bit_for_bit(tmp_path) -> None:
    kill_and_resume(tmp_path, size=2, kills=1, seed=1)


@pytest.mark.slow
def test_fifty_kills(tmp_path) -> None:
    kill_and_resume(tmp_path, size=3, kills=50, seed=2)


@pytest.mark.slow
def test_a_rank_that_hangs_is_an_error_on_the_others(tmp_path) -> None:
    codes = run(tmp_path, 2, kill=(1, 10.0), by=signal.SIGSTOP, steps=10**6)
    assert codes[0] not in (0, None)
    assert "Timed out" in heard(tmp_path, 2)
