"""Questions and answers between ranks that are not in step, on TCP connections of their own.

The process group only tells the addresses: a thread that waits in a receive of gloo cannot be ended without ending the
process, and one that times out closes the connections of all. torch.distributed.rpc unpickles what it receives.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from rarecall.distributed.owner import Owner, Tensors
from rarecall.distributed.team import Team

TYPES = {str(dtype): dtype for dtype in (torch.float32, torch.float64, torch.int32, torch.int64)}
# Seconds from one look at whether the others are done to the next: little against a training, much against a request.
LOOK_AGAIN = 0.1
KEY = 32  # bytes that whoever connects has to know


class Peers:
    """The connections of a rank: one to each other owner, to ask; one from each other replica, served by a thread.

    Args:
        team: tells the addresses, and at the end that all are done.
        owner: answers.

    Attributes:
        sent: payload bytes so far, of questions and answers.
    """

    def __init__(self, team: Team, owner: Owner) -> None:
        self.team, self.owner, self.size, self.sent, self.lost = team, owner, team.size, 0, ""
        self._one, self._counting = threading.Lock(), threading.Lock()  # one question at a time
        team.meet("asynchronous")
        family, address = _own_address()
        key = secrets.token_bytes(KEY)
        self._to: dict[int, socket.socket] = {}
        self._threads: list[threading.Thread] = []
        with socket.create_server((address, 0), family=family, backlog=team.size) as server:
            told: list[Any] = [None] * team.size
            team._guarded(dist.all_gather_object, told, (address, server.getsockname()[1], key), group=team.group)
            for rank, (host, port, its_key) in enumerate(told):
                if rank != team.rank:
                    self._to[rank] = socket.create_connection((host, port), team.timeout.total_seconds())
                    self._to[rank].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._to[rank].sendall(its_key + struct.pack("<q", team.rank))
            server.settimeout(team.timeout.total_seconds())
            while len(self._threads) < team.size - 1:
                self._welcome(server.accept()[0], key)

    def _welcome(self, asking: socket.socket, key: bytes) -> None:
        """Serve a rank that has connected; close the connection of anyone else."""
        asking.settimeout(self.team.timeout.total_seconds())
        asking.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            said = bytes(_read(asking, KEY + 8))
        except (OSError, EOFError):
            said = b""
        if not hmac.compare_digest(said[:KEY], key):
            asking.close()
            return
        asking.settimeout(None)  # a replica asks when it likes
        [rank] = struct.unpack("<q", said[KEY:])
        thread = threading.Thread(target=self._serve, args=(asking, rank), daemon=True)
        self._threads.append(thread)
        thread.start()

    def ask(self, request: str, given: Sequence[Tensors | None], own: Callable[[], Tensors] | None = None) -> list[Any]:
        """Return the answers of all owners, each to its own question.

        Args:
            request: what is asked.
            given: for each rank; None: it is not asked.
            own: answers for this rank, where that is not as for the others.
        """
        me = self.team.rank
        with self._one:
            self.refuse_if_lost()
            answers: list[Any] = [None] * self.size
            asked = [rank for rank in self._to if given[rank] is not None]
            rank = me
            try:
                for rank in asked:
                    self._send(self._to[rank], request, given[rank] or ())
                rank, mine = me, given[me]
                if mine is not None:
                    answers[me] = self.owner.answer(request, me, mine) if own is None else own()
                for rank in asked:
                    error, answers[rank] = _receive(self._to[rank])
                    if error:
                        raise RuntimeError(error)
            except BaseException as error:
                self.lost = f"rank {rank} did not answer `{request}`: {error or type(error).__name__}"
                if not isinstance(error, Exception):
                    raise
                raise RuntimeError(
                    f"Rank {me} of {self.size}: {self.lost}. Start the ranks again and load the last checkpoint."
                ) from error
        return answers

    def refuse_if_lost(self) -> None:
        """Raise where an earlier request was left without an answer."""
        if self.lost:
            raise RuntimeError(f"A rank was lost before ({self.lost}). Start the ranks again from the last checkpoint.")

    def leave(self) -> None:
        """Wait until the other ranks are done as well, while their questions are answered."""
        self.owner.done = True
        while not all(int(done) for [done] in self.ask("done", [()] * self.size)):
            time.sleep(LOOK_AGAIN)

    def close(self) -> None:
        """End the questions of this rank. Those of the others are answered until they end theirs."""
        for connection in self._to.values():
            connection.close()
        if not self.owner.failed:  # else they tell the others
            for thread in self._threads:
                thread.join(self.team.timeout.total_seconds())

    def _send(self, connection: socket.socket, word: str, tensors: Tensors) -> None:
        length = _send(connection, word, tensors)
        with self._counting:
            self.sent += length

    def _serve(self, asking: socket.socket, rank: int) -> None:
        """Answer a rank until it closes the connection."""
        torch.set_grad_enabled(False)  # of this thread
        with asking:
            while True:
                try:
                    request, given = _receive(asking)
                except (OSError, EOFError):
                    return
                try:
                    said, answer = "", self.owner.answer(request, rank, given)
                except Exception as error:
                    said, answer = str(error) or type(error).__name__, ()
                try:
                    self._send(asking, said, answer)
                except OSError:
                    return

    def __deepcopy__(self, memo: Any) -> Any:
        raise RuntimeError("A memory cannot be copied inside `asynchronous`. Leave the block first.")


def _own_address() -> tuple[int, str]:
    """Return the address at which this machine can be reached by the others: from which it reaches rank 0."""
    host = os.environ.get("MASTER_ADDR", "127.0.0.1")
    family, kind, protocol, _, address = socket.getaddrinfo(host, 1, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(address)  # of datagrams: nothing is sent
        return family, probe.getsockname()[0]


# ---- a message: lengths of header and body; header: a word, type and shape of each tensor; body: the tensors ----


def _send(connection: socket.socket, word: str, tensors: Tensors) -> int:
    kinds = [None if tensor is None else [str(tensor.dtype), list(tensor.shape)] for tensor in tensors]
    header = json.dumps([word, kinds]).encode()
    body = b"".join(tensor.detach().numpy().tobytes() for tensor in tensors if tensor is not None)
    connection.sendall(struct.pack("<QQ", len(header), len(body)) + header + body)
    return 16 + len(header) + len(body)


def _receive(connection: socket.socket) -> tuple[str, list[Tensor | None]]:
    lengths = struct.unpack("<QQ", _read(connection, 16))
    word, kinds = json.loads(bytes(_read(connection, lengths[0])))
    body, start = torch.frombuffer(_read(connection, lengths[1]) or bytearray(1), dtype=torch.uint8), 0
    tensors: list[Tensor | None] = []
    for kind in kinds:
        if kind is None:
            tensors.append(None)
            continue
        dtype, shape = TYPES[kind[0]], torch.Size(kind[1])
        end = start + shape.numel() * dtype.itemsize
        tensors.append(body[start:end].clone().view(dtype).view(shape))
        start = end
    return word, tensors


def _read(connection: socket.socket, length: int) -> bytearray:
    data = bytearray(length)
    view, got = memoryview(data), 0
    while got < length:
        count = connection.recv_into(view[got:])
        if not count:
            raise EOFError("the connection was closed")
        got += count
    return data
