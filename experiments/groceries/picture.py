"""A picture: photos that are asked, the taught photo nearest to each, and the answer."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import torch
from matplotlib import pyplot

from experiments import folders
from experiments.embedded.data import image, load_groceries
from experiments.embedded.methods import taught

QUESTIONS, SHOTS = 8, 5


def draw(data: str | os.PathLike[str] | None, out: Path, *, seed: int) -> None:
    """Teach five photos of each product, ask some others, and draw both."""
    groceries = load_groceries(data)
    keys, labels = groceries.splits["train"]
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    rows = torch.cat([order[labels[order] == label][:SHOTS] for label in range(len(groceries.classes))])
    examples = type(groceries.splits["train"])(keys[rows], labels[rows])
    classifier = taught(examples)
    questions = groceries.splits["test"]
    asked = torch.randperm(len(questions.labels), generator=torch.Generator().manual_seed(seed))[:QUESTIONS]
    answer = classifier.predict(questions.keys[asked])
    nearest = classifier.explain(questions.keys[asked], neighbours=1).slots[:, 0]
    archive = zipfile.ZipFile(folders.data(data) / "groceries" / "groceries.zip")
    figure, axes = pyplot.subplots(2, QUESTIONS, figsize=(2 * QUESTIONS, 5), layout="constrained")
    for column, question in enumerate(asked.tolist()):
        label, truth = int(answer.label[column]), int(questions.labels[question])
        says = f"{groceries.classes[label]}\n{float(answer.confidence[column]):.0%}"
        right = "" if label == truth else f"\nis {groceries.classes[truth]}"
        pictures = groceries.examples["test"][question], groceries.examples["train"][int(rows[nearest[column]])]
        for row, (name, title) in enumerate(zip(pictures, (says + right, "remembered"), strict=True)):
            axes[row, column].imshow(image(archive, name))
            axes[row, column].set_title(title, fontsize=9, color="black" if label == truth else "firebrick")
            axes[row, column].axis("off")
    figure.savefig(out, dpi=80)
    pyplot.close(figure)
