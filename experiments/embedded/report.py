"""Tables in Markdown of results on frozen embedders."""

from __future__ import annotations

import os
from typing import Any

from experiments import results

NAMES = {"nearest": "the paper's: nearest", "vote": "votes", "blend": "**blend**"}


def of_kind(folder: str | os.PathLike[str], experiment: str, kind: str) -> dict[str, Any] | None:
    """Return the result of an experiment on the test set; None where it was not run."""
    found = [each for each in results.read_all(folder, experiment) if each["kind"] == kind and each["on"] == "test"]
    return found[0] if found else None


def rows(header: list[str], body: list[list[str]]) -> list[str]:
    """Return the lines of a table."""
    return [f"| {' | '.join(line)} |" for line in (header, ["---"] * len(header), *body)]


def accuracies(columns: dict[str, dict[str, float]]) -> list[str]:
    """Return a table of accuracies: {column: {method: per cent}}, the readers of the memory last."""
    methods = list(next(iter(columns.values())))
    ordered = [method for method in methods if method not in NAMES] + [method for method in methods if method in NAMES]
    body = [
        [NAMES.get(method, method), *(f"{figures[method]:.1f}" for figures in columns.values())] for method in ordered
    ]
    return rows(["per cent right", *columns], body)


def streams(figures: dict[str, Any]) -> list[str]:
    """Return a table for each order of a stream, and one of labels that were changed."""
    lines: list[str] = []
    for order, of_order in figures.items():
        if order == "relabelled":
            measures = list(next(iter(of_order.values())))
            body = [[name, *(f"{found[name]:.1f}" for found in of_order.values())] for name in measures]
            lines += ["## A class gets another label", "", *rows(["", *of_order], body), ""]
            continue
        body = []
        for memory, found in of_order.items():
            kept = str(found["rare classes kept"]) if "rare" in found else ""
            ends = [f"{found[name]:.1f}" if name in found else "" for name in ("at the end", "rare", "common")]
            body.append([memory, f"{found['online']:.1f}", *ends, kept])
        header = [order, "over the stream", "at its end", "rare classes", "common classes", "rare classes kept"]
        lines += [*rows(header, body), ""]
    return lines


def origins(found: list[dict[str, Any] | None]) -> list[str]:
    """Return where figures come from."""
    return ["## Where the figures come from", ""] + [
        f"- `{each['command']}`, seed {each['seed']}, commit {each['commit'][:12]}. {each.get('note', '')}".rstrip()
        for each in found
        if each
    ]
