"""rarecall synthetic: see `rarecall.experiments.synthetic`."""

from __future__ import annotations

import argparse
from pathlib import Path

from rarecall.cli.common import add_pack, add_table, command_of, count, share

MODELS = ("neural-gpu", "seq2seq")
PRESETS = ("paper", "small")
CHOSEN = ("units", "capacity", "forced", "batch", "rate", "first", "short", "seed")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `rarecall synthetic` and its own sub-commands."""
    synthetic = subparsers.add_parser("synthetic", help="a random function to remember: the paper's second table")
    commands = synthetic.add_subparsers(dest="synthetic_command", metavar="command", required=True)

    training = commands.add_parser("train", help="train a model; the same command goes on where it was stopped")
    training.add_argument("--model", choices=MODELS, required=True)
    training.add_argument("--memory", action="store_true", help="with a memory")
    training.add_argument("--preset", choices=PRESETS, default="paper", help="the full task, or one of minutes")
    training.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of the run, such as runs/a")
    training.add_argument("--steps", type=count, metavar="N", help="of the whole run; the preset's by default")
    training.add_argument("--units", type=count, metavar="N", help="channels, or units in a layer")
    training.add_argument("--capacity", type=count, metavar="N", help="slots of the memory; the preset's by default")
    training.add_argument(
        "--fixed", action="store_true", help="the same examples in each epoch, and not new As and Bs around the numbers"
    )
    training.add_argument("--forced", type=share, metavar="S", help="share of sequences trained on the right output")
    training.add_argument("--batch", type=count, metavar="N", help="sequences in a step")
    training.add_argument("--rate", type=float, metavar="R", help="the greatest learning rate")
    training.add_argument("--first", type=int, metavar="N", help="numbers that training begins with; 0: all at once")
    training.add_argument("--short", type=count, metavar="N", help="greatest length until all numbers take part")
    training.add_argument("--seed", type=int, default=0)
    training.add_argument("--save-every", type=count, default=250, metavar="N", help="steps between checkpoints")
    training.add_argument("--tensorboard", action="store_true", help="write the figures for TensorBoard as well")
    training.set_defaults(run=_train)

    evaluating = commands.add_parser("evaluate", help="fully correct test sequences, and a look inside")
    model = evaluating.add_mutually_exclusive_group(required=True)
    model.add_argument("--weights", type=Path, metavar="FILE", help="of a trained model")
    model.add_argument("--hamming", choices=PRESETS, metavar="PRESET", help="the Hamming nearest neighbour on a preset")
    evaluating.add_argument(
        "--capacities", type=count, nargs="+", default=[], metavar="N", help="fill memories of these sizes as well"
    )
    evaluating.add_argument("--out", type=Path, metavar="FILE", help="write the figures there, as JSON")
    evaluating.set_defaults(run=_evaluate)

    teaching = commands.add_parser("teach", help="show new numbers once after training, and ask for them")
    teaching.add_argument("--weights", type=Path, required=True, metavar="FILE", help="of a trained model")
    teaching.add_argument("--numbers", type=count, default=1000, metavar="N", help="how many")
    teaching.add_argument(
        "--refill", action="store_true", help="fill the memory from the training examples first, in two passes"
    )
    teaching.add_argument("--seed", type=int, default=0)
    teaching.add_argument("--out", type=Path, metavar="FILE", help="write the figures there, as JSON")
    teaching.set_defaults(run=_teach)

    add_pack(commands, "synthetic")
    add_table(commands, "synthetic")


# The experiments are imported where they run, so that the help of a command does not wait for torch.


def _train(args: argparse.Namespace) -> None:
    from rarecall.experiments.synthetic.presets import make_run
    from rarecall.experiments.synthetic.train import train
    from rarecall.experiments.training import Pace, steps_of

    chosen = {name: getattr(args, name) for name in CHOSEN}
    steps = args.steps or steps_of(args.out)
    run = make_run(args.preset, args.model, memory=args.memory, steps=steps, anew=not args.fixed, **chosen)
    train(run, args.out, Pace(save=args.save_every, tensorboard=args.tensorboard))


def _evaluate(args: argparse.Namespace) -> None:
    from rarecall.experiments import results
    from rarecall.experiments.synthetic import table
    from rarecall.experiments.synthetic.evaluate import evaluate, evaluate_hamming, network_of
    from rarecall.experiments.synthetic.presets import PRESETS, preset_of

    command = command_of(args, ("synthetic", "evaluate"), ("weights", "hamming", "out", "capacities"))
    if args.hamming:
        task = PRESETS[args.hamming].task
        origin = results.origin(command, task.seed)
        result = {"model": "hamming", "preset": args.hamming} | evaluate_hamming(task)
    else:
        network, training = network_of(args.weights)
        origin = results.origin(command, training["seed"])
        name = training["model"] + (" with memory" if training["capacity"] else "")
        result = {"model": name, "preset": preset_of(training["task"]), "training": training}
        result |= evaluate(network, training, capacities=tuple(args.capacities))
    print(table.lines_of(result))
    if args.out:
        results.write(args.out, result, origin)


def _teach(args: argparse.Namespace) -> None:
    from rarecall.experiments import results
    from rarecall.experiments.synthetic.answers import refill
    from rarecall.experiments.synthetic.evaluate import network_of
    from rarecall.experiments.synthetic.presets import preset_of
    from rarecall.experiments.synthetic.table import plus_minus
    from rarecall.experiments.synthetic.task import Data, Task
    from rarecall.experiments.synthetic.teach import teach

    command = command_of(args, ("synthetic", "teach"), ("weights", "numbers", "refill", "seed", "out"))
    network, training = network_of(args.weights)
    origin = results.origin(command, args.seed)
    if args.refill:
        network = refill(training, network, Data(Task(**training["task"])), training["capacity"], quiet=False)
    name = training["model"] + (" with memory" if training["capacity"] else "")
    result = {"model": name, "preset": preset_of(training["task"]), "refilled": args.refill, "training": training}
    result |= teach(network, training, numbers=args.numbers, seed=args.seed)
    figures = result["figures"]
    print(f"{args.numbers} new numbers, fully correct: before {plus_minus(figures['before'])}, ", end="")
    print(f"after they were shown once {plus_minus(figures['new numbers'])}")
    print(f"others: before {plus_minus(figures['validation before'])}, after {plus_minus(figures['validation after'])}")
    if args.out:
        results.write(args.out, result, origin)
