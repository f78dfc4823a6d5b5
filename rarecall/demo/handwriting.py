"""Generator of handwriting-like characters: one-shot learning data that needs no download.

A class is a character made of one to four strokes (lines, arcs, bowls, hooks, corners, waves), most of which touch an
earlier one, as in most scripts. A drawing is its character with random jitter: strokes are rotated, stretched and bent,
their contact points move, the pen wavers, the whole drawing is slanted, and the pen width varies.

    alphabet = Alphabet(classes=1000, seed=0)
    drawings = alphabet.draw(torch.tensor([3, 3, 7]), torch.Generator().manual_seed(1))  # (3, 1, 28, 28), ink is 1
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor
from torch.nn import functional as F

SIZE = 28  # side of a drawing in pixels
STROKES = 4  # maximum number of strokes of a character
POINTS = 40  # points per stroke, dense enough that even the longest stroke is drawn as a continuous line


@dataclass(frozen=True)
class Kind:
    """A kind of stroke: it turns by `degrees` between the fractions `start` and `end` of its length, then `back` times
    as far in the other direction.
    """

    share: float
    degrees: tuple[float, float]
    start: float = 0.0
    end: float = 1.0
    back: float = 0.0


KINDS = (
    Kind(share=0.32, degrees=(-6, 6)),  # a line: | - /
    Kind(share=0.20, degrees=(70, 180)),  # an arc: ( )
    Kind(share=0.12, degrees=(250, 350)),  # a bowl: o c
    Kind(share=0.14, degrees=(90, 220), start=0.55),  # a hook: j
    Kind(share=0.12, degrees=(70, 140), start=0.46, end=0.54),  # a corner: L v
    Kind(share=0.10, degrees=(110, 210), end=0.5, back=1.0),  # a wave: s ~
)
FIRST_KIND_ALONE = 2  # a line or an arc alone does not make a character
COUNT_SHARES = (0.10, 0.35, 0.35, 0.20)  # probabilities of one, two, three and four strokes
DIRECTION_SHARES = (0.30, 0.15, 0.40, 0.15)  # probabilities of right, down-right, down, down-left
# Contact point on the parent stroke and on the stroke itself: start, quarter, half, three quarters, end.
MEETING_SHARES = (0.28, 0.12, 0.20, 0.12, 0.28)
TOUCHING_SHARES = (0.60, 0.0, 0.25, 0.0, 0.15)
APART_SHARE = 0.10  # strokes that touch no other

# Jitter: standard deviations of the differences between two drawings of one character.
STROKE_TURN = 0.08  # radians
STROKE_STRETCH = 0.09  # relative to the stroke's length
STROKE_BEND = 0.08  # relative to the stroke's curvature
WAVER = 0.09  # radians, at each knot along a stroke
WAVER_KNOTS = 5
SLIP = 0.05  # along the touched stroke, relative to its length
GAP = 0.02  # in any direction, relative to the character's size
TURN = 0.075  # radians; this and the following apply to the whole drawing
SLANT = 0.11
SCALE = 0.065  # relative, independently for width and height
SHIFT = 0.8  # pixels
EXTENT = 18.5  # pixels: the larger of width and height before jitter
PEN = (0.65, 1.1)  # pixels: range of the standard deviation of a point's Gaussian blot

# Criteria for rejecting a character.
NARROWEST, FLATTEST = 0.3, 0.5  # minimum width / height and height / width
COVERED = 0.4  # maximum fraction of a stroke that lies within NEAR of other strokes
NEAR = 0.1
ALIKE = 0.9  # maximum cosine similarity of two characters drawn without jitter with a pen of width BROAD
BROAD = 1.5


@dataclass(frozen=True)
class Strokes:
    """Strokes of drawings, one row per drawing, centred at (0, 0); the larger of width and height is 1."""

    heading: Tensor  # (n, STROKES, POINTS) radians, direction of the pen
    length: Tensor  # (n, STROKES), 0 if the character has no such stroke
    parent: Tensor  # (n, STROKES) int64, the earlier stroke that it touches
    meeting: Tensor  # (n, STROKES) 0..1, contact point on the parent
    touching: Tensor  # (n, STROKES) 0..1, contact point on the stroke itself
    gap: Tensor  # (n, STROKES, 2) offset between the two; for the first stroke, which has no parent, from (0, 0)

    def __getitem__(self, rows: Tensor) -> Strokes:
        return Strokes(*(getattr(self, field.name)[rows] for field in fields(self)))

    def points(self) -> Tensor:
        """Return the points of all strokes, (n, STROKES, POINTS, 2), x to the right and y down."""
        step = torch.stack((self.heading.cos(), self.heading.sin()), dim=-1) * (self.length / POINTS)[..., None, None]
        points = step.cumsum(dim=2)
        points[:, 0] += self.gap[:, 0, None]
        row = torch.arange(len(points))
        meeting, touching = (at.clamp(0, 1).mul(POINTS - 1).round().long() for at in (self.meeting, self.touching))
        for stroke in range(1, STROKES):
            target = points[row, self.parent[:, stroke], meeting[:, stroke]] + self.gap[:, stroke]
            points[:, stroke] += (target - points[row, stroke, touching[:, stroke]])[:, None]
        return points


class Alphabet:
    """An alphabet of `classes` distinct characters, numbered from 0.

    The seed determines the alphabet; a larger one with the same seed starts with the same characters.
    """

    def __init__(self, classes: int, seed: int = 0) -> None:
        if classes < 1:
            raise ValueError(f"Alphabet got classes={classes}; expected at least 1.")
        self.classes = classes
        generator = torch.Generator().manual_seed(seed)
        characters: list[Strokes] = []
        looks = torch.empty(0, (SIZE // 2) ** 2)  # accepted characters as blurred drawings of norm 1
        while len(looks) < classes:
            strokes = _legible(_invent(256, generator))
            pen = torch.full((len(strokes.length),), BROAD)
            steady = _ink(EXTENT * strokes.points(), EXTENT * strokes.length, pen)
            look = F.normalize(F.avg_pool2d(steady, 2).flatten(1), dim=1)
            twin = (torch.cat((look @ looks.T, (look @ look.T).tril(-1)), dim=1) > ALIKE).any(dim=1)
            characters.append(strokes[~twin])
            looks = torch.cat((looks, look[~twin]))
        self._strokes = Strokes(
            *(torch.cat([getattr(c, field.name) for c in characters])[:classes] for field in fields(Strokes))
        )

    def draw(self, classes: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return a new drawing of each of the classes, with independent jitter.

        Args:
            classes: (n,) int64, 0 to `self.classes` - 1.
            generator: random generator (default: torch's global one).

        Returns:
            (n, 1, 28, 28) float, 0 is background and 1 is ink.
        """
        if classes.dim() != 1 or classes.dtype != torch.int64:
            raise ValueError(
                f"draw got classes of shape {tuple(classes.shape)} and type {classes.dtype}; expected (n,) and "
                "torch.int64. Flatten them, or convert them with .long()."
            )
        if ((classes < 0) | (classes >= self.classes)).any():
            raise ValueError(
                f"draw got classes from {int(classes.min())} to {int(classes.max())}; this alphabet has 0 to "
                f"{self.classes - 1}. Use these classes, or create a larger alphabet."
            )
        n = len(classes)

        def noise(*shape: int) -> Tensor:
            return torch.randn(n, *shape, generator=generator)

        model = self._strokes[classes]
        mean = model.heading.mean(dim=2, keepdim=True)
        waver = F.interpolate(noise(STROKES, WAVER_KNOTS), size=POINTS, mode="linear", align_corners=True)
        strokes = Strokes(
            heading=mean
            + (model.heading - mean) * (1 + STROKE_BEND * noise(STROKES, 1))
            + STROKE_TURN * noise(STROKES, 1)
            + WAVER * waver,
            length=model.length * (STROKE_STRETCH * noise(STROKES)).exp(),
            parent=model.parent,
            meeting=model.meeting + SLIP * noise(STROKES),
            touching=model.touching,
            gap=model.gap + GAP * noise(STROKES, 2),
        )

        x, y = strokes.points().unbind(dim=-1)  # (n, STROKES, POINTS) each
        turn, slant, wider, higher = (jitter[:, None, None] for jitter in noise(4).unbind(dim=1))
        x = (x - SLANT * slant * y) * (SCALE * wider).exp()
        y = y * (SCALE * higher).exp()
        cos, sin = (TURN * turn).cos(), (TURN * turn).sin()
        points = torch.stack((x * cos - y * sin, x * sin + y * cos), dim=-1)
        points = EXTENT * (points - _box(points, strokes.length)[0][:, None, None]) + SHIFT * noise(1, 1, 2)
        pen = PEN[0] + (PEN[1] - PEN[0]) * torch.rand(n, generator=generator)
        return _ink(points, EXTENT * strokes.length, pen)


