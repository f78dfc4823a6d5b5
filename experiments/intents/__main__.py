"""python -m experiments.intents COMMAND ...: intents of bank customers and of ten domains, from a few examples.

python -m experiments.intents evaluate --on test --out results/intents.json
python -m experiments.intents table --plots plots
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from experiments.command import add_table, command_of, run


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the sub-command named by `arguments` (default: the command line)."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.intents", description="BANKING77 and CLINC150 by a frozen embedder and a memory."
    )
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    evaluating = commands.add_parser("evaluate", help="measure accuracy at 5, 10 and all examples, beside baselines")
    evaluating.set_defaults(run=_evaluate)
    streaming = commands.add_parser("stream", help="ask, then learn: CLINC150 class by class and by a Zipf law")
    streaming.set_defaults(run=_stream)
    training = commands.add_parser("train", help="a query projection, and attention to neighbours: what training adds")
    training.set_defaults(run=_train)
    for command in (evaluating, streaming, training):
        command.add_argument("--on", choices=("valid", "test"), default="valid", help="questions (default: valid)")
        command.add_argument("--out", type=Path, metavar="FILE", help="write the result to this file, as JSON")
        command.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
        command.add_argument("--data", metavar="DIR", help="folder that contains intents/ (default: $RARECALL_DATA)")
    add_table(commands, "intents")
    run(parser, arguments)


# Experiments are imported inside the functions that run them, so that --help does not import torch.


def _evaluate(args: argparse.Namespace) -> None:
    from experiments import results
    from experiments.embedded.data import INTENTS, load_intents
    from experiments.intents.evaluate import evaluate, portions

    origin = results.origin(command_of(args, "intents", ("on", "seed", "out")), args.seed)
    data = {name: load_intents(name, args.data) for name in INTENTS}
    figures = {name: evaluate(each, on=args.on) for name, each in data.items()}
    taught = {name: portions(each, on=args.on) for name, each in data.items()}
    result = {"experiment": "intents", "kind": "few-shot", "on": args.on, "figures": figures, "portions": taught}
    if args.out:
        results.write(args.out, result, origin)


def _stream(args: argparse.Namespace) -> None:
    from experiments import results
    from experiments.embedded.data import load_intents
    from experiments.intents.evaluate import streams

    origin = results.origin(command_of(args, "intents", ("on", "seed", "out")), args.seed)
    figures = streams(load_intents("clinc150", args.data), on=args.on, seed=args.seed)
    if args.out:
        results.write(args.out, {"experiment": "intents", "kind": "stream", "on": args.on, "figures": figures}, origin)


def _train(args: argparse.Namespace) -> None:
    from experiments import results
    from experiments.embedded.data import INTENTS, load_intents
    from experiments.intents.train import adapt, attend

    origin = results.origin(command_of(args, "intents", ("on", "seed", "out")), args.seed)
    figures = {}
    for name in INTENTS:
        data = load_intents(name, args.data)
        figures[name] = {
            "query projection": adapt(data, on=args.on, seed=args.seed),
            "attention": attend(data, on=args.on, seed=args.seed),
        }
    if args.out:
        results.write(args.out, {"experiment": "intents", "kind": "train", "on": args.on, "figures": figures}, origin)


if __name__ == "__main__":
    main()
