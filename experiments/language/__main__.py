"""python -m experiments.language train | evaluate

A language model of the transformers library that is taught documents and names.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from experiments import folders
from experiments.command import command_of, count, run


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the sub-command named by `arguments` (default: the command line)."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.language",
        description="A language model of the transformers library that is taught documents and names.",
    )
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    training = commands.add_parser("train", help="train a small GPT-2; run the same command again to resume")
    training.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of the run")
    training.add_argument("--steps", type=count, default=2500, metavar="N", help="number of steps (default: 2500)")
    training.set_defaults(run=_train)
    evaluating = commands.add_parser("evaluate", help="teach it documents and names, and measure")
    evaluating.add_argument("--model", type=Path, required=True, metavar="DIR", help="e.g. runs/language/model")
    evaluating.add_argument(
        "--on", choices=("test", "validation"), default="test", help="documents to measure on (default: test)"
    )
    evaluating.add_argument("--out", type=Path, metavar="FILE", help="write the result to this file, as JSON")
    evaluating.set_defaults(run=_evaluate)
    for each in (training, evaluating):
        each.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
        each.add_argument("--data", type=Path, metavar="DIR", help="folder with ende/ (default: $RARECALL_DATA)")
    run(parser, arguments)


def _train(args: argparse.Namespace) -> None:
    from experiments.language.train import train

    train(folders.data(args.data), args.out, args.steps, args.seed)


def _evaluate(args: argparse.Namespace) -> None:
    from experiments import results
    from experiments.language.evaluate import evaluate

    origin = results.origin(command_of(args, "language", ("model", "on", "seed", "out")), args.seed)
    figures = evaluate(folders.data(args.data), args.model, args.on, args.seed)
    print(json.dumps(figures, indent=2))
    if args.out is not None:
        results.write(args.out, figures, origin)


if __name__ == "__main__":
    main()
