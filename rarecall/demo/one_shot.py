"""Test a trained network on characters that it has never seen, with one memory that is never reset.

One drawing of each character is written to the memory, then the memory classifies other drawings of them; then the next
drawing of each is written, and so on. An image shows test drawings next to the stored drawings that determined the
answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from torch import Tensor, nn
from torch.nn import functional as F

from rarecall import Memory, MemoryClassifier

SHOWINGS = (0, 1, 2, 3, 5, 10)  # numbers of drawings per character after which the memory is tested
CELLS = (3, 4)  # rows and columns of the image
INK, GREY = "#1f2328", "#59636e"
RIGHT, RIGHT_TINT = "#1a7f5a", "#eaf6f0"
WRONG, WRONG_TINT = "#c2410c", "#fdeee6"


@dataclass(frozen=True)
class Row:
    """Accuracy after a number of drawings per character, as fractions of all questions."""

    showings: int
    memory: float
    pixels: float
    unknown: float
    slots: int


@dataclass(frozen=True)
class Answer:
    """A test drawing and the stored drawing that determined its answer."""

    question: Tensor  # (28, 28)
    character: int
    remembered: Tensor  # (28, 28), the drawing with the id in the slot's source
    source: int
    value: int
    similarity: float
    confidence: float


@dataclass(frozen=True)
class Report:
    """The rows of the table, the answers shown in the image, and the path of the image."""

    rows: tuple[Row, ...]
    answers: tuple[Answer, ...]
    picture: Path


def show_and_ask(
    memory: Memory,
    network: nn.Module,
    album: Tensor,
    questions: Tensor,
    out: Path,
    generator: torch.Generator,
    strangers: Tensor | None = None,
) -> Report:
    """Write drawings to the memory and test it, print a table, and write an image to `out` as PNG. Nothing is trained.

    Args:
        memory: an empty memory.
        network: (n, 1, 28, 28) drawings -> (n, key_size) queries.
        album: (showings, characters, 1, 28, 28), the drawings to write, one of each character at a time; the background
            is 0. The source of a slot is the index of its drawing in the flattened album.
        questions: (questions, characters, 1, 28, 28), the drawings to classify after each showing.
        out: path of the image.
        generator: random generator of the memory's updates.
        strangers: (n, 1, 28, 28), drawings of characters that are never shown: does it say that it does not know them?
    """
    showings_of_each, characters = album.shape[:2]
    asked_after = [showings for showings in SHOWINGS if showings <= showings_of_each]
    new = torch.arange(characters)
    target = new.repeat(len(questions))
    album, questions = album.flatten(0, 1), questions.flatten(0, 1)
    network.eval()
    with torch.no_grad():
        album_queries = torch.cat([network(drawings) for drawings in album.split(500)])
        question_queries = torch.cat([network(drawings) for drawings in questions.split(500)])
    rows, answers = [], []
    print(f"\n{characters} characters that it has never seen, {len(target)} questions about other drawings of them\n")
    print('showings   memory   nearest pixels   "I don\'t know"   slots')
    for showings in range(max(asked_after) + 1):
        shown = characters * showings
        if showings in asked_after:
            recall = memory(question_queries)
            row = Row(
                showings=showings,
                memory=share(recall.value == target),
                pixels=share(nearest_pixels(questions, album[:shown], new.repeat(showings)) == target),
                unknown=share(recall.value == -1),
                slots=len(memory),
            )
            rows.append(row)
            print(f"{showings:8}{row.memory:9.1%}{row.pixels:17.1%}{row.unknown:17.1%}{row.slots:8}")
        if showings == 1:
            for i in range(CELLS[0] * CELLS[1]):
                source = int(memory.sources[recall.slots[i, 0]])
                answers.append(
                    Answer(
                        question=questions[i, 0],
                        character=int(target[i]),
                        remembered=album[source, 0],
                        source=source,
                        value=int(recall.value[i]),
                        similarity=float(recall.similarities[i, 0]),
                        confidence=float(recall.confidence[i]),
                    )
                )
        if showings < max(asked_after):
            sources = torch.arange(shown, shown + characters)
            memory.update(memory(album_queries[sources]), new, source=sources, generator=generator)

    if strangers is not None:
        classifier = MemoryClassifier(network, Memory(memory.key_size, len(album)), min_known=0.5)
        classifier.teach(album, new.repeat(showings_of_each))
        unknown = share(~classifier.predict(strangers).known)
        doubted = share(~classifier.predict(questions).known)
        print(f'\n"I don\'t know" to {unknown:.0%} of {len(strangers)} drawings of characters that it was never shown,')
        print(f"and to {doubted:.0%} of the questions above, about those that it was shown {max(asked_after)} times.")
    draw_picture(answers, rows[1], characters, out)
    print(f"\nThe first {len(answers)} questions after one showing, and what answered them: {out}")
    return Report(tuple(rows), tuple(answers), out)


def share(hits: Tensor) -> float:
    """Return the fraction of `hits`, (n,) bool, that are true."""
    return float(hits.float().mean())


def nearest_pixels(questions: Tensor, shown: Tensor, classes: Tensor) -> Tensor:
    """Baseline: return the class of the shown drawing with the highest pixel cosine, -1 if none was shown."""
    if len(shown) == 0:
        return torch.full((len(questions),), -1)
    similarities = F.normalize(questions.flatten(1), dim=1) @ F.normalize(shown.flatten(1), dim=1).T
    return classes[similarities.argmax(dim=1)]


def draw_picture(answers: list[Answer], row: Row, characters: int, out: Path) -> None:
    """Draw one cell per answer: test drawing, stored drawing, similarity, confidence, and whether it is correct.

    Correct and wrong answers differ by colour, mark and border, so they can be told apart in greyscale.
    """
    rows, columns = CELLS
    width, margin, gap, header = 9.0, 0.2, 0.16, 1.05  # inches, like all sizes below
    side = 0.86
    cell_width, cell_height = (width - 2 * margin - (columns - 1) * gap) / columns, side + 0.74
    pad = (cell_width - 2 * side) / 3
    height = header + rows * (cell_height + gap) + margin - gap
    figure = Figure(figsize=(width, height), dpi=200, facecolor="white")
    page = figure.add_axes((0, 0, 1, 1))
    page.set_axis_off()

    right = sum(answer.value == answer.character for answer in answers)
    page.text(margin, height - 0.42, "Shown once, remembered", fontsize=17, weight="bold", color=INK)
    page.text(
        margin,
        height - 0.84,
        f"The network had never seen these {characters} characters. It was shown one drawing of each, then asked about "
        f"others.\n{row.memory:.0%} of its answers were right (by nearest pixels {row.pixels:.0%}). "
        f"Below: the first {len(answers)} questions, {right} of them answered right.",
        fontsize=9.5,
        color=GREY,
        linespacing=1.4,
    )
    for i, answer in enumerate(answers):
        is_right = answer.value == answer.character
        colour, tint = (RIGHT, RIGHT_TINT) if is_right else (WRONG, WRONG_TINT)
        x = margin + (i % columns) * (cell_width + gap)
        y = height - header - (i // columns) * (cell_height + gap) - cell_height
        page.add_patch(
            FancyBboxPatch(
                (x, y),
                cell_width,
                cell_height,
                boxstyle="round,pad=0,rounding_size=0.08",
                facecolor=tint,
                edgecolor=colour,
                linewidth=1.6,
                linestyle="solid" if is_right else (0, (4, 2)),
            )
        )
        for left, name, drawing in (
            (x + pad, "question", answer.question),
            (x + 2 * pad + side, "remembered", answer.remembered),
        ):
            bottom = y + cell_height - 0.24 - side
            page.text(left + side / 2, bottom + side + 0.07, name, fontsize=7.5, color=GREY, ha="center")
            page.imshow(
                1 - drawing.numpy(),
                extent=(left, left + side, bottom, bottom + side),
                cmap="gray",
                vmin=0,
                vmax=1,
                interpolation="bicubic",
                zorder=2,
            )
        page.text(x + pad, y + 0.23, "✓" if is_right else "✗", fontsize=17, weight="bold", color=colour, va="center")
        page.text(
            x + cell_width - pad,
            y + 0.24,
            f"similarity {answer.similarity:.2f}\nconfidence {answer.confidence:.0%}",
            fontsize=8.5,
            color=INK,
            ha="right",
            va="center",
        )
    page.set(xlim=(0, width), ylim=(0, height), aspect="auto")
    figure.savefig(out, format="png")
