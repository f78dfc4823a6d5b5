"""python -m benchmarks [exact] [approximate] [training] [streams] [latency] [versus OLD_CHECKOUT] [scaling] ...

Without names: the short version of exact, update and memory, in under five minutes on two quiet cores. The
approximate and the training comparison build and tune the peers first, which takes some ten minutes a workload. The
translation needs its text (`RARECALL_DATA`), and fills a memory first, some minutes.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from benchmarks.comparisons import NAMES
from benchmarks.machine import commit
from benchmarks.report import table, write
from benchmarks.settings import LONG, SHORT
from benchmarks.workloads import WORKLOADS

QUICK = ("exact", "update", "memory")


def main() -> None:
    """Runs the comparisons asked for, writes their results and prints them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Speed, side by side with peers.")
    parser.add_argument("comparisons", nargs="*", help=f"which of {', '.join(NAMES)}; {', '.join(QUICK)} by default")
    parser.add_argument("--long", action="store_true", help="all sizes, key sizes and workloads: hours")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, help="where the keys come from")
    for name in ("sizes", "key-sizes", "ks", "batches"):
        parser.add_argument(f"--{name}", type=int, nargs="+", help="instead of the version's own")
    for name in ("steps", "threads", "seed"):
        parser.add_argument(f"--{name}", type=int, help="instead of the version's own")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder of the results, as JSON")
    arguments = parser.parse_args()
    names = arguments.comparisons or list(QUICK)
    old = None
    if "versus" in names:
        after = names.index("versus") + 1
        if after == len(names) or not Path(names[after]).is_dir():
            parser.error("versus takes the checkout of the old version: versus OLD_CHECKOUT")
        old = Path(names.pop(after)).resolve()
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        parser.error(f"there is no comparison {unknown[0]!r}; expected one of {', '.join(NAMES)}")
    commit()
    changes: dict[str, Any] = {"old": old}
    for field in dataclasses.fields(SHORT):
        given = getattr(arguments, field.name, None)
        if given is not None:
            changes[field.name] = tuple(given) if isinstance(given, list) else given
    chosen = {}
    for name in names:
        comparison = importlib.import_module(f"benchmarks.comparisons.{name}")
        defaults = getattr(comparison, "DEFAULTS", {})
        chosen[name] = comparison, dataclasses.replace(LONG if arguments.long else SHORT, **(defaults | changes))
    paths = []
    total = sum(comparison.steps(settings) for comparison, settings in chosen.values())
    with tqdm(total=total, unit="step") as progress:
        for name, (comparison, settings) in chosen.items():
            progress.set_description(name)
            torch.set_num_threads(settings.threads)
            rows = list(comparison.run(settings, progress))
            paths.append(arguments.out / f"speed-{name}{'-long' if arguments.long else ''}.json")
            write(paths[-1], settings, comparison.TITLE, comparison.COLUMNS, rows)
    for path in paths:
        print(f"\n{table(path)}")


if __name__ == "__main__":
    main()
