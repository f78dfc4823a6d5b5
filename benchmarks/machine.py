"""Where a figure comes from: the command, the commit and the machine, and nothing that names a person or a host."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import rarecall

CODE = (":/benchmarks", ":/native", ":/rarecall")


def provenance() -> dict[str, Any]:
    """The command, commit and machine of this run."""
    return {
        # Of a path its name: where it is on this machine is nobody's business.
        "command": " ".join(["python -m benchmarks", *(Path(part).name or part for part in sys.argv[1:])]),
        "commit": commit(),
        "machine": {
            "cpu": cpu(),
            "cores": os.cpu_count(),
            "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
            "system": platform.system(),
            "python": platform.python_version(),
            # More than the threads of the run means that others had the machine too.
            "load": round(os.getloadavg()[0], 1),
        }
        | {package: version(package) for package in ("torch", "faiss-cpu", "hnswlib", "usearch")},
    }


@functools.cache
def commit(folder: Path = Path(rarecall.__file__).parent) -> str:
    """The commit of the rarecall that runs, or of that in a folder, with a + where its code was changed since.

    It is asked when a run begins: others may follow until it ends. Results change as they are made.
    """

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", "-uno", *CODE) else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def cpu() -> str:
    """The model of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def version(package: str) -> str | None:
    """The installed version, None where there is none."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
