"""The code blocks of README and docs run as they stand, one after the other."""

import json
import re
from pathlib import Path

import pytest
import torch

from benchmarks import document as speed
from experiments.groceries import table as groceries
from experiments.intents import table as intents
from experiments.synthetic import table as synthetic
from experiments.translation import table as translation
from experiments.translation.evaluate import EVEN, MEMORY, ODD

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
WITH_CODE = [document for document in DOCUMENTS if "```python" in document.read_text()]


@pytest.mark.parametrize("document", WITH_CODE, ids=lambda document: document.stem)
# FAISS is built with SWIG, whose types warn when they are made.
@pytest.mark.filterwarnings("ignore:builtin type .* has no __module__ attribute:DeprecationWarning")
def test_code_blocks_run(document, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, document.name, "exec"), names)
    if document.stem == "README":
        # What the README says: the network has learned, and what was shown once was known, and is forgotten.
        memory = names["memory"]
        assert names["recall"].value == 99
        assert memory.forget(value=99) == 0
        network, centres = names["network"], names["centres"]
        with torch.no_grad():
            answers = memory(network(centres + 0.5 * torch.randn(50, 20))).value
        assert (answers == torch.arange(50)).float().mean() > 0.9


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.stem)
def test_links_between_documents_lead_somewhere(document) -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)", document.read_text()):
        assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_the_tables_of_speed_are_those_of_the_results() -> None:
    text = speed.DOCUMENT.read_text()
    assert speed.filled(text) == text


def test_the_tables_of_the_synthetic_task_are_those_of_the_results() -> None:
    text = (ROOT / "docs" / "synthetic.md").read_text()
    _, *tasks = synthetic.table(ROOT / "results").split("\nFully correct test sequences")
    assert len(tasks) == 3  # the paper's task in its two settings, and the small one
    for printed in tasks:
        rows = [line for line in printed.split("\n###")[0].splitlines() if line.startswith("| ")]
        assert len(rows) == 7
        assert "\n".join(rows) in text


@pytest.mark.parametrize("experiment", [intents, groceries], ids=["intents", "groceries"])
def test_the_tables_of_frozen_embedders_are_those_of_the_results(experiment) -> None:
    text = (ROOT / "docs" / f"{experiment.__name__.split('.')[1]}.md").read_text()
    assert experiment.table(ROOT / "results").rstrip() in text


def test_the_tables_of_translation_are_those_of_the_results() -> None:
    text = (ROOT / "docs" / "translation.md").read_text()
    printed, _ = translation.table(ROOT / "results").split("\n## Where the figures come from")
    rows = [line for line in printed.splitlines() if line.startswith("| ")]
    assert len(rows) > 15
    assert not [row for row in rows if row not in text]


def test_the_figures_of_the_readme_are_those_of_the_results() -> None:
    def figures(name: str):
        return json.loads((ROOT / "results" / f"{name}.json").read_text())

    omniglot = figures("omniglot-joined")["figures"]["upright"]
    faster = [r["recall"] for r in figures("speed-exact")["rows"] if (r["workload"], r["batch"]) == ("clustered", 16)]
    by_context = [
        one["difference"]
        for name in ("translation-large", "translation-deep-odd")
        for one in figures(name)["figures"]["differences"]
        if (one["of"], one["from"], one["on"]) == (EVEN, MEMORY, ODD)
    ]
    approximate = {r["workload"]: r["step"] for r in figures("speed-approximate")["rows"] if r["batch"] == 16}
    intents = figures("intents")["figures"]["clinc150"]["10"]["accuracy"]
    expected = [
        f"| {intents['nearest']:.1f} | {intents['blend']:.1f} |",
        f"| {omniglot['5-way 1-shot']['mean']:.1f}, {omniglot['20-way 1-shot']['mean']:.1f} |",
        f"| 71.3 | {figures('synthetic-neural-gpu-memory-fixed')['figures']['test']['mean']:.1f} |",
        f"| {figures('synthetic-neural-gpu-memory')['figures']['test']['mean']:.1f} |",
        f"| {by_context[0]:+.2f}, {by_context[1]:+.2f} |",
        f"| {faster[0]:.0f} times as fast |",
        f"| {approximate['real']:.1f} (real keys) to {approximate['clustered']:.1f} times as fast |",
    ]
    text = (ROOT / "README.md").read_text()
    assert not [figure for figure in expected if figure not in text]


def test_the_figures_of_language_are_those_of_the_results() -> None:
    text = (ROOT / "docs" / "language.md").read_text()
    result = json.loads((ROOT / "results" / "language.json").read_text())
    documents, names = result["documents"], result["names"]
    for way, right in names["right"].items():
        assert f"| {way} | {' | '.join(map(str, right.values()))} |" in text
    for fact in result["facts"]:
        assert f"| {fact['prompt']} | {fact['before'].strip()} | {fact['after'].strip()} |" in text
    assert (
        f"(lower in {documents['better']}) | {documents['perplexity before']} | {documents['perplexity after']} |"
        in text
    )
    of = "perplexity of other documents"
    assert f"| {names[f'{of} before']} | {names[f'{of} after']} |" in text
