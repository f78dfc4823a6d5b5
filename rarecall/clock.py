"""The ages of the slots, and which of them is written next."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import torch
from torch import Tensor, nn

from rarecall.native import packed

EMPTY = -1


class Log(ctypes.Structure):
    """Where the log of a clock begins and ends; the extension reads and writes it where it is.

    Attributes:
        head, tail: no line before head is live; those before tail are written.
        used: all slots from this one on are empty.
        filled_holes: so many of the clock's holes, the first ones, are holes no longer.
    """

    head: int
    tail: int
    used: int
    filled_holes: int
    _fields_ = [(name, ctypes.c_int64) for name in ("head", "tail", "used", "filled_holes")]


class Clock(nn.Module):
    """When each slot was last touched (written or confirmed).

    A slot's age is `now - touched`, so that an update costs what it touches and never adds 1 to every slot. The oldest
    slots are found at the same price: every touch is also a line of a log, in order of time, so the oldest slots stand
    at its head. A line is live while its slot has not been touched again. The log, the holes and the high-water mark
    follow from `touched` alone; they are not part of the saved state.

    Args:
        capacity: the number of slots.
    """

    now: Tensor
    touched: Tensor
    _log_slots: Tensor
    _log_times: Tensor

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self.register_buffer("now", torch.zeros((), dtype=torch.int64))  # updates so far
        self.register_buffer("touched", torch.full((capacity,), EMPTY))  # (capacity,) int64, EMPTY in an empty slot
        # Once every capacity / 4 touches the log is full and is written anew from `touched`: a constant share of each.
        lines = capacity + capacity // 4 + 1024
        self.register_buffer("_log_slots", torch.zeros(lines, dtype=torch.int64), persistent=False)
        self.register_buffer("_log_times", torch.zeros(lines, dtype=torch.int64), persistent=False)
        self.register_load_state_dict_post_hook(_rebuild)
        self.rebuild()

    @property
    def ages(self) -> Tensor:
        """(capacity,) int64: updates since the slot was last touched; -1 in an empty slot."""
        return torch.where(self.touched == EMPTY, EMPTY, self.now - self.touched)

    @property
    def used(self) -> int:
        """No slot from this one on was ever written."""
        return self._log.used

    @property
    def filled(self) -> int:
        """The number of filled slots."""
        return self._log.used - len(self._empty)

    @torch.no_grad()
    def rebuild(self) -> None:
        """Writes the log anew from `touched`: one line for each filled slot, oldest first."""
        slots = (self.touched != EMPTY).nonzero().squeeze(1)
        times, order = self.touched[slots].sort(stable=True)
        self._log_slots[: len(slots)] = slots[order]
        self._log_times[: len(slots)] = times
        used = int(slots[-1]) + 1 if len(slots) else 0
        self._log = Log(tail=len(slots), used=used)
        self._set_holes((self.touched[:used] == EMPTY).nonzero().squeeze(1))

    def _set_holes(self, holes: Tensor) -> None:
        """holes: int64, the empty slots among those that were used, ascending."""
        self._holes, self._log.filled_holes = holes, 0
        # The tensors that the extension was told of last, and what it was told.
        self._known: tuple[Tensor, Tensor, Tensor, Tensor, bytes] | None = None

    @property
    def _empty(self) -> Tensor:
        """int64, ascending: the slots that were used and are empty."""
        return self._holes[self._log.filled_holes :]

    @torch.no_grad()
    def tick(
        self, confirmed: Tensor, new: int, age_noise: float, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        """Makes one update pass: touches the confirmed slots and as many others as are to be written.

        Args:
            confirmed: (c,) int64, distinct filled slots.
            new: how many slots to write, at most `capacity`.
            age_noise: the r in argmax(age + r) is drawn from [0, age_noise).

        Returns:
            The slots to write, (new,) int64: empty ones first, then those of the largest age + r. A slot confirmed by
            this same update is taken only when there is no other left. And all slots touched, ascending.
        """
        self.now += 1
        self.touched[confirmed] = self.now  # their lines in the log are no longer live
        holes, free = min(new, len(self._empty)), self.capacity - self._log.used
        fresh = min(new - holes, free)
        oldest = self._oldest(new - holes - fresh, age_noise, generator)
        last_resort = confirmed[: new - holes - fresh - len(oldest)]
        unused = torch.arange(self._log.used, self._log.used + fresh, device=oldest.device)
        written = torch.cat([self._empty[:holes], unused, oldest, last_resort])
        self._log.filled_holes += holes
        self._log.used += fresh
        # In the order of the slots, as `rebuild` would have it: so a run that was saved and resumed goes on the same.
        touched = torch.cat([confirmed, written]).unique()
        self.touched[written] = self.now
        end = self._log.tail + len(touched)
        if end > len(self._log_slots):
            self.rebuild()
        else:
            self._log_slots[self._log.tail : end] = touched
            self._log_times[self._log.tail : end] = self.now
            self._log.tail = end
        return written, touched

    @property
    def fields(self) -> bytes:
        """What the extension takes for a clock, Clock in native/clock.h; it ticks by itself."""
        buffers: dict[str, Any] = self._buffers  # not self.touched: nn.Module takes its time for that
        touched, now = buffers["touched"], buffers["now"]
        slots, times = buffers["_log_slots"], buffers["_log_times"]
        known = self._known
        if known is None or not (known[0] is touched and known[1] is now and known[2] is slots and known[3] is times):
            fields = packed(
                *(touched.data_ptr(), self.capacity, now.data_ptr(), slots.data_ptr(), times.data_ptr(), len(slots)),
                *(self._holes.data_ptr(), len(self._holes), ctypes.addressof(self._log)),
            )
            self._known = known = touched, now, slots, times, fields
        return known[4]

    @torch.no_grad()
    def forget(self, slots: Tensor) -> None:
        """Makes filled slots empty; slots: (n,) int64, distinct."""
        self.touched[slots] = EMPTY
        self._set_holes(torch.cat([self._empty, slots]).sort().values)

    @torch.no_grad()
    def reset(self) -> None:
        """Makes all slots empty, and time starts again."""
        self.touched.fill_(EMPTY)
        self.now.zero_()
        self.rebuild()

    def _oldest(self, count: int, age_noise: float, generator: torch.Generator | None) -> Tensor:
        """(at most count,) int64: the filled slots of the largest age + r that this update has not touched yet."""
        if count == 0:
            return self._holes.new_empty(0)
        # Noise less than `age_noise` can lift a slot past the count-th oldest only if it was touched less than
        # `age_noise` updates after it: the log is in order of time, so those stand together.
        live = self._live(count, max(math.ceil(age_noise), 1))
        if not len(live):
            return self._holes.new_empty(0)
        self._log.head = int(live[0])
        noise = torch.rand(len(live), generator=generator, device=live.device, dtype=torch.float64) * age_noise
        # Age + noise is largest where the time less the noise is least.
        order = (self._log_times[live] - noise).sort(stable=True).indices
        return self._log_slots[live[order[:count]]]

    def _live(self, count: int, reach: int) -> Tensor:
        """The oldest live lines of the log: `count`, and all less than `reach` younger than the last of these."""
        length, end = count, self._log.tail - self._log.head
        live = self._live_among(min(length, end))
        while len(live) < count and length < end:
            length *= 2
            live = self._live_among(min(length, end))
        if len(live) < count:
            return live
        bound = int(self._log_times[live[count - 1]]) + reach
        return self._live_among(int(torch.searchsorted(self._log_times[self._log.head : self._log.tail], bound)))

    def _live_among(self, length: int) -> Tensor:
        """The live lines among the first `length` of the log, oldest first."""
        lines = slice(self._log.head, self._log.head + length)
        live = self.touched[self._log_slots[lines]] == self._log_times[lines]
        return live.nonzero().squeeze(1) + self._log.head

    def _apply(self, fn: Any, recurse: bool = True) -> Clock:
        super()._apply(fn, recurse)
        self._set_holes(self._empty.to(self.touched.device))
        return self

    def __getstate__(self) -> dict[str, Any]:
        # Where the tensors are is another matter in a copy.
        return self.__dict__ | {"_known": None}


def _rebuild(clock: Clock, incompatible_keys: object) -> None:
    clock.rebuild()
