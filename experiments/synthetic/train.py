"""python -m experiments.synthetic train --model neural-gpu --memory --preset paper --out runs/neural-gpu

Train a network. `experiments.training` describes the files of a run.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments.results import commit
from experiments.synthetic.answers import ask
from experiments.synthetic.curriculum import Curriculum, Progress
from experiments.synthetic.networks import Network, make_network
from experiments.synthetic.task import A, Data, Examples, Task, batches
from experiments.training import CHECKPOINT, Pace, go, read_checkpoint, schedule, write_checkpoint
from rarecall.models import weights
from rarecall.models.decoded import Decoded


@dataclass(frozen=True)
class Run:
    """Settings of a run. A checkpoint can only be resumed with the same settings.

    Attributes:
        task: the task.
        model: "neural-gpu" or "seq2seq".
        units: channels of the Neural GPU or units per layer of seq2seq; also the key dimension of the memory.
        capacity: slots of the memory; 0 for no memory.
        steps: total number of steps; the learning rate reaches 0 at the last.
        seed: random seed of everything but the task.
        batch: sequences per step, all of the same length.
        rate: peak learning rate of Adam.
        clip: maximum gradient norm.
        forced: fraction of sequences trained with teacher forcing rather than on the network's own output.
        anew: whether every epoch draws new As and Bs, lengths and positions of the numbers. Otherwise the 40,000
            examples are fixed, as in the paper, and the keys that an example wrote are excluded from its recall.
        hide: in training, each sequence hides a share of its As and Bs from the network, drawn from 0 to this: dropout
            of input symbols. Hidden ones are neither predicted nor remembered. Fixed examples need it: a network learns
            the two or three surroundings of a number by heart, rather than to leave them out.
        first, short: settings of the curriculum. Fixed examples are used at all lengths from the first step, since
            most numbers have at most one short example.
        bfloat16: compute the network in bfloat16, with weights, losses and optimizer in float32.
        begun_with: description of the network whose weights it was initialised with; "" for none.
    """

    task: Task
    model: str
    units: int
    capacity: int
    steps: int
    seed: int = 0
    batch: int = 64
    rate: float = 3e-3
    clip: float = 1.0
    forced: float = 0.0
    anew: bool = True
    hide: float = 0.0
    first: int = 64
    short: int = 16
    bfloat16: bool = False
    begun_with: str = ""


def train(run: Run, out: str | os.PathLike[str], pace: Pace | None = None, begin: Network | None = None) -> bool:
    """Train, resuming from the checkpoint in `out` if there is one. Returns False if it was interrupted.

    Args:
        run: settings of the run.
        out: folder of the run.
        pace: how often to report, measure and save.
        begin: a trained network to initialise the weights with. The memory starts empty.
    """
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    started_from = commit()  # files on disk may change during the run
    state = State(run)
    if begin is not None:
        state.begin_with(begin)
    if (out / CHECKPOINT).is_file():
        state.read(out / CHECKPOINT)
    ended = go(
        state,
        run.steps,
        state.forward_one,
        out,
        pace or Pace(),
        title=run.model,
        measure=state.validate,
        shown=("loss", "numbers", "first", "validation"),
    )
    if ended:
        about = asdict(run) | ({"plans": state.plans} if state.plans else {})
        header = {"run": json.dumps(about), "commit": started_from}
        weights.save(state.network, out / "network.safetensors", header=header)
    return ended


class State:
    """State of a run: the network and its memory, the optimizer, the curriculum, the order of the examples."""

    def __init__(self, run: Run) -> None:
        self.run, self.step = run, 0
        self.plans: list[list[int]] = []  # [n, steps]: until step n, `run.steps` was `steps`
        self.data = Data(run.task)
        short = run.short if run.anew else run.task.longest
        self.curriculum = Curriculum(self.data, first=run.first, short=short)
        torch.manual_seed(run.seed)
        self.network = make_network(run.model, run.units, run.capacity)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=run.rate, fused=True)
        self.order = torch.empty(0, dtype=torch.int64)  # examples left in this epoch

    def begin_with(self, trained: Network) -> None:
        """Copy the weights of a trained network, but not its memory: its keys would soon be outdated."""
        told = {name: shape for name, shape in trained.settings().items() if name != "memory"}
        wanted = {name: shape for name, shape in self.network.settings().items() if name != "memory"}
        if type(trained) is not type(self.network) or told != wanted:
            raise ValueError(
                f"The network given by --from is a {type(trained).__name__} of {told}; expected a "
                f"{type(self.network).__name__} of {wanted}. Use the same --model and --units, or another network."
            )
        missing = self.network.load_state_dict(dict(trained.named_parameters()), strict=False).missing_keys
        missing = [name for name in missing if not name.startswith("memory.")]
        if missing:
            raise ValueError(f"The network given by --from has no {missing[0]}. Use one that has a memory as well.")

    def forward_one(self) -> dict[str, float]:
        """Run one training step. Returns its metrics."""
        run, network = self.run, self.network.train()
        which, examples = self.next_batch()
        rate = run.rate * schedule(self.step / run.steps, warm_up=0.01, hold=0.6)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        forced = torch.rand(len(which)) < run.forced
        exclude = None if run.anew else which
        hidden = torch.zeros_like(examples.inputs, dtype=torch.bool)
        if run.hide:
            share = run.hide * torch.rand(len(which), 1)
            hidden = (examples.inputs >= A) & (torch.rand(examples.inputs.shape) < share)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=run.bfloat16):
            decoded = network(examples.inputs, examples.outputs, forced, exclude, hidden)
        by_output = F.cross_entropy(decoded.logits[~hidden].float(), examples.outputs[~hidden])
        by_memory = torch.zeros(())
        if network.memory is not None and decoded.recall is not None:
            by_memory = network.memory.loss(decoded.recall, examples.outputs, mask=~hidden)
        loss = by_output + by_memory
        self.optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(network.parameters(), run.clip)
        self.optimizer.step()
        if network.memory is not None and decoded.recall is not None:
            source = which[:, None].expand_as(examples.outputs)
            network.memory.update(decoded.recall, examples.outputs, source=source, mask=~hidden)
        self.step += 1
        figures = {"by_output": by_output.item(), "by_memory": by_memory.item(), "norm": norm.item(), "rate": rate}
        figures |= {"numbers": float(self.curriculum.numbers), "longest": float(self.curriculum.longest)}
        figures |= of_digits(decoded, examples, ~forced)
        if network.memory is not None:
            figures["slots"] = float(len(network.memory))
        answers = decoded.output if decoded.recall is None else decoded.recall.value
        first = examples.of_digits(answers == examples.outputs)[:, 0]
        if self.curriculum.note(first, self.step / run.steps):
            self.order = self.order[:0]
        return {"loss": loss.item(), "first": first.float().mean().item()} | figures

    def next_batch(self) -> tuple[Tensor, Examples]:
        """Return the indices of the next examples and the examples, all of the same length."""
        run, training = self.run, self.data.training
        if len(self.order) == 0:
            active = self.curriculum.examples()
            if run.anew:
                self.order = active[torch.randperm(len(active))]
            else:
                seed = int(torch.randint(2**31, ()))
                shuffled = batches(training[active], run.batch, torch.Generator().manual_seed(seed))
                self.order = torch.cat([active[which] for which in shuffled])
        head = self.order[: run.batch]
        if run.anew:
            length = torch.randint(run.task.shortest, self.curriculum.longest + 1, (1,))
            examples = self.data.surround(training.x[head], length.expand(len(head)))
        else:
            same = training.lengths[head] == training.lengths[head[0]]
            head = head[: int(same.int().cumprod(0).sum())]
            examples = training[head]
        self.order = self.order[len(head) :]
        return head, examples

    def validate(self) -> dict[str, float]:
        """Return the accuracy by sequence and by digit on the validation examples, without teacher forcing."""
        answers = ask(self.network, self.data.validation)
        figures = {"validation": answers.right.float().mean().item()}
        for place, share in enumerate(answers.digits.float().mean(0).tolist(), 1):
            figures[f"validation_{place}"] = share
        return figures

    def write(self, path: Path) -> None:
        """Write the complete state to one file."""
        tensors = {f"network/{name}": tensor for name, tensor in self.network.state_dict().items()}
        header = {"run": asdict(self.run), "step": self.step, "plans": self.plans}
        header["curriculum"] = asdict(self.curriculum.progress)
        write_checkpoint(path, tensors | {"order": self.order}, self.optimizer, header)

    def read(self, path: Path) -> None:
        """Restore the state from a file written by `write`."""
        parts, header = read_checkpoint(path, asdict(self.run), self.optimizer)
        self.network.load_state_dict(parts["network"])
        self.order, self.step = parts["order"][""], header["step"]
        self.curriculum.progress = Progress(**header["curriculum"])
        self.plans = header["plans"]
        if header["run"]["steps"] != self.run.steps:
            self.plans.append([self.step, header["run"]["steps"]])


def of_digits(decoded: Decoded, examples: Examples, which: Tensor) -> dict[str, float]:
    """Return the accuracy by sequence, and by digit for the output and for the memory's own answers."""
    if not which.any():
        return {}
    output = decoded.output == examples.outputs
    figures = {"right": output.all(1)[which].float().mean().item()}
    found = {"output": output}
    if decoded.recall is not None:
        found["memory"] = decoded.recall.value == examples.outputs
    for name, right in found.items():
        for place, share in enumerate(examples.of_digits(right)[which].float().mean(0).tolist(), 1):
            figures[f"{name}_{place}"] = share
    return figures
