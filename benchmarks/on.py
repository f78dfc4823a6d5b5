"""python -m benchmarks.on CHECKOUT [arguments of python -m benchmarks]

Runs these benchmarks against the rarecall of another checkout, whose extension is built.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
# rarecall comes from the checkout, which has a `benchmarks` of its own: so this one goes first only after that.
_START = """
import runpy, sys, rarecall
sys.path.insert(0, {root!r})
runpy.run_module({module!r}, run_name="__main__")
"""


def process(checkout: Path, module: str) -> tuple[list[str], dict[str, str]]:
    """The command and the environment that run a module of this folder with the rarecall of a checkout."""
    if not (checkout / "rarecall").is_dir():
        raise FileNotFoundError(f"{checkout} has no folder rarecall; expected a checkout of the project.")
    start = _START.format(root=str(ROOT), module=module)
    return [sys.executable, "-P", "-c", start], os.environ | {"PYTHONPATH": str(checkout.resolve())}


if __name__ == "__main__":
    command, environment = process(Path(sys.argv[1]), "benchmarks.__main__")
    os.execve(command[0], command + sys.argv[2:], environment)
