"""python -m experiments.groceries COMMAND ...: products of a shop, from a few photos.

python -m experiments.groceries evaluate --on test --out results/groceries.json
python -m experiments.groceries stream --on test --out results/groceries-stream.json
python -m experiments.groceries picture --out groceries.png
python -m experiments.groceries table --plots plots
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from experiments.command import add_table, command_of, run


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the sub-command named by `arguments` (default: the command line)."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.groceries", description="Groceries by a frozen network for images and a memory."
    )
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    evaluating = commands.add_parser("evaluate", help="measure accuracy from a few photos, beside baselines")
    evaluating.set_defaults(run=_measure, function="evaluate", kind="few-shot")
    streaming = commands.add_parser("stream", help="ask, then learn: product by product and by a Zipf law")
    streaming.set_defaults(run=_measure, function="streams", kind="stream")
    showing = commands.add_parser("picture", help="draw questions, the photos they were answered from, and the answers")
    showing.set_defaults(run=_picture)
    for command in (evaluating, streaming, showing):
        command.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
        command.add_argument("--data", metavar="DIR", help="folder that contains groceries/ (default: $RARECALL_DATA)")
    for command in (evaluating, streaming):
        command.add_argument("--on", choices=("val", "test"), default="val", help="questions (default: val)")
        command.add_argument("--out", type=Path, metavar="FILE", help="write the result to this file, as JSON")
    showing.add_argument("--out", type=Path, default=Path("groceries.png"), metavar="FILE", help="output image")
    add_table(commands, "groceries")
    run(parser, arguments)


# Experiments are imported inside the functions that run them, so that --help does not import torch.


def _measure(args: argparse.Namespace) -> None:
    from experiments import results
    from experiments.embedded.data import load_groceries
    from experiments.groceries import evaluate

    origin = results.origin(command_of(args, "groceries", ("on", "seed", "out")), args.seed)
    figures = getattr(evaluate, args.function)(load_groceries(args.data), on=args.on, seed=args.seed)
    if args.out:
        result = {"experiment": "groceries", "kind": args.kind, "on": args.on, "figures": figures}
        results.write(args.out, result, origin)


def _picture(args: argparse.Namespace) -> None:
    from experiments.groceries.picture import draw

    draw(args.data, args.out, seed=args.seed)


if __name__ == "__main__":
    main()
