"""The command `rarecall`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import rarecall
from rarecall.cli import demo, serve

COMMANDS = (demo, serve)
# Packages that only some commands need, and the extra that installs each.
EXTRAS = {"matplotlib": "demo", "tqdm": "demo", "PIL": "serve", "starlette": "serve", "uvicorn": "serve"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the sub-command named by `arguments` (default: the command line)."""
    parser = argparse.ArgumentParser(prog="rarecall", description="A life-long memory for PyTorch networks.")
    parser.add_argument("--version", action="version", version=f"rarecall {rarecall.__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="command", required=True)
    for command in COMMANDS:
        command.add_parser(subparsers)
    args = parser.parse_args(arguments)
    try:
        args.run(args)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        parser.exit(1, f"rarecall {args.command} needs {package}: pip install 'rarecall[{EXTRAS[package]}]'\n")


if __name__ == "__main__":
    main()
