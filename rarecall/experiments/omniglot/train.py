"""rarecall omniglot train --model ours --out runs/ours

One loop for all recipes. A run is a folder: `checkpoint.safetensors` (everything, the random numbers to come included,
so that a run which was stopped goes on to the very same weights), `metrics.jsonl` (one line a report), and at the end
`network.safetensors`.
"""

from __future__ import annotations

import copy
import json
import math
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from rarecall import storage
from rarecall.experiments.omniglot.data import Characters, Omniglot
from rarecall.experiments.omniglot.episodes import as_input, encode, few_shot
from rarecall.experiments.omniglot.models import RECIPES
from rarecall.experiments.omniglot.recipe import Recipe
from rarecall.experiments.results import commit
from rarecall.models import weights


@dataclass(frozen=True)
class Run:
    """What was asked for; a checkpoint of one run does not go on as another.

    Attributes:
        model: a name in RECIPES.
        on: the characters to train on, "train" or "trainval"; only with "train" are there others to validate with.
        steps: of the whole run; the learning rate reaches 0 at the last. A run may go on with another number of them
            than it started with: the rate then follows the new one. `State.plans` keeps what it was before.
        seed: of everything random.
    """

    model: str
    on: str
    steps: int
    seed: int


def train(
    run: Run,
    data: Omniglot,
    out: str | os.PathLike[str],
    *,
    report_every: int = 50,
    validate_every: int = 500,
    save_every: int = 250,
    tensorboard: bool = False,
    quiet: bool = False,
) -> bool:
    """Trains, from the checkpoint in `out` where there is one. Returns False where it was stopped before the end."""
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    classes = data.characters(run.on).turned()
    validation = data.characters("val") if run.on == "train" else None
    torch.manual_seed(run.seed)
    state = State(RECIPES[run.model](len(classes)), run)
    checkpoint = out / "checkpoint.safetensors"
    if checkpoint.is_file():
        state.read(checkpoint)
    metrics = Metrics(out, state.step, tensorboard)
    figures: dict[str, list[float]] = {}
    shown: dict[str, float] = {}
    with stopping() as stop, tqdm(total=run.steps, initial=state.step, desc=run.model, disable=quiet) as bar:
        while state.step < run.steps:
            for name, figure in state.forward_one(classes).items():
                figures.setdefault(name, []).append(figure)
            bar.update()
            last = state.step == run.steps or stop.is_asked
            if state.step % report_every == 0 or last:
                means = {name: sum(values) / len(values) for name, values in figures.items()}
                figures.clear()
                if validation is not None and (state.step % validate_every == 0 or state.step == run.steps):
                    means["validation"] = validate(state, validation)
                metrics.write(state.step, means)
                shown |= {name: means[name] for name in ("loss", "validation") if name in means}
                bar.set_postfix({name: f"{figure:.3f}" for name, figure in shown.items()})
            if state.step % save_every == 0 or last:
                state.write(checkpoint)
            if stop.is_asked:
                break
    metrics.close()
    if state.step < run.steps:
        if not quiet:
            print(f"Stopped at step {state.step}; the same command goes on from there.")
        return False
    about = asdict(run) | ({"plans": state.plans} if state.plans else {})
    weights.save(state.mean, out / "network.safetensors", header={"run": json.dumps(about), "commit": commit()})
    return True


