"""python -m experiments.omniglot lifelong --weights weights/omniglot-residual-0.safetensors

Measure a memory that is never reset, as the paper's discussion suggests. In each of the four measurements one memory
sees one stream, one drawing per update unless stated otherwise; test queries do not change it.

- all at once: all test characters, with 1 and 5 drawings of each shown; an episode with that many ways.
- `stream`: 600 classes one after the other, 15 drawings each, then 5 other drawings of each are classified (the
  protocol of OML and ANML); also the accuracy on the classes learned so far. There are only 423 test characters, so the
  600 classes are drawn from the 1692 classes of their rotations.
- `retention`: 100 characters shown once, then up to 100,000 updates with drawings of other classes.
- `long_tail`: classes drawn by Zipf's law; each drawing is classified before it is shown.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from experiments.omniglot.data import Omniglot
from experiments.omniglot.episodes import MemoryLearner, encode, few_shot, mean_of
from experiments.omniglot.evaluate import as_json
from rarecall import Memory

ASKED = 5  # test drawings per class
EPISODES = 10  # episodes of all classes at once
GROWTH = (10, 25, 50, 100, 200, 300, 400, 500, 600)
LAGS = (10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
SEEN = (("0", 0, 0), ("1", 1, 1), ("2", 2, 2), ("3-5", 3, 5), ("6-10", 6, 10), ("more", 11, 20))


def lifelong(
    learner: MemoryLearner,
    data: Omniglot,
    *,
    characters: str = "test",
    repeats: int = 3,
    classes: int = 600,
    lags: tuple[int, ...] = LAGS,
    events: int = 10_000,
    seed: int = 0,
    quiet: bool = False,
) -> dict[str, Any]:
    """Return all four measurements, as published."""
    upright = encode(learner, data.characters(characters), quiet=quiet)
    ways = len(upright)
    all_at_once = {
        f"{ways}-way {shots}-shot": as_json(
            few_shot(learner, upright, ways=ways, shots=shots, episodes=EPISODES, asked=ASKED, seed=seed)
        )
        for shots in (1, 5)
    }
    # Streams show one drawing at a time, as one key without views.
    plain = MemoryLearner(learner.network, learner.key_size)
    turned = encode(plain, data.characters(characters).turned(), quiet=quiet)
    figures = {
        "all at once": all_at_once,
        "stream": stream(turned, classes=classes, repeats=repeats, seed=seed),
        "retention": retention(turned, lags=lags, seed=seed, quiet=quiet),
        "long tail": long_tail(turned, events=events, seed=seed, quiet=quiet),
    }
    return {
        "experiment": "omniglot lifelong",
        "split": data.split,
        "characters": {"which": characters, "upright": len(upright), "turned": len(turned)},
        "figures": figures,
    }


def show(memory: Memory, query: Tensor, value: int) -> None:
    """Write one encoded drawing, (d,), in one update."""
    memory.update(memory(query[None]), torch.tensor([value]))


def correct(memory: Memory, queries: Tensor, values: Tensor) -> float:
    """Return the fraction of the queries (n, ..., d) whose answers are their values (n,)."""
    answers = torch.cat([memory(part).value for part in queries.split(200)])
    return float((answers == values.view(-1, *[1] * (answers.dim() - 1))).double().mean())


@torch.no_grad()
def stream(encoded: Tensor, *, classes: int, repeats: int, seed: int, shown: int = 15) -> dict[str, Any]:
    """Show `shown` drawings of each class, class after class, then classify others of all classes.

    encoded: (classes, drawings, d).
    """
    available, drawings, size = encoded.shape
    if classes > available:
        raise ValueError(f"A stream of {classes} classes needs {classes}; there are {available}.")
    _check_drawings(drawings, shown + ASKED)
    generator = torch.Generator().manual_seed(seed)
    marks = [mark for mark in GROWTH if mark < classes] + [classes]
    accuracies = torch.empty(repeats, len(marks), dtype=torch.float64)
    for repeat in range(repeats):
        chosen = torch.randperm(available, generator=generator)[:classes]
        drawn = torch.rand(classes, drawings, generator=generator).argsort(1)
        examples = encoded[chosen[:, None], drawn]
        memory = Memory(size, capacity=classes * shown, k=1)
        for value in range(classes):
            for drawing in range(shown):
                show(memory, examples[value, drawing], value)
            if value + 1 in marks:
                asked = examples[: value + 1, shown : shown + ASKED]
                accuracies[repeat, marks.index(value + 1)] = correct(memory, asked, torch.arange(value + 1))
    growth = {str(mark): as_json(mean_of(accuracies[:, column])) for column, mark in enumerate(marks)}
    return {f"{classes} classes": growth[str(classes)], "by classes learned": growth}


@torch.no_grad()
def retention(
    encoded: Tensor, *, lags: tuple[int, ...], seed: int, small: int = 1000, targets: int = 100, quiet: bool = True
) -> dict[str, Any]:
    """Show one drawing of each of `targets` characters, then distractors, and classify other drawings of the targets.

    The targets are upright and are shown in one update, so they all have the same age. The distractors, one per update,
    are random drawings of all rotations of the other characters. One memory has room for the whole stream, the other
    has `small` slots.

    encoded: (classes, drawings, d), the four rotations of a character in consecutive rows.
    """
    classes, drawings, size = encoded.shape
    targets = min(targets, classes // 8)
    _check_drawings(drawings, 1 + ASKED)
    generator = torch.Generator().manual_seed(seed)
    shuffled = torch.randperm(classes // 4, generator=generator) * 4
    chosen, others = shuffled[:targets], (shuffled[targets:, None] + torch.arange(4)).flatten()
    asked = encoded[chosen, 1 : 1 + ASKED]
    events = others[torch.randint(len(others), (max(lags),), generator=generator)].tolist()
    drawn = torch.randint(drawings, (max(lags),), generator=generator).tolist()
    figures: dict[str, Any] = {"targets": targets, "distractor classes": len(others)}
    for name, capacity in (("large enough", max(lags) + targets), ("too small", small)):
        memory = Memory(size, capacity=capacity, k=1)
        memory.update(memory(encoded[chosen, 0]), chosen)
        accuracies = {}
        for lag, (value, drawing) in enumerate(zip(tqdm(events, desc=name, disable=quiet), drawn, strict=True), 1):
            show(memory, encoded[value, drawing], value)
            if lag in lags:
                accuracies[str(lag)] = round(100 * correct(memory, asked, chosen), 2)
                if not torch.isin(memory.values, chosen).any():
                    break  # no slot holds a target any more, so the accuracy stays 0
        accuracies |= {str(lag): 0.0 for lag in lags if str(lag) not in accuracies}
        figures[name] = {"capacity": capacity, "filled": len(memory), "by updates since shown": accuracies}
    return figures


@torch.no_grad()
def long_tail(encoded: Tensor, *, events: int, seed: int, exponent: float = 1.0, quiet: bool = True) -> dict[str, Any]:
    """Draw classes with probability proportional to 1 / rank^exponent; classify each drawing, then show it.

    No drawing occurs twice: a class without unused drawings is not drawn any more.

    encoded: (classes, drawings, d).
    """
    classes, drawings, size = encoded.shape
    events = min(events, classes * drawings)
    generator = torch.Generator().manual_seed(seed)
    ranked = torch.randperm(classes, generator=generator)
    order = torch.rand(classes, drawings, generator=generator).argsort(1)
    chances = torch.arange(1, classes + 1, dtype=torch.float64) ** -exponent
    memory = Memory(size, capacity=events)
    count = torch.zeros(classes, dtype=torch.int64)
    seen, right = torch.empty(events, dtype=torch.int64), torch.empty(events, dtype=torch.bool)
    confidence, similarity = torch.empty(events), torch.empty(events)
    for event in tqdm(range(events), desc="long tail", disable=quiet):
        rank = int(torch.multinomial(chances, 1, generator=generator))
        value, before = int(ranked[rank]), int(count[rank])
        recall = memory(encoded[value, order[rank, before]][None])
        seen[event], right[event] = before, bool(recall.value == value)
        confidence[event], similarity[event] = recall.confidence[0], recall.similarities[0, 0]
        memory.update(recall, torch.tensor([value]))
        count[rank] += 1
        if before + 1 == drawings:
            chances[rank] = 0.0
    by_seen = {}
    for name, least, most in SEEN:
        among = (seen >= least) & (seen <= most)
        asked = int(among.sum())
        by_seen[name] = {
            "asked": asked,
            "accuracy": round(100 * float(right[among].double().mean()), 2) if asked and most else None,
            "confidence": round(float(confidence[among].mean()), 3) if asked else None,
        }
    return {
        "events": events,
        "by times seen": by_seen,
        "seen or never seen": {
            "AUROC of confidence": round(auroc(confidence, seen > 0), 4),
            "AUROC of similarity": round(auroc(similarity, seen > 0), 4),
        },
    }


def auroc(score: Tensor, positive: Tensor) -> float:
    """Return the probability that a random positive scores higher than a random negative; ties count half."""
    sizes = int(positive.sum()), int((~positive).sum())
    if 0 in sizes:
        return float("nan")
    levels, level = score.unique(return_inverse=True)
    of_level = torch.bincount(level, minlength=len(levels)).double()
    rank = (of_level.cumsum(0) - (of_level - 1) / 2)[level]  # equal scores get their mean rank
    above = float(rank[positive].sum()) - sizes[0] * (sizes[0] + 1) / 2
    return above / (sizes[0] * sizes[1])


def _check_drawings(drawings: int, needed: int) -> None:
    if drawings < needed:
        raise ValueError(f"This needs {needed} drawings of a class; there are {drawings}.")
