"""python -m benchmarks [exact] [approximate] [scaling] [lsh] [update] [memory] [translation] [--long] [--sizes ...]

Without names: the short version of exact, lsh, update and memory, in under five minutes on two quiet cores. The
approximate comparison builds and tunes the peers first, which takes some ten minutes a workload. The translation needs
its text (`RARECALL_DATA`), and fills a memory first, some minutes.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from benchmarks.comparisons import COMPARISONS
from benchmarks.machine import commit
from benchmarks.report import table, write
from benchmarks.settings import LONG, SHORT
from benchmarks.workloads import WORKLOADS

QUICK = ("exact", "lsh", "update", "memory")


def main() -> None:
    """Runs the comparisons asked for, writes their results and prints them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Speed, side by side with peers.")
    parser.add_argument(
        "comparisons", nargs="*", help=f"which of {', '.join(COMPARISONS)}; {', '.join(QUICK)} by default"
    )
    parser.add_argument("--long", action="store_true", help="all sizes, key sizes and workloads: hours")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, help="where the keys come from")
    for name in ("sizes", "key-sizes", "ks", "batches"):
        parser.add_argument(f"--{name}", type=int, nargs="+", help="instead of the version's own")
    for name in ("steps", "threads", "seed"):
        parser.add_argument(f"--{name}", type=int, help="instead of the version's own")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder of the results, as JSON")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.comparisons if name not in COMPARISONS]
    if unknown:
        parser.error(f"there is no comparison {unknown[0]!r}; expected one of {', '.join(COMPARISONS)}")
    commit()
    settings = LONG if arguments.long else SHORT
    given = {field.name: getattr(arguments, field.name) for field in dataclasses.fields(settings)}
    changes: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in given.items()}
    settings = dataclasses.replace(settings, **{name: v for name, v in changes.items() if v is not None})
    torch.set_num_threads(settings.threads)
    chosen = {name: COMPARISONS[name] for name in arguments.comparisons or QUICK}
    paths = []
    with tqdm(total=sum(comparison.steps(settings) for comparison in chosen.values()), unit="step") as progress:
        for name, comparison in chosen.items():
            progress.set_description(name)
            rows = list(comparison.run(settings, progress))
            paths.append(arguments.out / f"speed-{name}{'-long' if arguments.long else ''}.json")
            write(paths[-1], settings, comparison.TITLE, comparison.COLUMNS, rows)
    for path in paths:
        print(f"\n{table(path)}")


if __name__ == "__main__":
    main()
