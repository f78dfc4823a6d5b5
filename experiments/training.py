"""The training loop that all experiments share: reports, interruption, and bit-exact resumption.

A run is a folder with `checkpoint.safetensors` (the complete state including that of the random number generator, so
that a resumed run ends with the same weights as an uninterrupted one), `metrics.jsonl` (one line per report) and, when
it has finished, `network.safetensors`.
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
    """The state that a training step changes."""

    step: int

    def write(self, path: Path) -> None:
        """Write the complete state to one file."""


@dataclass(frozen=True)
class Pace:
    """How often, in steps, and where a run reports.

    Attributes:
        report: steps between two lines of metrics; a line holds the means over these steps.
        measure: steps between two measurements, a multiple of `report`.
        save: steps between two checkpoints.
        tensorboard: also write the metrics for TensorBoard.
        quiet: show no progress bar.
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
    """Call `advance` until `state.step` reaches `steps`.

    Args:
        state: state of the run; checkpoints of it are written to `out`.
        steps: total number of steps of the run, including those already done.
        advance: runs one step and returns its metrics.
        out: folder of the run.
        pace: how often to report, measure and save.
        title: label of the progress bar.
        measure: returns metrics that are more expensive than a step.
        shown: names of the metrics shown on the progress bar.

    Returns:
        Whether the run finished; False if it was interrupted.
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
        print(f"Stopped at step {state.step}; run the same command to resume.")
    return state.step >= steps


def keep_freed_memory() -> bool:
    """Make the C library keep freed memory for the next step. Returns False if it has no such setting.

    By default glibc returns every large tensor to the kernel, which has to zero the pages of the next one again. That
    takes a considerable part of a training step.
    """
    mmap_max, trim_threshold = -4, -1  # M_MMAP_MAX and M_TRIM_THRESHOLD in malloc.h
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # not glibc
        return False
    return bool(mallopt(mmap_max, 0) and mallopt(trim_threshold, -1))


def write_checkpoint(path: Path, tensors: dict[str, Tensor], optimizer: torch.optim.Optimizer, header: Any) -> None:
    """Write the tensors, the optimizer's moments, torch's random state and a header of JSON values to one file."""
    tensors = dict(tensors)
    for parameter, moments in optimizer.state_dict()["state"].items():
        tensors |= {f"adam/{parameter}/{name}": tensor for name, tensor in moments.items()}
    tensors["random"] = torch.get_rng_state()
    header = {name: json.dumps(value) for name, value in header.items()}
    storage.write(path, {name: t.clone() for name, t in tensors.items()}, kind="checkpoint", header=header)


def read_checkpoint(
    path: Path, run: dict[str, Any], optimizer: torch.optim.Optimizer
) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """Read a file written by `write_checkpoint`, and restore the optimizer's moments and torch's random state.

    Args:
        path: path of the checkpoint.
        run: the requested run; except for "steps" it must equal the header's "run".
        optimizer: optimizer of the same parameters.

    Returns:
        The tensors, as {prefix: {rest of the name: tensor}} where the prefix ends at the first "/", and the header.

    Raises:
        ValueError: if the checkpoint belongs to another run.
    """
    tensors, texts = storage.read(path, kind="checkpoint")
    header = {name: json.loads(text) for name, text in texts.items() if name not in ("format", "version")}
    if {**header["run"], "steps": run["steps"]} != run:
        raise ValueError(
            f"{path} belongs to another run: {header['run']}; requested was {run}. Use another folder (--out), or the "
            "same options."
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
            # The fused optimizer requires a parameter and its moments to have the same memory format, which a
            # file does not preserve.
            tensor = torch.empty_like(parameter, requires_grad=False).copy_(tensor)
        state["state"].setdefault(int(number), {})[moment] = tensor
    optimizer.load_state_dict(state)
    torch.set_rng_state(parts.pop("random")[""])
    return parts, header


def steps_of(out: str | os.PathLike[str]) -> int | None:
    """Return the number of steps of the run in a folder, or None if there is no run yet."""
    checkpoint = Path(out) / CHECKPOINT
    if not checkpoint.is_file():
        return None
    steps: int = json.loads(storage.read(checkpoint, kind="checkpoint")[1]["run"])["steps"]
    return steps


def schedule(progress: float, warm_up: float, hold: float = 0.0) -> float:
    """Return the learning rate relative to its peak: linear warm-up, constant for `hold`, then cosine decay to 0.

    `progress`, `warm_up` and `hold` are fractions of the run.
    """
    if progress < warm_up:
        return 0.02 + 0.98 * progress / warm_up
    return 0.5 * (1 + math.cos(math.pi * max(0.0, progress - warm_up - hold) / (1 - warm_up - hold)))


class Metrics:
    """Writer of metrics as JSON lines and, optionally, for TensorBoard."""

    def __init__(self, out: Path, step: int, tensorboard: bool) -> None:
        self._path = path = out / "metrics.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.is_file() else []
        # A killed run may have reported steps after its last checkpoint; these steps will be repeated.
        path.write_text("".join(line for line in lines if line.endswith("\n") and json.loads(line)["step"] <= step))
        self._board: Any = None
        if tensorboard:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError as error:
                raise ImportError("--tensorboard needs TensorBoard: pip install 'rarecall[tensorboard]'.") from error
            self._board = SummaryWriter(str(out / "tensorboard"), purge_step=step)

    def write(self, step: int, figures: dict[str, float]) -> None:
        """Append one line."""
        with open(self._path, "a") as file:
            file.write(json.dumps({"step": step} | {name: round(f, 6) for name, f in figures.items()}) + "\n")
        if self._board is not None:
            for name, figure in figures.items():
                self._board.add_scalar(name, figure, step)

    def close(self) -> None:
        """Close the TensorBoard writer."""
        if self._board is not None:
            self._board.close()


@dataclass
class Stop:
    """Whether the user has requested the run to stop."""

    is_asked: bool = False


@contextmanager
def stopping() -> Iterator[Stop]:
    """Let SIGINT and SIGTERM end the run after the current step; a second signal ends it immediately."""
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
