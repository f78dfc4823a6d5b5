"""python -m experiments.omniglot.replicas --out results/omniglot-replicas.json

Train the paper's network, with a quarter of its channels, and one memory on the same number of drawings: in one
process, on ranks in step, and by asynchronous replicas. These share the network's parameters without a lock (Hogwild,
Niu et al. 2011) and the memory by `rarecall.distributed.asynchronous`; each has an optimizer of its own and its share
of the steps. Measured: 20-way 1-shot accuracy of the network on the validation characters, what the memory answers
right in training, and how often replicas came into each other's way.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.multiprocessing.spawn import start_processes
from torch.nn.parallel import DistributedDataParallel

from experiments.omniglot.data import load
from experiments.omniglot.episodes import MemoryLearner, as_input, encode, few_shot
from experiments.omniglot.paper import even_start
from experiments.results import origin, write
from experiments.training import schedule
from rarecall import Memory
from rarecall.distributed import Conflicts, asynchronous, shard
from rarecall.models.convnet import ConvNet

KEY_SIZE, CHANNELS = 64, (16, 32)
WAYS, SHOWS = 32, 2  # classes of a step, and drawings of each, one after the other
# Classes in the memory: from the first to the last number, geometrically. On many from the start, the keys collapse.
FIRST_WINDOW, LAST_WINDOW = 6, 300
CAPACITY = 400  # slots: less than what is written, so that replicas compete for the oldest
RATE, WARM_UP, CLIP = 1e-3, 0.05, 1.0
LAST = 0.2  # share of the steps of which the memory's accuracy is the mean


def train(
    rank: int, ranks: int, in_step: bool, noise: float, steps: int, seed: int, network: nn.Module, to: str
) -> None:
    """Run one rank; rank 0 leaves the result in the folder `to`, and the network as it was trained."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    where = f"file://{to}/meeting"
    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=ranks, timeout=timedelta(minutes=10))
    memory = shard(Memory(KEY_SIZE, CAPACITY, k=64, age_noise=noise), init_device_mesh("cpu", (ranks,)))
    drawings = load(quiet=True).characters("train").drawings
    order = torch.randperm(len(drawings), generator=torch.Generator().manual_seed(seed))
    # In step, all ranks draw the same batch and take their part of it.
    torch.manual_seed(seed if in_step else 1000 * seed + rank)
    steps = steps if in_step else steps // ranks
    if in_step:
        network = copy.deepcopy(network)  # of this rank's own: in step, each makes the same steps
    called = DistributedDataParallel(network) if in_step else network
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, betas=(0.9, 0.98), weight_decay=0.0)
    right, began = [], time.perf_counter()
    with nullcontext(Conflicts()) if in_step else asynchronous(memory) as conflicts:
        for step in range(steps):
            window = int(FIRST_WINDOW * (LAST_WINDOW / FIRST_WINDOW) ** (step / steps))
            drawn = torch.rand(WAYS, drawings.shape[1]).argsort(1)[:, :SHOWS]
            classes = order[torch.randperm(window)[:WAYS]]
            if in_step:
                mine = torch.arange(len(classes)).tensor_split(ranks)[rank]
                classes, drawn = classes[mine], drawn[mine]
            drawn = drawn[: len(classes)]
            batch = as_input(drawings[classes[:, None], drawn].flatten(0, 1))
            query = called(batch).unflatten(0, (len(classes), SHOWS))
            source, losses = classes[:, None] * drawings.shape[1] + drawn, []
            for show in range(SHOWS):
                recall = memory(query[:, show], exclude=source[:, show])
                losses.append(memory.loss(recall, classes))
                memory.update(recall, classes, source=source[:, show])
            if step >= (1 - LAST) * steps:
                right.append((recall.value == classes).float().mean().item())
            optimizer.param_groups[0]["lr"] = RATE * schedule(step / steps, WARM_UP)
            optimizer.zero_grad()
            (torch.stack(losses).mean() * (ranks if in_step else 1)).backward()
            nn.utils.clip_grad_norm_(network.parameters(), CLIP)
            optimizer.step()
    seconds = time.perf_counter() - began
    told: list[Any] = [None] * ranks
    dist.all_gather_object(told, (statistics.mean(right), vars(conflicts)))
    if rank == 0:
        figures = {name: sum(its[name] for _, its in told) for name in vars(conflicts)}
        result = {"memory_accuracy": statistics.mean(each for each, _ in told), "seconds": seconds} | figures
        torch.save(result | {"network": network.state_dict()}, f"{to}/result")
    dist.destroy_process_group()