class State:
    """All that a step changes: the recipe, its optimizer, the mean of the network, the order of the classes."""

    def __init__(self, recipe: Recipe, run: Run) -> None:
        self.recipe, self.run, self.step = recipe, run, 0
        self.plans: list[list[int]] = []  # [n, steps]: up to step n the run was to have so many steps
        self.mean = copy.deepcopy(recipe.network).eval().requires_grad_(False)
        decayed = {parameter for parameter in recipe.network.parameters() if parameter.dim() > 1}
        others = [parameter for parameter in recipe.parameters() if parameter not in decayed]
        groups = [
            {"params": [p for p in recipe.network.parameters() if p in decayed], "weight_decay": recipe.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=(0.9, 0.98), fused=True)
        self.order = torch.empty(0, dtype=torch.int64)  # classes still to be shown before any comes again

    def forward_one(self, classes: Characters) -> dict[str, float]:
        """One step; returns its figures."""
        recipe, progress = self.recipe, self.step / self.run.steps
        ways, shows = recipe.active(progress)
        if len(classes) < ways:
            raise ValueError(f"{self.run.model} trains with {ways} classes a step; there are {len(classes)}.")
        if len(self.order) < ways:
            self.order = torch.randperm(len(classes))
        chosen, self.order = self.order[:ways], self.order[ways:]
        of_each = classes.drawings.shape[1]
        drawn = torch.rand(ways, of_each).argsort(1)[:, :shows]  # (ways, shows)
        drawings = as_input(classes.drawings[chosen[:, None], drawn].flatten(0, 1))
        source = (chosen[:, None] * of_each + drawn).flatten()
        rate = recipe.learning_rate * schedule(progress, recipe.warm_up)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        recipe.train()
        loss, figures = recipe.loss(drawings, chosen.repeat_interleave(shows), source, progress)
        self.optimizer.zero_grad()
        loss.backward()
        if recipe.clip is not None:
            nn.utils.clip_grad_norm_(recipe.parameters(), recipe.clip)
        self.optimizer.step()
        self.step += 1
        self._average()
        return {"loss": loss.item(), "rate": rate} | figures

    @torch.no_grad()
    def _average(self) -> None:
        # Few steps make a short mean: the first steps' parameters should not outlive their use.
        keep = min(self.recipe.averaging, (1 + self.step) / (10 + self.step))
        for mean, now in zip(self.mean.state_dict().values(), self.recipe.network.state_dict().values(), strict=True):
            if mean.is_floating_point():
                mean.lerp_(now, 1 - keep)
            else:
                mean.copy_(now)

    def write(self, path: Path) -> None:
        """Everything to one file."""
        tensors = {f"recipe/{name}": tensor for name, tensor in self.recipe.state_dict().items()}
        tensors |= {f"mean/{name}": tensor for name, tensor in self.mean.state_dict().items()}
        for parameter, moments in self.optimizer.state_dict()["state"].items():
            tensors |= {f"adam/{parameter}/{name}": tensor for name, tensor in moments.items()}
        tensors |= {"order": self.order, "random": torch.get_rng_state()}
        header = {"run": json.dumps(asdict(self.run)), "step": str(self.step), "plans": json.dumps(self.plans)}
        storage.write(path, {name: t.clone() for name, t in tensors.items()}, kind="checkpoint", header=header)

    def read(self, path: Path) -> None:
        """Goes on from a file that `write` made."""
        tensors, header = storage.read(path, kind="checkpoint")
        found = json.loads(header["run"])
        if {**found, "steps": self.run.steps} != asdict(self.run):
            raise ValueError(
                f"{path} is of another run: {found}; asked for was {asdict(self.run)}. Name another folder by --out, "
                "or ask for the same."
            )
        parts: dict[str, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            part, _, rest = name.partition("/")
            parts.setdefault(part, {})[rest] = tensor
        self.recipe.load_state_dict(parts["recipe"])
        self.mean.load_state_dict(parts["mean"])
        optimizer = self.optimizer.state_dict()
        optimizer["state"] = {}
        parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        for name, tensor in parts.get("adam", {}).items():
            number, moment = name.split("/")
            parameter = parameters[int(number)]
            if tensor.shape == parameter.shape:
                # The fused optimizer walks through a parameter and its moments side by side: the channels of both must
                # come in the same order, which a file does not keep.
                tensor = torch.empty_like(parameter, requires_grad=False).copy_(tensor)
            optimizer["state"].setdefault(int(number), {})[moment] = tensor
        self.optimizer.load_state_dict(optimizer)
        self.order, self.step = tensors["order"], int(header["step"])
        self.plans = json.loads(header.get("plans", "[]"))
        if found["steps"] != self.run.steps:
            self.plans.append([self.step, found["steps"]])
        torch.set_rng_state(tensors["random"])


def schedule(progress: float, warm_up: float) -> float:
    """The learning rate as a part of its greatest: up in a line, down by half a cosine."""
    if progress < warm_up:
        return 0.02 + 0.98 * progress / warm_up
    return 0.5 * (1 + math.cos(math.pi * (progress - warm_up) / (1 - warm_up)))


def validate(state: State, validation: Characters, episodes: int = 200) -> float:
    """20-way 1-shot on the validation characters (or as many ways as the model knows), always the same episodes."""
    learner = state.recipe.learner(state.mean)
    ways = min(20, len(validation), learner.most_ways or 20)
    return few_shot(learner, encode(learner, validation), ways=ways, shots=1, episodes=episodes).mean


def steps_in(minutes: float, model: str, data: Omniglot, on: str) -> int:
    """How many steps this machine makes in so many minutes of its processor's time, from ten of them."""
    classes = data.characters(on).turned()
    state = State(RECIPES[model](len(classes)), Run(model, on, steps=20, seed=0))
    state.forward_one(classes)
    before = time.process_time()
    for _ in range(10):
        state.forward_one(classes)
    return max(1, round(minutes * 60 / (time.process_time() - before) * 10))


def steps_of(out: str | os.PathLike[str]) -> int | None:
    """The steps of the run in a folder, or None where there is none yet."""
    checkpoint = Path(out) / "checkpoint.safetensors"
    if not checkpoint.is_file():
        return None
    steps: int = json.loads(storage.read(checkpoint, kind="checkpoint")[1]["run"])["steps"]
    return steps


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
