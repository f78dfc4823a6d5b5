"""python -m experiments.synthetic train | evaluate | teach | pack | table

Synthetic task, a random function to remember: the paper's second table.
Every sub-command explains its options with --help.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from experiments.command import add_pack, add_table, command_of, count, run, share

MODELS = ("neural-gpu", "seq2seq")
PRESETS = ("paper", "small")
CHOSEN = ("units", "capacity", "forced", "batch", "rate", "hide", "first", "short", "seed", "bfloat16")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the sub-command named by `arguments` (default: the command line)."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.synthetic",
        description="Synthetic task, a random function to remember: the paper's second table.",
    )
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)

    training = commands.add_parser("train", help="train a model; run the same command again to resume")
    training.add_argument("--model", choices=MODELS, required=True)
    training.add_argument("--memory", action="store_true", help="use a memory")
    training.add_argument("--preset", choices=PRESETS, default="paper", help="the full task, or one that takes minutes")
    training.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of the run, e.g. runs/a")
    training.add_argument("--steps", type=count, metavar="N", help="number of steps (default: the preset's)")
    training.add_argument("--units", type=count, metavar="N", help="channels, or units per layer")
    training.add_argument("--capacity", type=count, metavar="N", help="slots of the memory (default: the preset's)")
    training.add_argument(
        "--fixed",
        action="store_true",
        help="use the same examples in every epoch, rather than new As and Bs around the numbers",
    )
    training.add_argument(
        "--forced", type=share, metavar="S", help="fraction of sequences trained with teacher forcing"
    )
    training.add_argument(
        "--hide", type=share, metavar="S", help="hide up to this share of a sequence's As and Bs, drawn for each"
    )
    training.add_argument("--batch", type=count, metavar="N", help="sequences per step")
    training.add_argument("--rate", type=float, metavar="R", help="peak learning rate")
    training.add_argument(
        "--first", type=int, metavar="N", help="numbers in the first level of the curriculum; 0: no curriculum"
    )
    training.add_argument("--short", type=count, metavar="N", help="maximum length until all numbers are used")
    training.add_argument(
        "--from", type=Path, dest="begin", metavar="FILE", help="initialise the weights with those of a trained network"
    )
    training.add_argument(
        "--bfloat16",
        action=argparse.BooleanOptionalAction,
        help="compute the network in bfloat16: faster where the processor has it",
    )
    training.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
    training.add_argument("--save-every", type=count, default=250, metavar="N", help="steps between checkpoints")
    training.add_argument("--tensorboard", action="store_true", help="also write metrics for TensorBoard")
    training.set_defaults(run=_train)

    evaluating = commands.add_parser("evaluate", help="measure fully correct test sequences, and inspect the memory")
    model = evaluating.add_mutually_exclusive_group(required=True)
    model.add_argument("--weights", type=Path, metavar="FILE", help="weights of a trained model")
    model.add_argument(
        "--hamming", choices=PRESETS, metavar="PRESET", help="evaluate the Hamming nearest neighbour on a preset"
    )
    evaluating.add_argument(
        "--capacities",
        type=count,
        nargs="+",
        default=[],
        metavar="N",
        help="also fill and measure memories of these sizes",
    )
    evaluating.add_argument("--out", type=Path, metavar="FILE", help="write the result to this file, as JSON")
    evaluating.set_defaults(run=_evaluate)

    teaching = commands.add_parser("teach", help="show new numbers once after training, and ask for them")
    teaching.add_argument("--weights", type=Path, required=True, metavar="FILE", help="weights of a trained model")
    teaching.add_argument("--numbers", type=count, default=1000, metavar="N", help="number of new numbers")
    teaching.add_argument(
        "--refill", action="store_true", help="fill the memory from the training examples first, in two passes"
    )
    teaching.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
    teaching.add_argument("--out", type=Path, metavar="FILE", help="write the result to this file, as JSON")
    teaching.set_defaults(run=_teach)

    add_pack(commands, "synthetic")
    add_table(commands, "synthetic")
    run(parser, arguments)


# Experiments are imported inside the functions that run them, so that --help does not import torch.


def _train(args: argparse.Namespace) -> None:
    from experiments.synthetic.evaluate import network_of
    from experiments.synthetic.presets import make_run
    from experiments.synthetic.train import train
    from experiments.training import Pace, steps_of

    chosen = {name: getattr(args, name) for name in CHOSEN}
    steps = args.steps or steps_of(args.out)
    begin = None
    if args.begin:
        begin, before = network_of(args.begin)
        chosen["begun_with"] = f"{before['steps']} steps of {args.begin.name}, seed {before['seed']}"
    run = make_run(args.preset, args.model, memory=args.memory, steps=steps, anew=not args.fixed, **chosen)
    train(run, args.out, Pace(save=args.save_every, tensorboard=args.tensorboard), begin)


def _evaluate(args: argparse.Namespace) -> None:
    from experiments import results
    from experiments.synthetic import table
    from experiments.synthetic.evaluate import evaluate, evaluate_hamming, network_of
    from experiments.synthetic.presets import PRESETS, preset_of

    command = command_of(args, "synthetic", ("weights", "hamming", "out", "capacities"))
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
    from experiments import results
    from experiments.synthetic.answers import refill
    from experiments.synthetic.evaluate import network_of
    from experiments.synthetic.presets import preset_of
    from experiments.synthetic.table import plus_minus
    from experiments.synthetic.task import Data, Task
    from experiments.synthetic.teach import teach

    command = command_of(args, "synthetic", ("weights", "numbers", "refill", "seed", "out"))
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


if __name__ == "__main__":
    main()
