"""Open folders and serve them until Ctrl-C."""

from __future__ import annotations

import errno
import logging
import os
import secrets
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn

import rarecall
from rarecall.serve import embedders
from rarecall.serve.app import Service
from rarecall.serve.memories import Served
from rarecall.serve.security import RATE, Policy, is_loopback

log = logging.getLogger("rarecall")

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
        kind: what the examples of an embedder are that is not ours.
        readonly: follow what another process teaches.
    """
    if embedder is not None or (folder / "journal.sqlite").exists():
        name = embedder or _taught_with(folder)
        return [_open(folder, folder.resolve().name, kind or embedders.kind_of(name), name, readonly)]
    opened = list(_open_several(folder, readonly))
    if not opened:
        raise ValueError(
            "No embedder is installed: pip install 'rarecall[serve,text,images]', or name one, --embedder."
        )
    return opened


def _open_several(folder: Path, readonly: bool) -> Iterator[Served]:
    for name, (kind, embedder) in embedders.MEMORIES.items():
        if readonly and not (folder / name / "journal.sqlite").exists():
            continue
        try:
            yield _open(folder / name, name, kind, embedder, readonly)
        except (ModuleNotFoundError, FileNotFoundError) as error:
            log.warning("Without %s: %s", name, error)


def _open(folder: Path, name: str, kind: str, embedder: str, readonly: bool) -> Served:
    return Served(name, kind, rarecall.open(folder, embedders.make(embedder, kind), readonly=readonly))


def _taught_with(folder: Path) -> str:
    with rarecall.open(folder, readonly=True) as kept:
        name = kept.settings.get("embedder")
    if not name:
        raise ValueError(f"{folder} does not say which embedder it was taught with. Name it: --embedder.")
    return str(name)


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
        log_level="warning",
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
    listening = socket.socket(family, socket.SOCK_STREAM)
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
