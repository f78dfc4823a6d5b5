"""One side of `versus`: a process that has the rarecall of one checkout, and steps through a stream when it is told to.

Every line of its input is an order, every line of its output the answer, both as JSON. It must import nothing that
differs between the versions, so the workload comes from a file.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

import rarecall
from benchmarks import versions
from benchmarks.stream import Tally, settle

JUDGED = 1024  # queries that tell the recall


class Worker:
    """Its methods are the orders."""

    memory: Any = None

    def load(self, path: str, threads: int) -> str:
        """Take keys, values, times, queries and targets from a file; return where rarecall is."""
        torch.set_num_threads(threads)
        torch.manual_seed(0)
        self.tensors = load_file(path)
        return str(Path(rarecall.__file__).parent.parent)

    def fill(self, search: str, k: int) -> float:
        """Make the memory anew, as a long stream leaves it; return its recall@1."""
        self.memory = None  # its room first
        size, key_size = self.tensors["keys"].shape
        self.memory = versions.make_memory(key_size, size, k, search)
        versions.fill(self.memory, *(self.tensors[name] for name in ("keys", "values", "times")))
        if search == "auto":
            settle(self.memory, self.tensors["queries"], self.tensors["targets"])
        tally = Tally()
        for query in self.tensors["queries"][-JUDGED:].split(64):
            tally.add(self.memory, query, self.memory(query).slots[:, 0])
        return tally.share

    def turn(self, batch: int, gradient: bool, first: int, steps: int) -> list[tuple[float, float]]:
        """Do some steps of the stream; return the seconds of each recall and of each whole step.

        A step is recall, loss and update; with gradient, the loss is also differentiated by the query.
        """
        taken = []
        memory, (queries, targets) = self.memory, (self.tensors[name] for name in ("queries", "targets"))
        for number in range(first, first + steps):
            rows = (torch.arange(batch) + number * batch) % len(queries)
            query, target = queries[rows].requires_grad_(gradient), targets[rows]
            start = time.perf_counter()
            recall = memory(query)
            recalled = time.perf_counter()
            loss = memory.loss(recall, target)
            if gradient:
                loss.backward()
            memory.update(recall, target)
            taken.append((recalled - start, time.perf_counter() - start))
        return taken


if __name__ == "__main__":
    worker = Worker()
    for line in sys.stdin:
        order, arguments = json.loads(line)
        print(json.dumps(getattr(worker, order)(**arguments)), flush=True)
