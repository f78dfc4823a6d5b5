"""rarecall omniglot: see `rarecall.experiments.omniglot`."""

from __future__ import annotations

import argparse
from pathlib import Path

from rarecall.cli.common import add_table, command_of, count

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


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `rarecall omniglot` and its own sub-commands."""
    omniglot = subparsers.add_parser("omniglot", help="characters from one drawing: the paper's first table")
    commands = omniglot.add_subparsers(dest="omniglot_command", metavar="command", required=True)

    training = commands.add_parser("train", help="train a model; the same command goes on where it was stopped")
    training.add_argument("--model", choices=MODELS, default="ours")
    training.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of the run, such as runs/ours")
    training.add_argument("--on", choices=("train", "trainval"), default="train", help="characters to train on")
    budget = training.add_mutually_exclusive_group()
    budget.add_argument("--steps", type=count, metavar="N", help="steps of the whole run; the recipe's by default")
    budget.add_argument("--minutes", type=float, metavar="M", help="as many steps as this machine makes in M minutes")
    training.add_argument("--save-every", type=count, default=250, metavar="N", help="steps between checkpoints")
    training.add_argument("--tensorboard", action="store_true", help="write the figures for TensorBoard as well")
    training.set_defaults(run=_train)

    evaluating = commands.add_parser("evaluate", help="N-way K-shot accuracies, as in the paper")
    _add_learner(evaluating, pixels=True)
    evaluating.add_argument("--episodes", type=count, default=1000, metavar="N", help="of each setting")
    evaluating.set_defaults(run=_evaluate)

    measuring = commands.add_parser("lifelong", help="what a memory that is never reset keeps")
    _add_learner(measuring, pixels=False)
    measuring.set_defaults(run=_lifelong)

    add_table(commands, "omniglot")

    showing = commands.add_parser(
        "demo", help="the trained network meets the test characters; a picture of its answers"
    )
    showing.add_argument("--out", type=Path, default=Path("omniglot-demo.png"), metavar="FILE", help="the picture")
    showing.set_defaults(run=_demo)

    for command in (training, evaluating, measuring, showing):
        command.add_argument("--seed", type=int, default=0)
        command.add_argument("--data", metavar="DIR", help="holds omniglot/*.zip; $RARECALL_DATA by default")


def _add_learner(parser: argparse.ArgumentParser, *, pixels: bool) -> None:
    learner = parser.add_mutually_exclusive_group(required=True)
    learner.add_argument(
        "--weights", type=Path, nargs="+", metavar="FILE", help="of a trained model; several networks are joined"
    )
    if pixels:
        learner.add_argument(
            "--pixels", action="store_true", help="nearest neighbour on pixels, which needs no weights"
        )
    parser.add_argument("--on", choices=("test", "val"), default="test", help="characters to ask")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures there, as JSON")


# The experiments are imported where they run, so that the help of a command does not wait for torch.


def _train(args: argparse.Namespace) -> None:
    from rarecall.experiments.omniglot import data
    from rarecall.experiments.omniglot.models import RECIPES
    from rarecall.experiments.omniglot.train import Run, steps_in, train
    from rarecall.experiments.training import Pace, steps_of

    omniglot = data.load(args.data)
    steps = args.steps or steps_of(args.out)
    if steps is None and args.minutes is not None:
        steps = steps_in(args.minutes, args.model, omniglot, args.on)
    run = Run(args.model, args.on, steps or RECIPES[args.model](1).steps, args.seed)
    train(run, omniglot, args.out, Pace(save=args.save_every, tensorboard=args.tensorboard))


def _evaluate(args: argparse.Namespace) -> None:
    from rarecall.experiments import results
    from rarecall.experiments.omniglot import data, table
    from rarecall.experiments.omniglot.evaluate import evaluate, learner_of
    from rarecall.experiments.omniglot.models import PIXELS

    origin = results.origin(_command(args), args.seed)
    learner, training = (PIXELS, {"model": "pixels"}) if args.pixels else learner_of(*args.weights)
    omniglot = data.load(args.data)
    result = evaluate(learner, omniglot, characters=args.on, episodes=args.episodes, seed=args.seed, quiet=False)
    result = {"model": training["model"], "training": training} | result
    print(table.few_shot_lines(result))
    if args.out:
        results.write(args.out, result, origin)


def _lifelong(args: argparse.Namespace) -> None:
    from rarecall.experiments import results
    from rarecall.experiments.omniglot import data, table
    from rarecall.experiments.omniglot.episodes import MemoryLearner
    from rarecall.experiments.omniglot.evaluate import learner_of
    from rarecall.experiments.omniglot.lifelong import lifelong

    origin = results.origin(_command(args), args.seed)
    learner, training = learner_of(*args.weights)
    if not isinstance(learner, MemoryLearner):
        raise SystemExit(f"{args.weights[0]} holds the model {training['model']!r}, which has no memory to measure.")
    result = lifelong(learner, data.load(args.data), characters=args.on, seed=args.seed)
    result = {"model": training["model"], "training": training} | result
    print(table.lifelong_lines(result))
    if args.out:
        results.write(args.out, result, origin)


def _demo(args: argparse.Namespace) -> None:
    from rarecall.experiments.omniglot import data, demo

    if not args.out.absolute().parent.is_dir():
        raise SystemExit(f"There is no folder {args.out.parent} to write {args.out.name} to; make it first.")
    demo.run(data.load(args.data), args.out, seed=args.seed)


def _command(args: argparse.Namespace) -> str:
    # Where the data is differs from machine to machine.
    names = ("weights", "pixels", "on", "episodes", "seed", "out")
    return command_of(args, ("omniglot", args.omniglot_command), names)
