"""The documents' examples, started by torchrun."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rarecall import Memory

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("example", "says"), [("sharded", "2 ranks, 6 steps"), ("asynchronous", "9 updates")])
def test_torchrun_runs_it(example, says, tmp_path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += [str(ROOT / "examples" / f"{example}.py"), "--out", str(tmp_path), "--steps", "6"]
    where = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=os.environ | where, check=False)
    assert done.returncode == 0, done.stderr
    assert says in done.stdout
    memory = Memory.load(tmp_path / "memory.safetensors")
    assert len(memory) > 0
    assert example in (ROOT / "docs" / "distributed.md").read_text()
