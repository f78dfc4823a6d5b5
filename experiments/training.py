"""What training runs share: the loop, the reports, the stopping, and checkpoints that go on exactly.

A run is a folder: `checkpoint.safetensors` (everything, the random numbers to come included, so that a run which was
stopped goes on to the very same weights), `metrics.jsonl` (one line a report), and at the end `network.safetensors`.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import torch
from torch import Tensor
from tqdm import tqdm

from rarecall import storage

CHECKPOINT = "checkpoint.safetensors"


class Steps(Protocol):
    """All that a step changes."""

    step: int

    def write(self, path: Path) -> None:
        """Everything to one file."""


@dataclass(frozen=True)
class Pace:
    """How often, in steps, and how a run tells of itself.

    Attributes:
        report: steps between two lines of metrics; the figures of a line are means over them.
        measure: steps between two measurements, a multiple of `report`.
        save: steps between two checkpoints.
        tensorboard: write the figures for TensorBoard as well.
        quiet: no progress bar.
    """

    report: int = 50
    measure: int = 500
    save: int = 250
    tensorboard: bool = False
    quiet: bool = False


def go(
    state: Steps,
    steps: int,
    advance: Callable[[], dict[str, float]],
    out: Path,
    pace: Pace,
    *,
    title: str,
    measure: Callable[[], dict[str, float]] | None = None,
    shown: tuple[str, ...] = ("loss",),
) -> bool:
    """Calls `advance` until the state has made so many steps; False where it was stopped before the end.

    Args:
        state: where the run stands; it is written to `out` as it goes.
        steps: of the whole run, those already made included.
        advance: makes one step and returns its figures.
        out: the folder of the run.
        pace: how often to report, measure and save.
        title: of the progress bar.
        measure: figures that cost more than a step.
        shown: the figures on the progress bar.
    """
    keep_freed_memory()
    metrics = Metrics(out, state.step, pace.tensorboard)
    figures: dict[str, list[float]] = {}
    on_bar: dict[str, float] = {}
    with stopping() as stop, tqdm(total=steps, initial=state.step, desc=title, disable=pace.quiet) as bar:
        while state.step < steps:
            for name, figure in advance().items():
                figures.setdefault(name, []).append(figure)
            bar.update()
            last = state.step == steps or stop.is_asked
            if state.step % pace.report == 0 or last:
                means = {name: sum(values) / len(values) for name, values in figures.items()}
                figures.clear()
                if measure is not None and (state.step % pace.measure == 0 or state.step == steps):
                    means |= measure()
                metrics.write(state.step, means)
                on_bar |= {name: means[name] for name in shown if name in means}
                bar.set_postfix({name: f"{figure:.3f}" for name, figure in on_bar.items()})
            if state.step % pace.save == 0 or last:
                state.write(out / CHECKPOINT)
            if stop.is_asked:
                break
    metrics.close()
    if state.step < steps and not pace.quiet:
        print(f"Stopped at step {state.step}; the same command goes on from there.")
    return state.step >= steps


def keep_freed_memory() -> bool:
    """Has the C library keep what is freed, for a step takes as much again; False where it has no such setting.

    Else glibc gives every large tensor back to the kernel, and has the pages of the next one filled with zeros again,
    which costs a good part of a step.
    """
    mmap_max, trim_threshold = -4, -1  # of mallopt in malloc.h
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # not glibc
        return False
    return bool(mallopt(mmap_max, 0) and mallopt(trim_threshold, -1))


def write_checkpoint(path: Path, tensors: dict[str, Tensor], optimizer: torch.optim.Optimizer, header: Any) -> None:
    """Writes the tensors, the optimizer's moments, torch's random state and a header of JSON values to one file."""
    tensors = dict(tensors)
    for parameter, moments in optimizer.state_dict()["state"].items():
        tensors |= {f"adam/{parameter}/{name}": tensor for name, tensor in moments.items()}
    tensors["random"] = torch.get_rng_state()
    header = {name: json.dumps(value) for name, value in header.items()}
    storage.write(path, {name: t.clone() for name, t in tensors.items()}, kind="checkpoint", header=header)


def read_checkpoint(
    path: Path, run: dict[str, Any], optimizer: torch.optim.Optimizer
) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """Goes on from a file that `write_checkpoint` made: sets the optimizer's moments and torch's random state.

    Args:
        path: of the checkpoint.
        run: what is asked for now; all but its steps must be what the file's header has as "run".
        optimizer: of the same parameters.

    Returns:
        The tensors by the part of their name before the first "/" and the rest of it, and the header.
    """
    tensors, texts = storage.read(path, kind="checkpoint")
    header = {name: json.loads(text) for name, text in texts.items() if name not in ("format", "version")}
    if {**header["run"], "steps": run["steps"]} != run:
        raise ValueError(
            f"{path} is of another run: {header['run']}; asked for was {run}. Name another folder by --out, "
            "or ask for the same."
        )
    parts: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        part, _, rest = name.partition("/")
        parts.setdefault(part, {})[rest] = tensor
    state = optimizer.state_dict()
    state["state"] = {}
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for name, tensor in parts.pop("adam", {}).items():
        number, moment = name.split("/")
        parameter = parameters[int(number)]
        if tensor.shape == parameter.shape:
            # The fused optimizer walks through a parameter and its moments side by side: the channels of both must
            # come in the same order, which a file does not keep.
            tensor = torch.empty_like(parameter, requires_grad=False).copy_(tensor)
        state["state"].setdefault(int(number), {})[moment] = tensor
    optimizer.load_state_dict(state)
    torch.set_rng_state(parts.pop("random")[""])
    return parts, header


def steps_of(out: str | os.PathLike[str]) -> int | None:
    """The steps of the run in a folder, or None where there is none yet."""
    checkpoint = Path(out) / CHECKPOINT
    if not checkpoint.is_file():
        return None
    steps: int = json.loads(storage.read(checkpoint, kind="checkpoint")[1]["run"])["steps"]
    return steps


def schedule(progress: float, warm_up: float, hold: float = 0.0) -> float:
    """The learning rate as a part of its greatest: up in a line, held for a share of the run, down by half a cosine."""
    if progress < warm_up:
        return 0.02 + 0.98 * progress / warm_up
    return 0.5 * (1 + math.cos(math.pi * max(0.0, progress - warm_up - hold) / (1 - warm_up - hold)))


class Metrics:
    """Figures as JSON lines, and for TensorBoard where it is asked for."""

    def __init__(self, out: Path, step: int, tensorboard: bool) -> None:
        self._path = path = out / "metrics.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.is_file() else []
        # A run that was killed may have reported steps after its checkpoint; they come again.
        path.write_text("".join(line for line in lines if line.endswith("\n") and json.loads(line)["step"] <= step))
        self._board: Any = None
        if tensorboard:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError as error:
                raise ImportError("--tensorboard needs TensorBoard: pip install 'rarecall[tensorboard]'.") from error
            self._board = SummaryWriter(str(out / "tensorboard"), purge_step=step)

    def write(self, step: int, figures: dict[str, float]) -> None:
        """One line."""
        with open(self._path, "a") as file:
            file.write(json.dumps({"step": step} | {name: round(f, 6) for name, f in figures.items()}) + "\n")
        if self._board is not None:
            for name, figure in figures.items():
                self._board.add_scalar(name, figure, step)

    def close(self) -> None:
        """Nothing is written after this."""
        if self._board is not None:
            self._board.close()


@dataclass
class Stop:
    """Whether the user wants the run to stop."""

    is_asked: bool = False


@contextmanager
def stopping() -> Iterator[Stop]:
    """Ctrl-C and a kill end the run after the step at hand, not in the middle of it; a second one ends it at once."""
    stop = Stop()

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.is_asked:
            raise KeyboardInterrupt
        stop.is_asked = True

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
