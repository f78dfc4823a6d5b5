"""python -m experiments.omniglot train | evaluate | lifelong | table | demo

Omniglot, characters learned from one drawing: the paper's first table.
Every sub-command explains its options with --help.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from experiments.command import add_table, command_of, count, run

MODELS = (
    "mann",
    "matching",
    "matching-fce",
    "ours",
    "paper",
    "paper-batchnorm",
    "paper-distorted",
    "paper-softmax",
    "siamese",
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the sub-command named by `arguments` (default: the command line)."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.omniglot",
        description="Omniglot, characters learned from one drawing: the paper's first table.",
    )
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)

    training = commands.add_parser("train", help="train a model; run the same command again to resume")
    training.add_argument("--model", choices=MODELS, default="ours")
    training.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of the run, e.g. runs/ours")
    training.add_argument("--on", choices=("train", "trainval"), default="train", help="training characters")
    budget = training.add_mutually_exclusive_group()
    budget.add_argument("--steps", type=count, metavar="N", help="number of steps (default: the recipe's)")
    budget.add_argument("--minutes", type=float, metavar="M", help="as many steps as this machine runs in M minutes")
    training.add_argument(
        "--from", type=Path, dest="begin", metavar="FILE", help="initialise the weights with those of a trained network"
    )
    training.add_argument(
        "--bfloat16", action="store_true", help="compute convolutions in bfloat16: faster where the processor has it"
    )
    training.add_argument("--save-every", type=count, default=250, metavar="N", help="steps between checkpoints")
    training.add_argument("--tensorboard", action="store_true", help="also write metrics for TensorBoard")
    training.set_defaults(run=_train)

    evaluating = commands.add_parser("evaluate", help="measure N-way K-shot accuracy, as in the paper")
    _add_learner(evaluating, pixels=True)
    evaluating.add_argument("--episodes", type=count, default=1000, metavar="N", help="episodes per setting")
    evaluating.set_defaults(run=_evaluate)

    measuring = commands.add_parser("lifelong", help="measure a memory that is never reset")
    _add_learner(measuring, pixels=False)
    measuring.set_defaults(run=_lifelong)

    add_table(commands, "omniglot")

    showing = commands.add_parser("demo", help="test the trained network on new characters, and draw its answers")
    showing.add_argument("--out", type=Path, default=Path("omniglot-demo.png"), metavar="FILE", help="output image")
    showing.set_defaults(run=_demo)

    for command in (training, evaluating, measuring, showing):
        command.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
        command.add_argument(
            "--data", metavar="DIR", help="folder that contains omniglot/*.zip (default: $RARECALL_DATA)"
        )
    run(parser, arguments)


def _add_learner(parser: argparse.ArgumentParser, *, pixels: bool) -> None:
    learner = parser.add_mutually_exclusive_group(required=True)
    learner.add_argument(
        "--weights",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="weights of a trained model; several networks are joined",
    )
    if pixels:
        learner.add_argument("--pixels", action="store_true", help="nearest neighbour on pixels; needs no weights")
    parser.add_argument("--on", choices=("test", "val"), default="test", help="test characters")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the result to this file, as JSON")


# Experiments are imported inside the functions that run them, so that --help does not import torch.


def _train(args: argparse.Namespace) -> None:
    from experiments.omniglot import data
    from experiments.omniglot.evaluate import learner_of
    from experiments.omniglot.models import RECIPES
    from experiments.omniglot.train import Run, steps_in, train
    from experiments.training import Pace, steps_of

    omniglot = data.load(args.data)
    steps = args.steps or steps_of(args.out)
    if steps is None and args.minutes is not None:
        steps = steps_in(args.minutes, args.model, omniglot, args.on)
    begun_with = ""
    if args.begin:
        _, before = learner_of(args.begin)
        begun_with = f"{before['model']}, {before['steps']} steps, seed {before['seed']}"
    steps = steps or RECIPES[args.model](1).steps
    run = Run(args.model, args.on, steps, args.seed, begun_with, args.bfloat16)
    train(run, omniglot, args.out, Pace(save=args.save_every, tensorboard=args.tensorboard), args.begin)


def _evaluate(args: argparse.Namespace) -> None:
    from experiments import results
    from experiments.omniglot import data, table
    from experiments.omniglot.evaluate import evaluate, learner_of
    from experiments.omniglot.models import PIXELS

    origin = results.origin(_command(args), args.seed)
    learner, training = (PIXELS, {"model": "pixels"}) if args.pixels else learner_of(*args.weights)
    omniglot = data.load(args.data)
    result = evaluate(learner, omniglot, characters=args.on, episodes=args.episodes, seed=args.seed, quiet=False)
    result = {"model": training["model"], "training": training} | result
    print(table.few_shot_lines(result))
    if args.out:
        results.write(args.out, result, origin)


def _lifelong(args: argparse.Namespace) -> None:
    from experiments import results
    from experiments.omniglot import data, table
    from experiments.omniglot.episodes import MemoryLearner
    from experiments.omniglot.evaluate import learner_of
    from experiments.omniglot.lifelong import lifelong

    origin = results.origin(_command(args), args.seed)
    learner, training = learner_of(*args.weights)
    if not isinstance(learner, MemoryLearner):
        raise SystemExit(f"{args.weights[0]} holds the model {training['model']!r}, which has no memory.")
    result = lifelong(learner, data.load(args.data), characters=args.on, seed=args.seed)
    result = {"model": training["model"], "training": training} | result
    print(table.lifelong_lines(result))
    if args.out:
        results.write(args.out, result, origin)


def _demo(args: argparse.Namespace) -> None:
    from experiments.omniglot import data, demo

    if not args.out.absolute().parent.is_dir():
        raise SystemExit(f"There is no folder {args.out.parent} to write {args.out.name} to. Create it first.")
    demo.run(data.load(args.data), args.out, seed=args.seed)


def _command(args: argparse.Namespace) -> str:
    # Without --data, which differs from machine to machine.
    names = ("weights", "pixels", "on", "episodes", "seed", "out")
    return command_of(args, "omniglot", names)


if __name__ == "__main__":
    main()
