"""rarecall demo: see `rarecall.demo`."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

STEPS = 700


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the sub-command `demo`."""
    parser = subparsers.add_parser(
        "demo",
        help="train a network with memory for a minute, show it new characters once, and test what it remembers",
        description="Train a network with memory for about a minute, show it a hundred new characters once each, test "
        "what it remembers, and ask it about characters that it was never shown.",
    )
    add = parser.add_argument
    add("--out", type=_file, default="demo.png", metavar="FILE", help="output image, PNG (default: %(default)s)")
    add("--seed", type=int, default=0, help="random seed (default: %(default)s)")
    add("--steps", type=_count, default=STEPS, help="number of training episodes (default: %(default)s)")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    # Imported here, so that `rarecall --help` works without matplotlib and tqdm.
    from rarecall.demo.demo import run

    # One thread: the result does not depend on the number of cores, and a network this small gains nothing from more.
    torch.set_num_threads(1)
    run(args.out, seed=args.seed, steps=args.steps)


def _file(text: str) -> Path:
    path = Path(text)
    if not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {path.parent} to write {path.name} to; create it first")
    return path


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of steps; expected 0, 1, 2, ...")
    return int(text)
