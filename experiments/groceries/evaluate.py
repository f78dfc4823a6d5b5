"""Products from 1, 5 and 10 shop photos, from all, and from one catalogue picture, beside baselines."""

from __future__ import annotations

from typing import Any

from experiments.embedded.data import Embedded, Split
from experiments.embedded.methods import METHODS, accuracy
from experiments.embedded.streams import by_class, knn_online, relabelled, run, zipf
from experiments.intents.evaluate import measure
from rarecall import Memory

SHOTS, DRAWS = (1, 5, 10), 3  # photos a product, each drawn this often
MEMORIES: tuple[tuple[str, int | None, dict[str, Any]], ...] = (
    ("large enough", None, {}),
    ("150 slots, by age", 150, {}),
    ("150 slots, balanced", 150, {"eviction": "balanced"}),
)


def evaluate(data: Embedded, *, on: str, seed: int) -> dict[str, Any]:
    """Measure all methods; figures of draws are means."""
    settings: dict[str, list[Split]] = {
        str(shots): [data.few("train", shots, seed + draw) for draw in range(DRAWS)] for shots in SHOTS
    }
    settings |= {"all": [data.splits["train"]], "catalogue picture": [data.splits["catalogue"]]}
    figures: dict[str, Any] = {}
    for name, draws in settings.items():
        measured = [_measure(data, examples, on) for examples in draws]
        of_methods = [each["accuracy"] for each in measured]
        figures[name] = {
            "accuracy": {method: sum(each[method] for each in of_methods) / len(draws) for method in of_methods[0]},
            "calibration error": sum(each["calibration error"] for each in measured) / len(draws),
            "draws": len(draws),
        }
        print(name, {method: round(figure, 2) for method, figure in figures[name]["accuracy"].items()}, flush=True)
    return figures


def _measure(data: Embedded, examples: Split, on: str) -> dict[str, Any]:
    valid, questions = data.splits["val"], data.splits[on]
    found = measure(examples, questions, None)
    for name, method in METHODS.items():
        found["accuracy"][name] = accuracy(method(examples, valid, len(data.classes)), questions)
    return found


def streams(data: Embedded, *, on: str, seed: int) -> dict[str, Any]:
    """Measure streams of shop photos: product by product, and by a Zipf law; and labels that are changed."""
    figures: dict[str, Any] = {}
    train = data.splits["train"]
    for name, stream in {"Zipf": zipf(train, seed, 2000), "class by class": by_class(train, seed)}.items():
        figures[name] = {"kNN vote (ACM), all kept": knn_online(stream)}
        for memory, capacity, rules in MEMORIES:
            slots = len(stream.labels) if capacity is None else capacity
            figures[name][memory] = run(stream, data.splits[on], memory=Memory(stream.keys.shape[1], slots, **rules))
            print(name, memory, figures[name][memory], flush=True)
    figures["relabelled"] = relabelled(data.few("train", 10, seed), data.splits[on])
    print(figures["relabelled"], flush=True)
    return figures
