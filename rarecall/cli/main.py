"""The command `rarecall`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import rarecall
from rarecall.cli import demo, kept, serve
from rarecall.store.folder import FolderError

COMMANDS = (demo, kept, serve)
# Packages that only some commands need, and the extra that installs each.
EXTRAS = {"matplotlib": "demo", "tqdm": "demo", "pyarrow": "tables"} | dict.fromkeys(
    ("PIL", "starlette", "uvicorn"), "serve"
)


# What a user can put right; anything else is a fault of ours.
EXPECTED = (ValueError, OSError, KeyError, TypeError, FolderError)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the sub-command named by `arguments` (default: the command line)."""
    parser = argparse.ArgumentParser(prog="rarecall", description="A life-long memory for PyTorch networks.")
    parser.add_argument("--version", action="version", version=f"rarecall {rarecall.__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="command", required=True)
    for command in COMMANDS:
        command.add_parser(subparsers)
    for each in (parser, *subparsers.choices.values()):  # before the command or behind it
        each.add_argument(
            "--debug", action="store_true", default=argparse.SUPPRESS, help="show where an error comes from"
        )
    args = parser.parse_args(arguments)
    try:
        args.run(args)
    except KeyboardInterrupt:
        parser.exit(130)
    except Exception as error:
        if "debug" in args:
            raise
        parser.exit(1, f"rarecall {args.command}: {_sentence(args.command, error)}\n")


def _sentence(command: str, error: Exception) -> str:
    """What is told of an error in place of a traceback."""
    package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if package in EXTRAS:
        return f"it needs {package}: pip install 'rarecall[{EXTRAS[package]}]'"
    if isinstance(error, EXPECTED):
        return str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return f"unexpected {type(error).__name__}: {error}\nWith --debug it shows where. Please report it."


if __name__ == "__main__":
    main()
