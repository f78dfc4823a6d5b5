"""The approximate step against the best of FAISS IVF, hnswlib and usearch, each tuned to the same recall@1."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks import versions, workloads
from benchmarks.peers import PEERS, Array, Peer, Setting, grid, installed
from benchmarks.settings import SETTING, Settings
from benchmarks.stream import JUDGED, SETTLING, STEP, TURNS, WANTED, WARMUP, nearest, recalls, settle, steps_of, turn
from benchmarks.timing import Stopwatch

TITLE = 'search="auto": times as fast as the best peer at the same recall@1'
COLUMNS = SETTING | {
    "best": "best peer",
    "recall_update": "recall + update",
    "step": "recall + loss + update",
    "recall@1": "recall@1",
    "recall@k": "recall@k",
    "peer recall@1": "peer's recall@1",
    "peer recall@k": "peer's recall@k",
    "step_ms": "whole step, ms",
    "peer_ms": "peer, ms",
}
# Beyond this a peer's build takes longer than all else; it could only be slower there.
GRAPHS_UP_TO = 500_000
# Settings of all peers that are timed beside ours: the fastest while they were tuned, which tells them less surely.
FINALISTS = 3
# A setting of a peer is given up where its search takes so many times as long as that of another that found enough.
HOPELESS = 3
DRAWN = 1000  # queries that tell the recall of a point in the plots
TARGETS = (0.5, 0.8, 0.99, WANTED)  # recalls that are asked of ours for the plots; that of the last is compared


def run(settings: Settings, progress: Any) -> Iterator[dict[str, Any]]:
    """One row for each workload, size, key size, k and batch."""
    for name, size, key_size, k in product(settings.workloads, settings.sizes, settings.key_sizes, settings.ks):
        counts = {batch: steps_of(settings.steps, batch) for batch in settings.batches}
        many = JUDGED + SETTLING + sum(batch * count * TURNS for batch, count in counts.items())
        load = workloads.make(name, size, key_size, many, settings.seed)
        memory, curve = _ours(load, k)
        keys, judged = memory.keys.numpy().copy(), load.queries[:JUDGED]
        near = nearest(memory.keys, judged, k)
        ours = recalls(memory(judged).slots, near)
        # The same recall, but for what so few queries cannot tell.
        wanted = max(ours[0] - (ours[0] * (1 - ours[0]) / JUDGED) ** 0.5, WANTED)
        tuned: list[Tuned] = []
        tried = []
        for peer in installed():
            if peer == "faiss IVF" or size <= GRAPHS_UP_TO:
                of_peer, settings_tried = _tune(peer, keys, k, settings, judged.numpy(), near, wanted)
                tuned += of_peer
                tried += settings_tried
        drawn = _drawn(tuned, settings.batches[len(settings.batches) // 2])
        curves = [
            {"search": name, **point}
            for name, peer in drawn.items()
            for point in _curve(peer, keys, judged[:DRAWN].numpy(), near[:DRAWN])
        ]
        curves += [{"search": "auto", **point} for point in curve]
        finalists = {batch: _fastest(tuned, batch) for batch in counts}
        del tuned
        # A turn that is not timed: what was built meanwhile has taken the caches, and on some virtual machines the
        # tables in which pages are found.
        warmed = turn(memory, judged, load.targets[:JUDGED], 128, Stopwatch())
        for finalist in {id(each.peer): each.peer for best in finalists.values() for each in best}.values():
            for query, moved, to in warmed:
                finalist.search(query)
                finalist.update(moved, to)
        begin = JUDGED + SETTLING
        for batch, steps in counts.items():
            for each in finalists[batch]:
                each.peer.set(each.setting["effort"])
                each.peer.search(judged.numpy())
            memory(judged)
            watch = Stopwatch(warmup=WARMUP)
            for _ in range(TURNS):
                rows = slice(begin, begin + steps * batch)
                changes = turn(memory, load.queries[rows], load.targets[rows], batch, watch)
                begin += steps * batch
                for place, each in enumerate(finalists[batch]):
                    for query, moved, to in changes:
                        with watch.time(f"search {place}"):
                            each.peer.search(query)
                        with watch.time(f"update {place}"):
                            each.peer.update(moved, to)
                progress.update(steps)
            of_peers = [(f"search {place}", f"update {place}") for place in range(len(finalists[batch]))]
            times = [watch.milliseconds(*names) for names in of_peers]
            place = times.index(min(times))
            both, best = of_peers[place], finalists[batch][place].setting
            yield {
                "workload": name,
                "size": size,
                "key_size": key_size,
                "k": k,
                "batch": batch,
                "best": best["peer"],
                "recall_update": watch.ratio(both, ("recall", "update")),
                "step": watch.ratio(both, STEP),
                "recall@1": ours[0],
                "recall@k": ours[1],
                "peer recall@1": best["recall@1"],
                "peer recall@k": best["recall@k"],
                "step_ms": watch.milliseconds(*STEP),
                "peer_ms": times[place],
                "chosen": best,
                "finalists": [
                    each.setting | {"timed_ms": ms} for each, ms in zip(finalists[batch], times, strict=True)
                ],
                "lists": versions.lists_read(memory) or "all",
                "wanted": wanted,
                "tuning": tried,
                "curves": curves,
            }


def _ours(load: workloads.Workload, k: int) -> tuple[Any, list[dict[str, Any]]]:
    """The memory, and for the plots: recall and the time of a step of 16 where other recalls are asked for."""
    points = []
    for target in TARGETS:
        memory = load.memory(k, 16, "auto", target)
        settle(memory, load.queries[JUDGED:], load.targets[JUDGED:])
        judged = load.queries[:DRAWN]
        first, all_k = recalls(memory(judged).slots, nearest(memory.keys, judged, k))
        watch = Stopwatch(warmup=WARMUP)
        turn(memory, load.queries[:JUDGED][-320:], load.targets[:JUDGED][-320:], 16, watch)
        points.append(
            {"effort": target, "recall@1": first, "recall@k": all_k, "ms": watch.milliseconds("recall", "update")}
        )
    return memory, points


class Tuned(NamedTuple):
    """A peer at the least effort that reaches the wanted recall, or that comes nearest to it."""

    peer: Peer
    setting: Setting
    short: bool  # of the wanted recall


def _fastest(tuned: list[Tuned], batch: int) -> list[Tuned]:
    """Those that were fastest while they were tuned; what is short of the wanted recall last."""
    return sorted(tuned, key=lambda each: (each.short, each.setting["ms"][batch]))[:FINALISTS]


def _drawn(tuned: list[Tuned], batch: int) -> dict[str, Peer]:
    """Of each kind of peer the fastest."""
    names = {each.setting["peer"] for each in tuned}
    return {
        name: _fastest([each for each in tuned if each.setting["peer"] == name], batch)[0].peer
        for name in PEERS
        if name in names
    }


def _tune(
    name: str, keys: Array, k: int, settings: Settings, judged: Array, near: Tensor, wanted: float
) -> tuple[list[Tuned], list[Setting]]:
    """A peer in those of its settings that are among the fastest at any batch, and all that was tried."""
    tuned: list[Tuned] = []
    tried: list[Setting] = []
    fastest = float("inf")
    for setting in grid(name, len(keys)):
        started = time.perf_counter()
        peer = PEERS[name](keys, k, settings.threads, setting)
        built = time.perf_counter() - started
        for effort in peer.efforts:
            peer.set(effort)
            started = time.perf_counter()
            found = peer.search(judged)
            took = time.perf_counter() - started
            first, all_k = recalls(torch.from_numpy(found.astype("int64")), near)
            if first >= wanted:
                fastest = min(fastest, took)
            if first >= wanted or took > HOPELESS * fastest:
                break
        times = {batch: _time(peer, keys, judged, batch) * 1e3 for batch in settings.batches}
        told = {"effort": effort, "recall@1": first, "recall@k": all_k, "build_s": built, "ms": times}
        tried.append({"peer": name, **setting, **told})
        tuned.append(Tuned(peer, tried[-1], first < wanted))
        among = [_fastest(tuned, batch) for batch in settings.batches]
        tuned = [each for each in tuned if any(each is one for best in among for one in best)]
    return tuned, tried


def _curve(peer: Peer, keys: Array, judged: Array, near: Tensor) -> Iterator[dict[str, Any]]:
    """Recall and the time of a step of 16 at each effort."""
    for effort in peer.efforts:
        peer.set(effort)
        first, all_k = recalls(torch.from_numpy(peer.search(judged).astype("int64")), near)
        yield {"effort": effort, "recall@1": first, "recall@k": all_k, "ms": _time(peer, keys, judged, 16) * 1e3}


def _time(peer: Peer, keys: Array, judged: Array, batch: int) -> float:
    """The median time of a step: a search and the update of as many slots, to the keys that they have."""
    times = []
    for number in range(20):
        rows = (np.arange(batch) + number * batch) % len(judged)
        slots = torch.randint(len(keys), (batch,), generator=torch.Generator().manual_seed(number)).unique().numpy()
        query, moved = judged[rows], keys[slots]
        started = time.perf_counter()
        peer.search(query)
        peer.update(slots, moved)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def steps(settings: Settings) -> int:
    """How many steps of progress a run has."""
    rows = product(settings.workloads, settings.sizes, settings.key_sizes, settings.ks, settings.batches)
    return sum(steps_of(settings.steps, batch) * TURNS for *_, batch in rows)
