"""Something to play with at once: drawings and sentences that are taught when `rarecall serve --demo` starts."""

from __future__ import annotations

import math

from PIL import Image, ImageDraw

from rarecall.integrations.drawings import KEPT
from rarecall.serve.images import to_drawing
from rarecall.serve.memories import Served

Point = tuple[float, float]
SIDE, PEN = 1280, 46  # pixels: the paper of a drawing, and its pen


def _arc(x: float, y: float, radius: float, start: float, end: float, stretch: float = 1.0) -> list[Point]:
    """Points of an arc, between angles in turns, clockwise from the right."""
    angles = [math.tau * (start + (end - start) * step / 24) for step in range(25)]
    return [(x + radius * math.cos(angle), y + stretch * radius * math.sin(angle)) for angle in angles]


def _heart() -> list[Point]:
    turns = [math.tau * step / 48 for step in range(49)]
    return [
        (0.5 + 0.42 * math.sin(t) ** 3, 0.45 - 0.34 * math.cos(t) + 0.14 * math.cos(2 * t) + 0.06 * math.cos(3 * t))
        for t in turns
    ]


def _spiral() -> list[Point]:
    return [(0.5 + t / 160 * math.cos(t / 8), 0.5 + t / 160 * math.sin(t / 8)) for t in range(64)]


def _star() -> list[Point]:
    return [(0.5 + 0.4 * math.sin(0.8 * math.pi * i), 0.5 - 0.4 * math.cos(0.8 * math.pi * i)) for i in range(6)]


# Strokes in a square of side 1, y down.
DRAWINGS: dict[str, list[list[Point]]] = {
    "house": [[(0.2, 0.9), (0.2, 0.45), (0.5, 0.1), (0.8, 0.45), (0.8, 0.9), (0.2, 0.9)], [(0.2, 0.45), (0.8, 0.45)]],
    "star": [_star()],
    "heart": [_heart()],
    "spiral": [_spiral()],
    "fish": [[*_arc(0.42, 0.5, 0.32, 0.04, 0.96, 0.6), (0.95, 0.75), (0.95, 0.25), (0.74, 0.45)]],
    "lightning": [[(0.62, 0.05), (0.3, 0.55), (0.62, 0.5), (0.36, 0.95)]],
}
SENTENCES = {
    "card swallowed": [
        "the machine ate my card",
        "the ATM kept my card",
        "cash machine took my card",
    ],
    "card lost": ["I lost my card", "my wallet with the card is gone", "I can't find my bank card"],
    "balance": ["how much money do I have", "show me my balance", "what is left in my account"],
    "transfer late": [
        "my transfer has not arrived",
        "when will the money get there",
        "payment still pending",
    ],
    "change PIN": ["I want a new PIN", "how do I change my PIN", "I forgot my PIN number"],
}
SUGGESTIONS = ["an ATM swallowed my bank card", "is my money there yet?", "will it rain tomorrow?"]


def teach(memory: Served) -> None:
    """Teach an empty memory the examples of its kind, and suggest questions."""
    if len(memory.classifier):
        return
    pairs: list[tuple[bytes | str, str]] = []
    if memory.kind == "drawing":
        pairs = [(to_drawing(draw(strokes)), label) for label, strokes in DRAWINGS.items()]
    elif memory.kind == "text":
        pairs = [(text, label) for label, texts in SENTENCES.items() for text in texts]
        memory.suggestions = SUGGESTIONS
    if pairs:
        memory.classifier.teach([example for example, _ in pairs], [label for _, label in pairs], who="the demo")


def draw(strokes: list[list[Point]]) -> Image.Image:
    """Draw strokes with a round pen, dark on white."""
    image = Image.new("L", (SIDE, SIDE), 255)
    pen = ImageDraw.Draw(image)
    for stroke in strokes:
        points = [(x * SIDE, y * SIDE) for x, y in stroke]
        pen.line(points, 0, PEN)
        for x, y in points:
            pen.ellipse((x - PEN / 2, y - PEN / 2, x + PEN / 2, y + PEN / 2), 0)
    return image.resize((KEPT, KEPT), Image.Resampling.BOX)
