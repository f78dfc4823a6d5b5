"""Arguments and sub-commands that the experiments share."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path

# Packages that the library does not require, and the extra that installs each.
EXTRAS = {
    "matplotlib": "experiments",
    "PIL": "experiments",
    "tqdm": "experiments",
    "sacrebleu": "translate",
    "sentencepiece": "translate",
}


def count(text: str) -> int:
    """Parse a positive integer."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a count; expected 1, 2, 3, ...")
    return int(text)


def share(text: str) -> float:
    """Parse a fraction from 0 to 1."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a fraction; expected a number from 0 to 1")
    return number


def run(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> None:
    """Parse the arguments (default: the command line) and run the sub-command they name.

    What a user can mend, such as a file that is not there, is told in a sentence; `--debug` shows where it comes from.
    """
    parser.add_argument("--debug", action="store_true", help="show where an error comes from; before the command")
    args = parser.parse_args(arguments)
    try:
        args.run(args)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        parser.exit(1, f"{parser.prog} needs {package}: pip install --editable '.[{EXTRAS[package]}]'\n")
    except (ValueError, OSError) as error:
        if args.debug:
            raise
        parser.exit(1, f"{parser.prog}: {error}\n")


def command_of(args: argparse.Namespace, experiment: str, names: Iterable[str]) -> str:
    """Return the command that reproduces a result: the sub-command, and the options among `names` that were given."""
    found = ["python", "-m", f"experiments.{experiment}", args.command]
    for name in names:
        given = getattr(args, name, None)
        if given is True:
            found.append(f"--{name}")
        elif given is not None and given is not False and given != []:  # 0 counts as given
            found += [f"--{name}", *map(str, given if isinstance(given, list) else [given])]
    return shlex.join(found)


# Experiments are imported inside the functions that run them, so that --help does not import torch.


def add_pack(commands: argparse._SubParsersAction[argparse.ArgumentParser], experiment: str) -> argparse.ArgumentParser:
    """Add the sub-command `pack`, which calls the experiment's function `pack.pack`, and return its parser."""
    packing = commands.add_parser("pack", help="write a trained network with only the newest slots of its memory")
    packing.add_argument(
        "--weights", type=Path, required=True, metavar="FILE", help="weights of a trained network with memory"
    )
    packing.add_argument("--slots", type=count, required=True, metavar="N", help="number of slots to keep")
    packing.add_argument("--out", type=Path, required=True, metavar="FILE", help="output file")
    packing.set_defaults(run=_pack, experiment=experiment)
    return packing


def _pack(args: argparse.Namespace) -> None:
    more = {"on": args.on} if "on" in args else {}
    kept = import_module(f"experiments.{args.experiment}.pack").pack(args.weights, args.slots, args.out, **more)
    print(f"Wrote {args.out} with {kept} slots, {args.out.stat().st_size / 1e6:.1f} MB.")


def add_table(commands: argparse._SubParsersAction[argparse.ArgumentParser], experiment: str) -> None:
    """Add the sub-command `table`, which calls the experiment's modules `table` and `plots`."""
    table = commands.add_parser("table", help="print the paper's table next to our results, from results/*.json")
    table.add_argument("--results", type=Path, metavar="DIR", help="folder of result files (default: results/)")
    table.add_argument("--plots", type=Path, metavar="DIR", help="also draw the plots to this folder")
    table.set_defaults(run=_table, experiment=experiment)


def _table(args: argparse.Namespace) -> None:
    from experiments import results

    folder = args.results or results.FOLDER
    print(import_module(f"experiments.{args.experiment}.table").table(folder))
    if args.plots:
        import_module(f"experiments.{args.experiment}.plots").draw(folder, args.plots)
