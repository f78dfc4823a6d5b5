"""rarecall serve: a page and an HTTP service; see `rarecall.serve`."""

from __future__ import annotations

import argparse
import contextlib
import logging
import tempfile
from pathlib import Path

HOST, PORT, RATE = "127.0.0.1", 8765, 1000.0


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the sub-command `serve`."""
    parser = subparsers.add_parser(
        "serve",
        help="serve a page where anyone teaches a memory, and an HTTP API for programs",
        description="Serve a folder with one or more taught memories: a page for people, a JSON API for programs. Only "
        "this machine can connect, unless --host says otherwise. Then a token is required, which is printed once or "
        "set by the environment variable RARECALL_TOKEN.",
    )
    add = parser.add_argument
    add("folder", nargs="?", type=Path, help="folder of the memory; created if it does not exist")
    add("--demo", action="store_true", help="serve a temporary folder with something to try")
    add(
        "--embedder",
        metavar="NAME",
        help="omniglot, minilm, efficientnet or module:function (default: the one that the folder was taught with; for "
        "a new folder all three, as far as they are installed)",
    )
    kinds = ("text", "drawing", "picture")
    add("--kind", choices=kinds, help="what your own embedder embeds (default: what its `kind` says, else text)")
    add("--host", default=HOST, help="address to listen on; 0.0.0.0 for all addresses (default: %(default)s)")
    add("--port", type=int, default=PORT, help="port to listen on; 0 for any free one (default: %(default)s)")
    names = "further name to accept in Host headers, such as a proxy's; may be repeated (default: none)"
    add("--allow-host", action="append", default=[], metavar="NAME", help=names)
    add("--rate", type=float, default=RATE, help="requests a second per address; 0 for no limit (default: %(default)g)")
    add("--certificate", nargs=2, type=Path, metavar=("CERT", "KEY"), help="files for https (default: plain http)")
    add("--readonly", action="store_true", help="follow a folder that another process teaches")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    if (args.folder is None) != args.demo:
        raise ValueError("serve needs a folder, or --demo, and not both.")
    # Imported here, so that `rarecall --help` works without starlette and uvicorn.
    from rarecall.serve import demo, run

    logging.basicConfig(format="%(message)s")
    with contextlib.ExitStack() as stack:
        folder = args.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rarecall-")))
        memories = run.open_memories(folder, args.embedder, args.kind, args.readonly)
        for memory in memories:
            stack.callback(memory.close)
            if args.demo:
                demo.teach(memory)
        certificate = tuple(args.certificate) if args.certificate else None
        run.serve(memories, args.host, args.port, tuple(args.allow_host), args.rate, certificate)
