"""Characters of alphabets that never were, drawn by hands that never wrote: data that needs no download.

A class is a character: one to four strokes (lines, arcs, bowls, hooks, corners, waves), most of which touch an earlier
one, as in most scripts. A drawing is its character with the jitter of a hand: strokes turn, stretch and bend a little
and meet not quite where they should, the pen wavers, the whole leans, and no two pens are equally wide.

    alphabet = Alphabet(classes=1000, seed=0)
    drawings = alphabet.draw(torch.tensor([3, 3, 7]), torch.Generator().manual_seed(1))  # (3, 1, 28, 28), ink is 1
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor
from torch.nn import functional as F

SIZE = 28  # pixels of a side of a drawing
STROKES = 4  # of a character, at most
POINTS = 40  # of a stroke; even in the longest they lie so close that their blots make one line


@dataclass(frozen=True)
class Kind:
    """A kind of stroke: it turns by so many degrees from `start` to `end` of its way, then by `back` of them back."""

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
FIRST_KIND_ALONE = 2  # a line or an arc alone is hardly a character
COUNT_SHARES = (0.10, 0.35, 0.35, 0.20)  # characters of one, two, three and four strokes
DIRECTION_SHARES = (0.30, 0.15, 0.40, 0.15)  # strokes to the right, down and right, down, down and left
# Where a stroke is touched, and where the one that touches it does so: start, quarter, half, three quarters, end.
MEETING_SHARES = (0.28, 0.12, 0.20, 0.12, 0.28)
TOUCHING_SHARES = (0.60, 0.0, 0.25, 0.0, 0.15)
APART_SHARE = 0.10  # strokes that touch none

# The jitter of a hand: standard deviations of what two drawings of one character do not have in common.
STROKE_TURN = 0.08  # radians
STROKE_STRETCH = 0.09  # of a stroke's length, relative
STROKE_BEND = 0.08  # of a stroke's curvature, relative
WAVER = 0.09  # radians, at each of the knots along a stroke
WAVER_KNOTS = 5
SLIP = 0.05  # of the touched stroke, along it
GAP = 0.02  # of the character, any way
TURN = 0.075  # radians; this and what follows are of the whole drawing
SLANT = 0.11
SCALE = 0.065  # of the width and of the height, relative
SHIFT = 0.8  # pixels
EXTENT = 18.5  # pixels that a character is wide or high, whichever is more, before the jitter
PEN = (0.65, 1.1)  # pixels: the standard deviation of a point's blot, from the narrowest pen to the widest

# What makes a character unfit for an alphabet.
NARROWEST, FLATTEST = 0.3, 0.5  # width to height, height to width
COVERED = 0.4  # of a stroke that lies within NEAR of other strokes
NEAR = 0.1
ALIKE = 0.9  # cosine similarity of two characters, as drawn by a steady hand with a pen of BROAD
BROAD = 1.5


@dataclass(frozen=True)
class Strokes:
    """What a hand is to draw, one row a drawing; a character is 1 wide or high, whichever is more, around (0, 0)."""

    heading: Tensor  # (n, STROKES, POINTS) radians, the way the pen goes
    length: Tensor  # (n, STROKES), 0 where the character has no such stroke
    parent: Tensor  # (n, STROKES) int64, the earlier stroke on which it hangs
    meeting: Tensor  # (n, STROKES) 0..1, where on its parent
    touching: Tensor  # (n, STROKES) 0..1, where on itself
    gap: Tensor  # (n, STROKES, 2) from there to here; of the first stroke, which has no parent, from the centre

    def __getitem__(self, rows: Tensor) -> Strokes:
        return Strokes(*(getattr(self, field.name)[rows] for field in fields(self)))

    def points(self) -> Tensor:
        """-> (n, STROKES, POINTS, 2): where the pen goes, x to the right and y down."""
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
    """`classes` characters, numbered from 0, no two of them alike.

    One seed makes one alphabet: a larger one of the same seed begins with the same characters.
    """

    def __init__(self, classes: int, seed: int = 0) -> None:
        if classes < 1:
            raise ValueError(f"Alphabet got classes={classes}; expected at least 1.")
        self.classes = classes
        generator = torch.Generator().manual_seed(seed)
        characters: list[Strokes] = []
        looks = torch.empty(0, (SIZE // 2) ** 2)  # of the characters so far, each a blurred drawing of length 1
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
        """A new drawing of each of the classes, by a hand of its own.

        classes: (n,) int64, 0 to `self.classes` - 1 -> drawings: (n, 1, 28, 28), 0 is paper and 1 is ink
        """
        if classes.dim() != 1 or classes.dtype != torch.int64:
            raise ValueError(
                f"draw got classes of shape {tuple(classes.shape)} and type {classes.dtype}; expected (n,) and "
                "torch.int64. Flatten them, or convert them with .long()."
            )
        if ((classes < 0) | (classes >= self.classes)).any():
            raise ValueError(
                f"draw got classes from {int(classes.min())} to {int(classes.max())}; this alphabet has 0 to "
                f"{self.classes - 1}. Ask for these, or make a larger one."
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
    """-> int64 of that shape, i as often as shares[i] says"""
    picks = torch.multinomial(torch.tensor(shares), math.prod(shape), replacement=True, generator=generator)
    return picks.view(shape)


def _invent(n: int, generator: torch.Generator) -> Strokes:
    """n characters, good and bad."""
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

    # A direction belongs to the whole stroke, from its first point to its last, whatever it does between.
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
    """Of these, in a frame of size 1, those that are no mere dash and whose strokes do not run over each other."""
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
    """points: (n, STROKES, POINTS, 2), length: (n, STROKES) -> centre and extent of what is drawn, (n, 2) each"""
    there = (length > 0)[..., None, None]
    low = points.where(there, math.inf).amin(dim=(1, 2))
    high = points.where(there, -math.inf).amax(dim=(1, 2))
    return (low + high) / 2, high - low


def _ink(points: Tensor, length: Tensor, pen: Tensor) -> Tensor:
    """points: (n, STROKES, POINTS, 2) in pixels from the centre, length: (n, STROKES), pen: (n,) -> (n, 1, 28, 28)

    Every point leaves a round Gaussian blot. A Gaussian is one of x times one of y, so that all blots of a drawing are
    added by one small matrix product. Along a line the blots add up to 1; cut off low and high, that is a line with
    soft edges, and where lines cross it is no blacker than ink.
    """
    pixel = torch.arange(SIZE) - (SIZE - 1) / 2
    blots = (-0.5 * ((points.flatten(1, 2)[..., None] - pixel) / pen[:, None, None, None]).square()).exp()
    across, down = blots.unbind(dim=2)  # (n, STROKES * POINTS, SIZE) each
    weight = (length / POINTS / (math.sqrt(2 * math.pi) * pen[:, None])).repeat_interleave(POINTS, dim=1)
    ink = down.transpose(1, 2) @ (across * weight[..., None])
    return ((ink - 0.2) / 0.5).clamp(0, 1)[:, None]
