"""python -m experiments.tables [--plots DIR]: the paper's three tables beside ours, from results/*.json.

Every row names its setting. A row without a result says "not run yet".
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from experiments import results

NOT_RUN = "not run yet"
SHOTS = ("5-way 1-shot", "5-way 5-shot", "20-way 1-shot", "20-way 5-shot")

# (model in results, title, setting, the paper's figures). From "paper" on, each row names all that it has beyond it.
OMNIGLOT: tuple[tuple[str, str, str, tuple[float, ...]], ...] = (
    ("pixels", "Pixels, nearest neighbour", "no training", (41.7, 63.2, 26.7, 42.6)),
    ("mann", "MANN", "no convolutions, no distortions", (82.8, 94.9)),
    ("siamese", "Convolutional Siamese net", "distortions in training", (96.7, 98.4, 88.0, 96.5)),
    ("matching", "Matching Network", "distortions in training", (98.1, 98.9, 93.8, 98.5)),
    (
        "paper",
        "ConvNet with memory",
        (
            "the paper's: its network, the memory's loss alone, one key a drawing, no distortions; our curriculum and "
            "normalisation of position and size"
        ),
        (98.4, 99.6, 95.0, 98.6),
    ),
    ("paper-distorted", "+ distortions", "the row above, distortions in training", ()),
    ("paper-batchnorm", "+ batch normalisation", "the row above, batch normalisation after each convolution", ()),
    (
        "paper-softmax",
        "+ softmaxes",
        (
            "the paper's network, distortions, a softmax over classes and one over the batch beside the memory's loss; "
            "neither batch normalisation nor dropout"
        ),
        (),
    ),
    ("ours", "Residual network", "the row above, another network, with batch normalisation", ()),
    (
        "joined",
        "Three networks joined",
        (
            "two residual ones and the one above with softmaxes; at test time the drawings of a class are one key, "
            "and 8 distorted views of each are kept beside it"
        ),
        (),
    ),
)

# (model in results, title, the paper's figure)
SYNTHETIC: tuple[tuple[str, str, float], ...] = (
    ("hamming", "Hamming nearest neighbour", 0.1),
    ("seq2seq", "Seq2seq with attention", 0.9),
    ("neural-gpu", "Extended Neural GPU", 12.2),
    ("seq2seq with memory", "Seq2seq with attention and memory", 35.2),
    ("neural-gpu with memory", "Extended Neural GPU with memory", 71.3),
)

# (name in results, title, the paper's BLEU on the full test, on odd lines)
TRANSLATION: tuple[tuple[str, str, float | None, float | None], ...] = (
    ("without memory", "GNMT", 23.25, 23.17),
    ("with memory", "GNMT with memory", 23.29, 23.16),
    ("even lines as context", "GNMT with memory, even lines as context", None, 23.60),
    ("whole test as context (oracle)", "GNMT with memory, whole test as context (oracle)", 31.11, None),
)
WIRINGS = {
    False: "the paper's wiring: the attention vector is the query, the answer is joined before the softmax",
    True: "our wiring: a learned query, the answer mixed in after the softmax; the network beneath is frozen",
}


def tables(folder: str | os.PathLike[str]) -> str:
    """Return the three tables of a folder of results, in Markdown."""
    return "\n".join([*_omniglot(folder), "", *_synthetic(folder), "", *_translation(folder)])


def _omniglot(folder: str | os.PathLike[str]) -> list[str]:
    found = {result["model"]: result for result in results.read_all(folder, "omniglot")}
    lines = [
        "## Table 1: Omniglot",
        "",
        "Accuracy in per cent on the 423 test characters: the paper's / ours with a 95% interval. An asterisk marks a",
        "mean below the paper's figure.",
        "",
        *_rows(("", "setting of ours", *SHOTS)),
    ]
    for model, title, setting, published in OMNIGLOT:
        cells = []
        for place, column in enumerate(SHOTS):
            figure = published[place] if place < len(published) else None
            cells.append(f"{'–' if figure is None else figure} / {_accuracy(found.get(model), column, figure)}")
        lines.append(_row(title, setting, *cells))
    trained = [(title, found[model]) for model, title, _, _ in OMNIGLOT if model in found]
    return [*lines, "", *[f"- {title}: {_omniglot_run(result)}" for title, result in trained]]


def _accuracy(result: dict[str, Any] | None, column: str, published: float | None) -> str:
    if result is None:
        return NOT_RUN
    figure = result["figures"]["upright"].get(column)
    if figure is None:
        return "–"
    short = "*" if published is not None and figure["mean"] < published else ""
    return f"{figure['mean']:.2f}{short} ± {figure['interval']:.2f}"


def _omniglot_run(result: dict[str, Any]) -> str:
    training = result.get("training", {})
    runs = training.get("of", [training])
    told = [f"{run['steps']} steps on {run['on']}, seed {run['seed']}{_begun(run)}" for run in runs if "steps" in run]
    return "; ".join([*told, _origin(result)])


def _begun(run: dict[str, Any]) -> str:
    return f", begun with {run['begun_with']}" if run.get("begun_with") else ""


def _synthetic(folder: str | os.PathLike[str]) -> list[str]:
    found = [result for result in results.read_all(folder, "synthetic") if result["preset"] == "paper"]
    lines = [
        "## Table 2: the synthetic task",
        "",
        "Fully correct test sequences in per cent. Fixed: the paper's setting, 40,000 training examples, the same in",
        "each epoch. Anew: the same 40,000 numbers, but As, Bs, length and place are drawn anew in each epoch, which",
        "is easier; compare figures within a column.",
        "",
        *_rows(("", "the paper, fixed", "ours, fixed", "ours, anew")),
    ]
    shown = []
    for model, title, published in SYNTHETIC:
        cells = []
        for anew in (False, True):
            # Hamming is not trained: it reads the fixed examples.
            of = [r for r in found if r["model"] == model and r.get("training", {}).get("anew", False) == anew]
            shown += [(f"{title}, {'anew' if anew else 'fixed'}", result) for result in of[-1:]]
            cells.append(_share(of[-1]["figures"]["test"]) if of else "–" if model == "hamming" else NOT_RUN)
        lines.append(_row(title, str(published), *cells))
    taught = {
        (result["model"], result["training"]["anew"]): result
        for result in results.read_all(folder, "synthetic new numbers")
        if result["preset"] == "paper"
    }
    lines += ["", *_rows(("New numbers, shown once after training, right when asked", "ours, fixed", "ours, anew"))]
    for model, title, _ in SYNTHETIC[1:]:
        runs = [taught.get((model, anew)) for anew in (False, True)]
        lines.append(_row(title, *[NOT_RUN if run is None else _taught(run) for run in runs]))
        shown += [(f"New numbers, {title}", run) for run in runs if run is not None]
    return [*lines, "", *[f"- {title}: {_synthetic_run(result)}" for title, result in shown]]


def _share(share: dict[str, Any]) -> str:
    return f"{share['mean']:.1f} ± {share['interval']:.1f}"


def _taught(result: dict[str, Any]) -> str:
    new = result["figures"]["new numbers"]
    memory = ", memory filled anew from the training examples" if result["refilled"] else ""
    return f"{_share(new)} of {new['asked']:,}{memory}"


def _synthetic_run(result: dict[str, Any]) -> str:
    training = result.get("training")
    if training is None:
        return _origin(result)
    hidden = f", up to {training['hide']:.0%} of As and Bs hidden" if training.get("hide") else ""
    steps = f"{training['steps']} steps of {training['batch']} sequences{hidden}"
    return f"{steps}, seed {training['seed']}{_begun(training)}; {_origin(result)}"


def _translation(folder: str | os.PathLike[str]) -> list[str]:
    found = results.read_all(folder, "translation")
    lines = [
        "## Table 3: translation",
        "",
        "English to German, BLEU on newstest2014. The paper's network has 8 layers of 1024 and was trained on WMT14.",
        "Ours were trained on Europarl, Tatoeba and older news tests, so compare differences, not scores. Differences",
        "of a context are to the same network with memory and no context; of the memory, to the network without.",
        "",
        *_rows(("", "setting", "full test", "odd lines", "difference")),
    ]
    for _, title, full, odd in TRANSLATION:
        lines.append(_row(title, "the paper", _number(full), _number(odd), "–"))
    for result in found:
        for name, title, _, _ in TRANSLATION:
            scores = result["figures"]["bleu"].get(name)
            if scores is not None:
                cells = [_number(scores.get(part, {}).get("score")) for part in ("full test", "odd lines")]
                lines.append(_row(title, _translation_setting(result, name), *cells, _difference(result, name)))
    memories = [result["training"]["with memory"] for result in found if "with memory" in result["training"]]
    for ours, wiring in WIRINGS.items():
        if not any(memory["ask"] == ours for memory in memories):
            lines.append(_row("GNMT with memory", wiring, *[NOT_RUN] * 3))
    if not any(training["units"] >= 384 for result in found for training in result["training"].values()):
        lines.append(_row("GNMT", "larger: 2 or 3 layers of 384 to 512, 12,000 to 16,000 pieces", *[NOT_RUN] * 3))
    words = results.read_all(folder, "translation words")
    for result in words:
        told = f"{result['words']} words of {result['lines']} lines, {result['rare']}, which a dictionary has"
        lines += ["", f"{told}, before and after their entries are taught:", ""]
        lines += _rows(("", "right", "%", "BLEU", "BLEU of their lines"))
        for how, of in result["figures"].items():
            scores = [_number(of[name]["score"]) for name in ("bleu", "bleu of lines with such words")]
            lines.append(_row(how, str(of["right"]), f"{100 * of['right'] / result['words']:.1f}", *scores))
    return [*lines, "", *[f"- {_origin(result)}" for result in [*found, *words]]]


def _translation_setting(result: dict[str, Any], name: str) -> str:
    training = result["training"]["without memory" if name == "without memory" else "with memory"]
    size = f"{training['layers']} layers of {training['units']}, {training['pieces']:,} pieces"
    size += ", attending twice" if training.get("reattend") else ""
    size += ", decoded greedily" if result["protocol"]["beam"]["width"] == 1 else ""
    return size if name == "without memory" else f"{size}; {WIRINGS[training['ask']]}"


def _difference(result: dict[str, Any], name: str) -> str:
    to = "without memory" if name == "with memory" else "with memory"
    told = [
        f"{one['difference']:+.2f} on the {one['on']} (p {one['p']:.3f})"
        for one in result["figures"]["differences"]
        if one["of"] == name and one["from"] == to and one["on"] in ("full test", "odd lines")
    ]
    return ", ".join(told) or "–"


def _number(score: float | None) -> str:
    return "–" if score is None else f"{score:.2f}"


def _origin(result: dict[str, Any]) -> str:
    return f"`{result['command']}`, commit {result['commit'][:12]}, {result['machine']['processor']}"


def _rows(header: Iterable[str]) -> list[str]:
    header = tuple(header)
    return [_row(*header), _row(*["---"] * len(header))]


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Print the tables; draw the plots where they are asked for."""
    parser = argparse.ArgumentParser(description="The paper's three tables beside ours, from results/*.json.")
    parser.add_argument("--results", type=Path, default=results.FOLDER, metavar="DIR", help="where the figures are")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="draw learning curves and other plots there")
    args = parser.parse_args()
    print(tables(args.results))
    if args.plots:
        from experiments.omniglot import plots as omniglot
        from experiments.synthetic import plots as synthetic
        from experiments.translation import plots as translation

        for experiment in (omniglot, synthetic, translation):
            experiment.draw(args.results, args.plots)


if __name__ == "__main__":
    main()
