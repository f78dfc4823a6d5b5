"""python -m experiments.omniglot train --model ours --out runs/ours

Train any of the recipes. `experiments.training` describes the files of a run.
"""

from __future__ import annotations

import copy
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn

from experiments.omniglot.data import Characters, Omniglot
from experiments.omniglot.episodes import as_input, encode, few_shot
from experiments.omniglot.models import RECIPES
from experiments.omniglot.recipe import Recipe
from experiments.results import commit
from experiments.training import CHECKPOINT, Pace, go, read_checkpoint, schedule, write_checkpoint
from rarecall.models import weights


@dataclass(frozen=True)
class Run:
    """Settings of a run. A checkpoint can only be resumed with the same settings.

    Attributes:
        model: a name in RECIPES.
        on: training characters, "train" or "trainval"; validation is only possible with "train".
        steps: total number of steps; the learning rate reaches 0 at the last. A run may be resumed with another number:
            the schedule then follows the new one, and `State.plans` records the old one.
        seed: random seed.
        begun_with: description of the network whose weights it was initialised with; "" for none.
        bfloat16: compute convolutions in bfloat16, with weights, losses and optimizer in float32.
    """

    model: str
    on: str
    steps: int
    seed: int
    begun_with: str = ""
    bfloat16: bool = False


def train(
    run: Run,
    data: Omniglot,
    out: str | os.PathLike[str],
    pace: Pace | None = None,
    begin: str | os.PathLike[str] | None = None,
) -> bool:
    """Train, resuming from the checkpoint in `out` if there is one. Returns False if it was interrupted.

    Args:
        run: settings of the run.
        data: the characters.
        out: folder of the run.
        pace: how often to report, measure and save.
        begin: file of a trained network to initialise the weights with.
    """
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    classes = data.characters(run.on).turned()
    validation = data.characters("val") if run.on == "train" else None
    started_from = commit()  # files on disk may change during the run
    torch.manual_seed(run.seed)
    state = State(RECIPES[run.model](len(classes)), run)
    if begin is not None:
        state.begin_with(begin)
    if (out / CHECKPOINT).is_file():
        state.read(out / CHECKPOINT)
    ended = go(
        state,
        run.steps,
        lambda: state.forward_one(classes),
        out,
        pace or Pace(),
        title=run.model,
        measure=None if validation is None else lambda: {"validation": validate(state, validation)},
        shown=("loss", "validation"),
    )
    if ended:
        about = asdict(run) | ({"plans": state.plans} if state.plans else {})
        weights.save(state.mean, out / "network.safetensors", header={"run": json.dumps(about), "commit": started_from})
    return ended


class State:
    """State of a run: the recipe, its optimizer, the moving average of the network, the order of the classes."""

    def __init__(self, recipe: Recipe, run: Run) -> None:
        self.recipe, self.run, self.step = recipe, run, 0
        recipe.in_bfloat16 = run.bfloat16
        self.plans: list[list[int]] = []  # [n, steps]: until step n, `run.steps` was `steps`
        self.mean = copy.deepcopy(recipe.network).eval().requires_grad_(False)
        decayed = {parameter for parameter in recipe.network.parameters() if parameter.dim() > 1}
        others = [parameter for parameter in recipe.parameters() if parameter not in decayed]
        groups = [
            {"params": [p for p in recipe.network.parameters() if p in decayed], "weight_decay": recipe.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=(0.9, 0.98), fused=True)
        self.order = torch.empty(0, dtype=torch.int64)  # classes left in this epoch

    def begin_with(self, path: str | os.PathLike[str]) -> None:
        """Initialise the weights of the network with those of a file."""
        weights.load_into(self.recipe.network, weights.read(path)[0], path)
        self.mean.load_state_dict(self.recipe.network.state_dict())
        self.recipe.begun()

    def forward_one(self, classes: Characters) -> dict[str, float]:
        """Run one training step. Returns its metrics."""
        recipe, progress = self.recipe, self.step / self.run.steps
        ways, shows = recipe.active(progress)
        if len(classes) < ways:
            raise ValueError(f"{self.run.model} trains with {ways} classes a step; there are {len(classes)}.")
        chosen = recipe.choose(len(classes), progress)
        if chosen is None:
            if len(self.order) < ways:
                self.order = torch.randperm(len(classes))
            chosen, self.order = self.order[:ways], self.order[ways:]
        ways = len(chosen)
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
        # A shorter average at the start, so that the initial parameters are soon forgotten.
        keep = min(self.recipe.averaging, (1 + self.step) / (10 + self.step))
        for mean, now in zip(self.mean.state_dict().values(), self.recipe.network.state_dict().values(), strict=True):
            if mean.is_floating_point():
                mean.lerp_(now, 1 - keep)
            else:
                mean.copy_(now)

    def write(self, path: Path) -> None:
        """Write the complete state to one file."""
        tensors = {f"recipe/{name}": tensor for name, tensor in self.recipe.state_dict().items()}
        tensors |= {f"mean/{name}": tensor for name, tensor in self.mean.state_dict().items()}
        header = {"run": asdict(self.run), "step": self.step, "plans": self.plans}
        write_checkpoint(path, tensors | {"order": self.order}, self.optimizer, header)

    def read(self, path: Path) -> None:
        """Restore the state from a file written by `write`."""
        parts, header = read_checkpoint(path, asdict(self.run), self.optimizer)
        self.recipe.load_state_dict(parts["recipe"])
        self.mean.load_state_dict(parts["mean"])
        self.order, self.step = parts["order"][""], header["step"]
        self.plans = header.get("plans", [])
        if header["run"]["steps"] != self.run.steps:
            self.plans.append([self.step, header["run"]["steps"]])


def validate(state: State, validation: Characters, episodes: int = 200) -> float:
    """Return the 20-way 1-shot validation accuracy (or fewer ways, if the model is limited), on fixed episodes."""
    learner = state.recipe.learner(state.mean)
    ways = min(20, len(validation), learner.most_ways or 20)
    return few_shot(learner, encode(learner, validation), ways=ways, shots=1, episodes=episodes).mean


def steps_in(minutes: float, model: str, data: Omniglot, on: str) -> int:
    """Estimate the number of steps in `minutes` of CPU time from ten steps."""
    classes = data.characters(on).turned()
    state = State(RECIPES[model](len(classes)), Run(model, on, steps=20, seed=0))
    state.forward_one(classes)
    before = time.process_time()
    for _ in range(10):
        state.forward_one(classes)
    return max(1, round(minutes * 60 / (time.process_time() - before) * 10))