def _pick(shares: tuple[float, ...], shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Return int64 indices of this shape; index i has probability shares[i]."""
    picks = torch.multinomial(torch.tensor(shares), math.prod(shape), replacement=True, generator=generator)
    return picks.view(shape)


def _invent(n: int, generator: torch.Generator) -> Strokes:
    """Return n random characters, legible or not."""
    shape = (n, STROKES)
    count = 1 + _pick(COUNT_SHARES, (n, 1), generator)
    kind = _pick(tuple(kind.share for kind in KINDS), shape, generator)
    alone = torch.randint(FIRST_KIND_ALONE, len(KINDS), shape, generator=generator)
    kind = torch.where(count == 1, alone, kind)

    table = torch.tensor([(*kind.degrees, kind.start, kind.end, kind.back) for kind in KINDS])
    low, high, start, end, back = table[kind][..., None].unbind(dim=2)  # (n, STROKES, 1) each
    turn = (low + (high - low) * torch.rand(*shape, 1, generator=generator)).deg2rad()
    turn = turn * (2 * torch.randint(2, (*shape, 1), generator=generator) - 1)
    way = torch.linspace(0, 1, POINTS)
    forth = ((way - start) / (end - start)).clamp(0, 1)
    heading = turn * (forth - back * ((way - end) / (1 - end).clamp(min=1e-6)).clamp(0, 1))

    # The direction of a stroke is that from its first point to its last, whatever its shape.
    path = torch.stack((heading.cos(), heading.sin()), dim=-1).cumsum(dim=2) / POINTS
    chord = path[:, :, -1] - path[:, :, 0]
    direction = math.pi / 4 * _pick(DIRECTION_SHARES, shape, generator) + 0.1 * torch.randn(shape, generator=generator)
    heading = heading + (direction - torch.atan2(chord[..., 1], chord[..., 0]))[..., None]
    reach = 0.4 + 0.6 * torch.rand(shape, generator=generator)
    reach[:, 0] = reach[:, 0].clamp(min=0.75)
    length = reach / (path.amax(dim=2) - path.amin(dim=2)).norm(dim=-1)

    apart = torch.rand(shape, generator=generator) < APART_SHARE
    distance = torch.where(apart, 0.25 + 0.2 * torch.rand(shape, generator=generator), 0.0)
    angle = 2 * math.pi * torch.rand(shape, generator=generator)
    quarters = torch.linspace(0, 1, len(MEETING_SHARES))
    return Strokes(
        heading=heading,
        length=torch.where(torch.arange(STROKES) < count, length, 0.0),
        parent=(torch.rand(shape, generator=generator) * torch.arange(STROKES).minimum(count)).long(),
        meeting=quarters[_pick(MEETING_SHARES, shape, generator)],
        touching=quarters[_pick(TOUCHING_SHARES, shape, generator)],
        gap=distance[..., None] * torch.stack((angle.cos(), angle.sin()), dim=-1),
    )


def _legible(strokes: Strokes) -> Strokes:
    """Scale characters to size 1, and return those that are not flat or narrow and whose strokes do not overlap."""
    centre, extent = _box(strokes.points(), strokes.length)
    size = extent.amax(dim=1)
    gap = strokes.gap.clone()
    gap[:, 0] -= centre
    strokes = replace(strokes, length=strokes.length / size[:, None], gap=gap / size[:, None, None])

    width, height = extent.unbind(dim=1)
    dash = (width < NARROWEST * height) | (height < FLATTEST * width)
    points = strokes.points().flatten(1, 2)  # (n, STROKES * POINTS, 2)
    there = (strokes.length > 0).repeat_interleave(POINTS, dim=1)
    stroke = torch.arange(STROKES).repeat_interleave(POINTS)
    near = (torch.cdist(points, points) < NEAR) & (stroke[:, None] != stroke) & there[:, None] & there[:, :, None]
    covered = near.any(dim=2).view(-1, STROKES, POINTS).float().mean(dim=2)
    return strokes[~dash & (covered <= COVERED).all(dim=1)]


def _box(points: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
    """points: (n, STROKES, POINTS, 2), length: (n, STROKES) -> centre and extent of the drawing, (n, 2) each"""
    there = (length > 0)[..., None, None]
    low = points.where(there, math.inf).amin(dim=(1, 2))
    high = points.where(there, -math.inf).amax(dim=(1, 2))
    return (low + high) / 2, high - low


def _ink(points: Tensor, length: Tensor, pen: Tensor) -> Tensor:
    """points: (n, STROKES, POINTS, 2) in pixels from the centre, length: (n, STROKES), pen: (n,) -> (n, 1, 28, 28)

    Every point leaves a round Gaussian blot. The Gaussian is separable in x and y, so one small matrix product adds all
    blots of a drawing. Along a line the blots add up to 1; rescaling and clamping gives lines with soft edges that do
    not get darker where they cross.
    """
    pixel = torch.arange(SIZE) - (SIZE - 1) / 2
    blots = (-0.5 * ((points.flatten(1, 2)[..., None] - pixel) / pen[:, None, None, None]).square()).exp()
    across, down = blots.unbind(dim=2)  # (n, STROKES * POINTS, SIZE) each
    weight = (length / POINTS / (math.sqrt(2 * math.pi) * pen[:, None])).repeat_interleave(POINTS, dim=1)
    ink = down.transpose(1, 2) @ (across * weight[..., None])
    return ((ink - 0.2) / 0.5).clamp(0, 1)[:, None]
