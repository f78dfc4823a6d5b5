"""Open folders and serve them until Ctrl-C."""

from __future__ import annotations

import errno
import logging
import os
import secrets
import socket
import sys
from pathlib import Path
from typing import Any

import uvicorn

import rarecall
from rarecall.integrations import embedders
from rarecall.serve.app import Service
from rarecall.serve.memories import Served
from rarecall.serve.security import RATE, Policy, is_loopback

log = logging.getLogger("rarecall")

# The memories of a folder that holds several, by the embedder of each.
MEMORIES = {"drawings": "omniglot", "text": "minilm", "pictures": "efficientnet"}
PORT = 8765
TOKEN = "RARECALL_TOKEN"  # the environment variable that sets the token
CONNECTIONS = 512  # at once; more are answered 503
HEADERS = 32 * 1024  # bytes of a request's headers, at most


def open_memories(
    folder: Path, embedder: str | None = None, kind: str | None = None, readonly: bool = False
) -> list[Served]:
    """Open what a folder holds: one memory; or several, for drawings, text and pictures, each in a folder of its own.

    Args:
        folder: made where there is none.
        embedder: its name, for a folder with one memory; by default the one that it was taught with.
        kind: what its examples are; by default what the embedder's `kind` says, else text.
        readonly: follow what another process teaches.
    """
    if embedder is not None or (folder / "journal.sqlite").exists():
        embed = embedders.load(embedder) if embedder is not None else _taught_with(folder)
        return [_open(folder, folder.resolve().name, embed, kind, readonly)]
    opened = []
    for name, embedder in MEMORIES.items():
        if readonly and not (folder / name / "journal.sqlite").exists():
            continue
        try:
            opened.append(_open(folder / name, name, embedders.load(embedder), None, readonly))
        except (ModuleNotFoundError, FileNotFoundError) as error:
            log.warning("Without %s: %s", name, error)
    if not opened:
        raise ValueError("No embedder is installed: pip install 'rarecall[text,images]', or name one with --embedder.")
    return opened


def _open(folder: Path, name: str, embed: Any, kind: str | None, readonly: bool) -> Served:
    return Served(name, kind or str(getattr(embed, "kind", "text")), rarecall.open(folder, embed, readonly=readonly))


def _taught_with(folder: Path) -> Any:
    """The embedder that a folder was taught with, where its name leads to one."""
    with rarecall.open(folder, readonly=True) as kept:
        name = kept.settings.get("embedder")
    try:
        return embedders.load(str(name))
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        told = f"{folder} was taught with the embedder {name}, which cannot be made by its name ({error})."
        raise ValueError(f"{told} Name one with --embedder.") from error


def serve(
    memories: list[Served],
    host: str = "127.0.0.1",
    port: int = PORT,
    names: tuple[str, ...] = (),
    rate: float = RATE,
    certificate: tuple[Path, Path] | None = None,
) -> None:
    """Serve until Ctrl-C. Beyond loopback a token is required: that of the environment, or a new one, printed once.

    Args:
        memories: what is served; closed at the end.
        host: the address to listen at.
        port: 0 for any that is free.
        names: further names that the service goes by.
        rate: requests a second from one address; 0: any number.
        certificate: files of a TLS certificate and its key.
    """
    token = os.environ.get(TOKEN) or (None if is_loopback(host) else secrets.token_urlsafe(32))
    policy = Policy(host, frozenset(name.lower() for name in names), token, rate)
    with listen(host, port) as listening:
        at = f"[{host}]" if ":" in host else host
        url = f"http{'s' if certificate else ''}://{at}:{listening.getsockname()[1]}/"
        # The token stands behind #, which a browser keeps for itself.
        print(f"rarecall is at {url}{f'#token={token}' if token else ''}   (Ctrl-C ends it)", flush=True)
        for memory in memories:
            kept = memory.classifier
            print(
                f"  {memory.name}: {len(kept)} examples of {len(kept.classes())} classes, in {kept.folder}", flush=True
            )
        if not is_loopback(host) and not certificate:
            print(
                "Without --certificate the token and all that is taught cross the network unencrypted.", file=sys.stderr
            )
        files = dict(zip(("ssl_certfile", "ssl_keyfile"), certificate or (), strict=False))
        make_server(memories, policy, **files).run(sockets=[listening])


def make_server(memories: list[Served], policy: Policy, **options: Any) -> uvicorn.Server:
    """Return the server of memories; `options` are those of uvicorn."""
    config = uvicorn.Config(
        Service(memories, policy).app,
        log_level="error",  # not what strangers send, only what goes wrong here
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        limit_concurrency=CONNECTIONS,
        h11_max_incomplete_event_size=HEADERS,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=1,
        **options,
    )
    return uvicorn.Server(config)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens, so that its port is known before the server runs."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio sends small answers at once (TCP_NODELAY).
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise ValueError(f"Port {port} of {host} is in use. Name another: --port {port + 1}.") from error
        raise ValueError(f"Cannot listen at {host}, port {port}: {error.strerror or error}.") from error
    listening.listen(128)
    return listening
