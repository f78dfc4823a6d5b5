"""Published figures: JSON with the command, seed, commit and machine of the run that made them."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "results"
CODE = ("experiments", "native", "rarecall")


def origin(command: str, seed: int) -> dict[str, Any]:
    """Describe the origin of a result. Call it before the run: files on disk may change during it."""
    return {"command": command, "seed": seed, "commit": commit(), "machine": machine()}


def write(path: str | os.PathLike[str], result: dict[str, Any], origin: dict[str, Any]) -> None:
    """Write a result together with its origin, as JSON."""
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"Cannot write {path}: there is no folder {path.parent}. Create it first.")
    beside = path.with_name(f".{path.name}.tmp")
    beside.write_text(json.dumps(origin | result, indent=2) + "\n")
    os.replace(beside, path)


def read_all(folder: str | os.PathLike[str], experiment: str) -> list[dict[str, Any]]:
    """Read all results of an experiment from a folder, ordered by file name."""
    results = [json.loads(path.read_text()) for path in sorted(Path(folder).glob("*.json"))]
    return [result for result in results if isinstance(result, dict) and result.get("experiment") == experiment]


def commit() -> str:
    """Return the commit of the running code, marked if files were changed since; "unknown" outside a repository."""
    try:
        found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
        # Only code counts: results and weights change while they are produced.
        changed = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", *CODE], cwd=ROOT, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip() + ("" if changed.returncode == 0 else " and uncommitted changes")


def machine() -> dict[str, Any]:
    """Describe the hardware and software, as needed to judge timings, without identifying the machine."""
    model = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.is_file():
        names = [line.split(":")[1].strip() for line in information.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
