"""The step of a memory sharded over two ranks with one thread each, against one process with two threads, in turns.

Both get the same batches and must lose the same, bit for bit. Bytes are what a rank sends to the other in a step, as
the memory counts them; the bound is what must travel in the tensors' own types: the queries, k neighbours of each
(slot, similarity, value) and the slots touched on the other rank (key and value).
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from itertools import product
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

from benchmarks import workloads
from benchmarks.settings import SETTING, Settings
from rarecall import Memory

TITLE = "A memory sharded over 2 ranks x 1 thread: speed over that of one process x 2 threads; bytes that a rank sends"
COLUMNS = SETTING | {
    "speed": "speed",
    "ranks_ms": "step on ranks, ms",
    "one_ms": "in one process, ms",
    "kilobytes": "kB a step and rank",
    "bytes_over_bound": "over the bound",
}
DEFAULTS = {"workloads": ("clustered",), "sizes": (2_000_000,), "batches": (128,), "steps": 16}
RANKS, TURNS, WARMUP = 2, 4, 2
SLOT_SIMILARITY_VALUE, VALUE = 8 + 4 + 8, 8  # bytes


def run(settings: Settings, progress: Any) -> Iterator[dict[str, Any]]:
    """One row for each workload, size, key size, k and batch, which is that of a rank."""
    everything = product(settings.workloads, settings.sizes, settings.key_sizes, settings.ks, settings.batches)
    for name, size, key_size, k, batch in everything:
        count = WARMUP + TURNS * settings.steps
        load = workloads.make(name, size, key_size, count * RANKS * batch, settings.seed)
        memory = load.memory(k, 16)
        batches = list(zip(load.queries.split(RANKS * batch), load.targets.split(RANKS * batch), strict=True))
        load.keys = torch.empty(0)
        with tempfile.TemporaryDirectory() as folder:
            memory.save(Path(folder) / "memory")
            ranks = [_Rank(rank, folder, [_part(each, rank) for each in batches]) for rank in range(RANKS)]
            times: dict[str, list[float]] = {"one": [], "ranks": []}
            losses: dict[str, list[float]] = {"one": [], "ranks": []}
            sent = 0
            for first, steps in [(0, WARMUP), *((WARMUP + i * settings.steps, settings.steps) for i in range(TURNS))]:
                turn = range(first, first + steps)
                seconds, lost, _ = _steps(memory, batches, turn)
                for rank in ranks:
                    rank.pipe.send(turn)
                told = [rank.pipe.recv() for rank in ranks]
                losses["one"] += lost
                losses["ranks"] += told[0][1]
                if first:
                    times["one"].append(seconds)
                    times["ranks"].append(max(each[0] for each in told))
                    sent += told[0][2]
                progress.update(steps)
            for rank in ranks:
                rank.pipe.send(None)
                rank.process.join()
        if losses["one"] != losses["ranks"]:
            raise RuntimeError(f"The ranks lost {losses['ranks']}, one process {losses['one']}.")
        one, together = (1000 * sum(times[who]) / TURNS / settings.steps for who in ("one", "ranks"))
        queries, answers = 4 * key_size * batch, SLOT_SIMILARITY_VALUE * k * batch
        touched = (4 * key_size + VALUE) * batch // RANKS
        bytes_a_step = sent / TURNS / settings.steps
        yield {
            "workload": name,
            "size": size,
            "key_size": key_size,
            "k": k,
            "batch": batch,
            "speed": one / together,
            "ranks_ms": together,
            "one_ms": one,
            "kilobytes": bytes_a_step / 1000,
            "bytes_over_bound": bytes_a_step / (queries + answers + touched),
        }


def steps(settings: Settings) -> int:
    """How many updates of the progress bar a run makes."""
    rows = len(settings.workloads) * len(settings.sizes) * len(settings.key_sizes) * len(settings.ks)
    return rows * len(settings.batches) * (WARMUP + TURNS * settings.steps)


def _part(batch: tuple[Tensor, Tensor], rank: int) -> tuple[Tensor, Tensor]:
    query, target = batch
    rows = slice(rank * len(target) // RANKS, (rank + 1) * len(target) // RANKS)
    return query[rows].clone(), target[rows].clone()


def _steps(memory: Any, batches: list[tuple[Tensor, Tensor]], turn: range) -> tuple[float, list[float], int]:
    """Seconds, losses and bytes sent of some steps."""
    losses, sent = [], getattr(memory, "bytes_sent", 0)
    began = time.perf_counter()
    for number in turn:
        query, target = batches[number]
        torch.manual_seed(number)
        recall = memory(query.clone().requires_grad_())
        loss = memory.loss(recall, target)
        loss.backward()
        memory.update(recall, target)
        losses.append(loss.item())
    return time.perf_counter() - began, losses, getattr(memory, "bytes_sent", 0) - sent


class _Rank:
    """A process that is a rank, and takes its turns."""

    def __init__(self, rank: int, folder: str, batches: list[tuple[Tensor, Tensor]]) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, rank, folder), daemon=True)
        self.process.start()
        self.pipe.send([tuple(tensor.numpy() for tensor in batch) for batch in batches])


def _serve(pipe: Connection, rank: int, folder: str) -> None:
    from rarecall.distributed import shard

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    batches = [(torch.from_numpy(query), torch.from_numpy(target)) for query, target in pipe.recv()]
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=RANKS)
    memory = shard(Memory.load(Path(folder) / "memory"), init_device_mesh("cpu", (RANKS,)))
    while (turn := pipe.recv()) is not None:
        dist.barrier()
        pipe.send(_steps(memory, batches, turn))
    dist.destroy_process_group()
