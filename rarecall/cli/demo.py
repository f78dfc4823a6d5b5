"""rarecall demo: see `rarecall.demo`."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

STEPS = 700


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `rarecall demo` to the sub-commands."""
    parser = subparsers.add_parser(
        "demo",
        help="train a network with memory in a minute, show it new characters once, and see what it remembers",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--out", type=_file, default="demo.png", metavar="FILE", help="where to write the picture")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same table and picture")
    parser.add_argument("--steps", type=_count, default=STEPS, help="episodes of training")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    # Imported here, so that the command's other parts run where matplotlib and tqdm are not installed.
    from rarecall.demo.demo import run

    # With one thread the result does not depend on how many cores there are; and on a busy machine the threads of so
    # small a network mostly wait for each other.
    torch.set_num_threads(1)
    run(args.out, seed=args.seed, steps=args.steps)


def _file(text: str) -> Path:
    path = Path(text)
    if not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {path.parent} to write {path.name} to; make it first")
    return path


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a count; expected 0, 1, 2, ...")
    return int(text)