def run(ranks: int, how: str, noise: float, steps: int, seed: int, episodes: int) -> dict[str, Any]:
    """Train on so many ranks, and measure."""
    data = load(quiet=True)
    torch.set_num_threads(1)  # before the ranks are forked
    torch.manual_seed(seed)
    network = ConvNet(KEY_SIZE, channels=CHANNELS, dropout=0.0, padding=0)
    drawings = data.characters("train").drawings
    even_start(network, as_input(drawings[torch.randperm(len(drawings))[:64], 0]))
    with tempfile.TemporaryDirectory() as to:
        args = ranks, how != "asynchronous", noise, steps, seed, network.share_memory(), to
        start_processes(train, args, nprocs=ranks, start_method="fork")
        result = torch.load(f"{to}/result", weights_only=True)
    network.load_state_dict(result.pop("network"))
    learner = MemoryLearner(network.eval(), KEY_SIZE)
    accuracy = few_shot(learner, encode(learner, data.characters("val")), ways=20, shots=1, episodes=episodes).mean
    about = {"ranks": ranks, "how": how, "age_noise": noise, "seed": seed}
    return about | {"accuracy": accuracy, "memory_accuracy": 100 * result.pop("memory_accuracy")} | result


def settings() -> Iterator[tuple[int, str, float]]:
    """Yield ranks, how, and age noise."""
    yield 1, "one process", 8.0
    for ranks in (2, 4):
        yield ranks, "in step", 8.0
        for noise in (0.0, 8.0):
            yield ranks, "asynchronous", noise


def table(runs: list[dict[str, Any]]) -> str:
    """Return the means over the seeds, in Markdown."""
    lines = [
        "| | age noise | seeds | 20-way 1-shot | memory right | slot taken | slot moved |",
        "|---|---|---|---|---|---|---|",
    ]
    for ranks, how, noise in settings():
        of = [each for each in runs if (each["ranks"], each["how"], each["age_noise"]) == (ranks, how, noise)]
        if not of:
            continue
        name = how if ranks == 1 else f"{ranks} ranks {how}" if how == "in step" else f"{ranks} replicas"
        shown = [f"{statistics.mean(each[what] for each in of):.1f}%" for what in ("accuracy", "memory_accuracy")]
        for part, whole in (("taken", "written"), ("moved", "confirmed")):
            total = sum(each[whole] for each in of) + (sum(each["moved"] for each in of) if part == "moved" else 0)
            shown.append(f"{sum(each[part] for each in of) / total:.1%}" if total else "")
        lines.append(f"| {name} | {noise:g} | {len(of)} | {' | '.join(shown)} |")
    return "\n".join(lines)


def main() -> None:
    """Run all settings with several seeds, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="where the results are written, as JSON")
    parser.add_argument("--steps", type=int, default=600, help=f"of {WAYS * SHOWS} drawings, of all replicas together")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--episodes", type=int, default=400)
    parser.add_argument("--table", action="store_true", help="only print the table of the results that are there")
    given = parser.parse_args()
    if given.table:
        print(table(json.loads(given.out.read_text())["runs"]))
        return
    about = origin(f"python -m experiments.omniglot.replicas {' '.join(sys.argv[1:])}", 0)
    runs: list[dict[str, Any]] = []
    for seed in range(given.seeds):
        for ranks, how, noise in settings():
            runs.append(run(ranks, how, noise, given.steps, seed, given.episodes))
            print(runs[-1], flush=True)
            write(given.out, {"experiment": "omniglot-replicas", "steps": given.steps, "runs": runs}, about)
    print(table(runs))


if __name__ == "__main__":
    main()
