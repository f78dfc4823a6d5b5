"""rarecall omniglot: train, evaluate and tabulate the models of the paper's first table."""

from __future__ import annotations

import argparse
from typing import Any

from rarecall.experiments.omniglot import data
from rarecall.experiments.omniglot.models import RECIPES
from rarecall.experiments.omniglot.train import Run, steps_in, steps_of, train


def add_parser(subparsers: Any) -> None:
    """Adds `omniglot` and its own sub-commands."""
    omniglot = subparsers.add_parser("omniglot", help="characters from one drawing: the paper's first table")
    commands = omniglot.add_subparsers(required=True, metavar="command")

    training = commands.add_parser("train", help="train a model; the same command goes on where it was stopped")
    _add_data(training)
    training.add_argument("--model", choices=sorted(RECIPES), default="ours")
    training.add_argument("--out", required=True, metavar="DIR", help="folder of the run, such as runs/ours")
    training.add_argument("--on", choices=("train", "trainval"), default="train", help="characters to train on")
    budget = training.add_mutually_exclusive_group()
    budget.add_argument("--steps", type=_positive, metavar="N", help="steps of the whole run; the recipe's by default")
    budget.add_argument("--minutes", type=float, metavar="M", help="as many steps as this machine makes in M minutes")
    training.add_argument("--seed", type=int, default=0)
    training.add_argument("--save-every", type=_positive, default=250, metavar="N", help="steps between checkpoints")
    training.add_argument("--tensorboard", action="store_true", help="write figures for TensorBoard as well")
    training.set_defaults(run=_train)


def _add_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", metavar="DIR", help="holds omniglot/images_background.zip; default: $RARECALL_DATA")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not 1 or greater")
    return number


def _train(arguments: argparse.Namespace) -> None:
    omniglot = data.load(arguments.data)
    steps = arguments.steps or steps_of(arguments.out)
    if steps is None and arguments.minutes is not None:
        steps = steps_in(arguments.minutes, arguments.model, omniglot, arguments.on)
    if steps is None:
        steps = RECIPES[arguments.model](1).steps
    run = Run(arguments.model, arguments.on, steps, arguments.seed)
    train(run, omniglot, arguments.out, save_every=arguments.save_every, tensorboard=arguments.tensorboard)
