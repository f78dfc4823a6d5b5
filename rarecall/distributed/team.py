"""The ranks that hold a memory together, and what they say to each other."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

NUMBERS = 6  # that a rank may tell the others when they meet
_ALL_GATHER: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # its name before torch 2.13


class Team:
    """The ranks of a one-dimensional mesh, in a process group of their own, so that no other traffic comes between.

    A call of a memory begins with `meet`: every rank says what it is about to do. A rank that cannot says so instead
    (`refuse`), and all ranks raise: none is left waiting. The same where they are about to do different things.

    Attributes:
        rank, size: of the mesh's dimension.
        timeout: within which the others have to answer.
        sent: payload bytes that this rank has sent to others so far.
        lost: why the ranks can no longer work together; None while they can.
    """

    def __init__(self, mesh: DeviceMesh, timeout: timedelta | None) -> None:
        of_mesh = mesh.get_group()
        self.mesh, self.device = mesh, torch.device(mesh.device_type)
        self.timeout = of_mesh._get_backend(self.device).options._timeout if timeout is None else timeout
        self.group = dist.new_group(
            dist.get_process_group_ranks(of_mesh),
            timeout=self.timeout,
            backend=dist.get_backend(of_mesh),
            use_local_synchronization=True,
        )
        self.rank, self.size = dist.get_rank(self.group), dist.get_world_size(self.group)
        self.sent, self.lost = 0, ""
        self._expected = self._agreed = False  # whether others wait for a call to begin; whether all ranks raise

    # ---- together or not at all ----

    def call(self, name: str, method: Callable[..., Any], *args: Any) -> Any:
        """Return what a method returns that all ranks call. Where this rank cannot, the others raise too."""
        self.refuse_if_lost()
        self._expected, self._agreed = True, False
        try:
            return method(*args)
        except Exception as error:
            if self._expected and not self.lost:
                self.refuse(name, error)
            elif not self._agreed and not self.lost:
                self._leave(error)
            raise

    def raise_together(self, check: Callable[..., None], *args: Any) -> None:
        """Check what all ranks have heard, so that all of them raise the same or none does."""
        self._agreed = True
        check(*args)
        self._agreed = False

    def meet(self, call: str, *numbers: int) -> Tensor:
        """Wait for all ranks to make the same call; return what each says, (size, NUMBERS) int64 on the CPU."""
        return self._meet(call, 0, numbers)

    def refuse(self, call: str, error: Exception) -> None:
        """Meet the others only to tell them that this rank cannot make the call; they raise."""
        try:
            self._meet(call, 1, (), f"{type(error).__name__}: {error}")
        except _RefusedError:
            return

    def _meet(self, call: str, refused: int, numbers: Sequence[int], why: str = "") -> Tensor:
        said = [zlib.crc32(call.encode()), refused, *numbers, *[0] * (NUMBERS - len(numbers))]
        heard = self._all_gather(torch.tensor(said, device=self.device)).view(self.size, -1).cpu()
        if int(heard[:, 1].sum()) == 0 and bool((heard[:, 0] == heard[0, 0]).all()):
            self._expected = False
            return heard[:, 2:]
        told: list[Any] = [None] * self.size
        self._guarded(dist.all_gather_object, told, (call, why), group=self.group)
        self._expected, self._agreed = False, True
        if refused:
            raise _RefusedError
        for rank, (its_call, its_reason) in enumerate(told):
            if its_reason:
                raise ValueError(f"Rank {rank} refused `{its_call}`, so no rank did it. {its_reason}")
        calls = ", ".join(f"rank {rank} `{its_call}`" for rank, (its_call, _) in enumerate(told))
        raise RuntimeError(
            f"The ranks make different calls: {calls}. All of them must make the same calls of a distributed memory in "
            "the same order; a rank without examples passes empty tensors."
        )

    def _leave(self, error: Exception) -> None:
        """Something failed on this rank alone, in the middle of a call: the others lose the connection, not time."""
        self.lost = f"{type(error).__name__}: {error}"
        time.sleep(
            0.1
        )  # for gloo's threads to end: the group's destructor waits for them, holding the GIL that they need
        dist.destroy_process_group(self.group)

    def refuse_if_lost(self) -> None:
        """Raise where an earlier call failed on the way, so that ranks may hold what does not belong together."""
        if self.lost:
            raise RuntimeError(
                f"A rank was lost in an earlier call ({self.lost}), and this memory may hold half of an update. Start "
                "the ranks again and load the last checkpoint."
            )

    def _guarded(self, collective: Any, *args: Any, **kwargs: Any) -> None:
        try:
            collective(*args, **kwargs)
        except BaseException as error:
            self.lost = f"{type(error).__name__}: {error}"
            if not isinstance(error, Exception):
                raise
            raise RuntimeError(
                f"Rank {self.rank} of {self.size} has lost the others in the middle of a call: {self.lost}. A rank has "
                "died or did not come within the timeout. Start the ranks again and load the last checkpoint."
            ) from error

    # ---- what travels ----

    def _all_gather(self, tensor: Tensor) -> Tensor:
        """Tensors of one size from all ranks, one after the other."""
        out = tensor.new_empty(self.size * tensor.numel())
        self.sent += (self.size - 1) * tensor.numel() * tensor.itemsize
        self._guarded(_ALL_GATHER, out, tensor.contiguous().view(-1), group=self.group)
        return out

    def gather(self, rows: Tensor, counts: Sequence[int]) -> Tensor:
        """Return the rows of all ranks in the order of the ranks; rows: (counts[rank], ...)."""
        if len(set(counts)) == 1:
            return self._all_gather(rows).view(-1, *rows.shape[1:])
        return self.exchange(rows.repeat(self.size, *[1] * (rows.ndim - 1)), [len(rows)] * self.size, counts)

    def exchange(self, rows: Tensor, to: Sequence[int], of: Sequence[int] | None = None) -> Tensor:
        """Send rows to ranks; return those that came, in the order of the ranks.

        Args:
            rows: (sum of `to`, ...), those for rank 0 first.
            to: how many for each rank.
            of: how many come from each rank; None: they are asked.
        """
        if of is None:
            of = self.counts(to)
        width = rows.shape[1:].numel()
        out = rows.new_empty((sum(of), *rows.shape[1:]))
        self.sent += (len(rows) - to[self.rank]) * width * rows.itemsize
        splits = ([count * width for count in counts] for counts in (of, to))
        args = out.view(-1), rows.contiguous().view(-1), *splits
        self._guarded(dist.all_to_all_single, *args, group=self.group)
        return out

    def counts(self, to: Sequence[int]) -> list[int]:
        """Return how many rows come from each rank, from how many go to each."""
        out = torch.empty(self.size, dtype=torch.int64, device=self.device)
        self.sent += 8 * (self.size - 1)
        self._guarded(dist.all_to_all_single, out, torch.tensor(to, device=self.device), group=self.group)
        return out.tolist()

    def first(self, number: int) -> int:
        """Return the number of rank 0."""
        tensor = torch.tensor(number, device=self.device)
        self.sent += 8 * (self.size - 1) if self.rank == 0 else 0
        self._guarded(dist.broadcast, tensor, group=self.group, group_src=0)
        return int(tensor)

    def __deepcopy__(self, memo: Any) -> Team:
        return self


class _RefusedError(Exception):
    """This rank refused a call, and the others know it."""


def pack(*tensors: Tensor) -> Tensor:
    """(n, ...) each -> (n, bytes of all) uint8."""
    flat = (tensor.reshape(len(tensor), tensor.shape[1:].numel()) for tensor in tensors)
    # Not by `contiguous`, which leaves the strides of at most one row as they are.
    return torch.cat([tensor.clone(memory_format=torch.contiguous_format).view(torch.uint8) for tensor in flat], 1)


def unpack(rows: Tensor, *like: tuple[torch.dtype, int]) -> list[Tensor]:
    """Undo `pack`: (n, bytes) uint8 -> a tensor (n, width) for each type and width."""
    parts = rows.split([dtype.itemsize * width for dtype, width in like], 1)
    contiguous = torch.contiguous_format
    return [part.clone(memory_format=contiguous).view(dtype) for part, (dtype, _) in zip(parts, like, strict=True)]
