"""The command `rarecall`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import rarecall
from rarecall.cli import demo, omniglot, synthetic, translate

COMMANDS = (demo, omniglot, synthetic, translate)
# What only the experiments need, and the extra that installs it.
EXTRAS = {
    "matplotlib": "experiments",
    "PIL": "experiments",
    "tqdm": "experiments",
    "sacrebleu": "translate",
    "sentencepiece": "translate",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the arguments, those of the command line by default, and runs the sub-command they name."""
    parser = argparse.ArgumentParser(prog="rarecall", description="A life-long memory for PyTorch networks.")
    parser.add_argument("--version", action="version", version=f"rarecall {rarecall.__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="command", required=True)
    for command in COMMANDS:
        command.add_parser(subparsers)
    args = parser.parse_args(arguments)
    try:
        args.run(args)
    except ModuleNotFoundError as error:
        # The library itself runs without what its experiments need.
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        parser.exit(1, f"rarecall {args.command} needs {package}: pip install 'rarecall[{EXTRAS[package]}]'\n")


if __name__ == "__main__":
    main()
