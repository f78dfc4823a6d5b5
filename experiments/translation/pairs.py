"""Encoded sentences, and batches of pairs whose sources need no padding."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from tqdm import tqdm

from experiments import folders
from experiments.translation.text import Text
from experiments.translation.vocabulary import AT_ONCE, Vocabulary
from rarecall import storage


@dataclass(frozen=True, eq=False)
class Sentences:
    """Sentences of different lengths, concatenated.

    Attributes:
        pieces: (total number of pieces,) int32, END after each sentence.
        starts: (n + 1,) int64: sentence i is pieces[starts[i]:starts[i + 1]].
    """

    pieces: Tensor
    starts: Tensor

    @property
    def lengths(self) -> Tensor:
        """Lengths of the sentences including END, (n,) int64."""
        return self.starts.diff()

    def padded(self, which: Tensor) -> tuple[Tensor, Tensor]:
        """Return sentences padded with END, (n, longest) int64, and a mask that is False in the padding."""
        lengths = self.lengths[which]
        place = torch.arange(int(lengths.max()) if len(lengths) else 0)
        mask = place < lengths[:, None]
        where = self.starts[which, None] + torch.minimum(place, lengths[:, None] - 1)
        return self.pieces[where].long(), mask

    @staticmethod
    def of(lines: Sequence[Sequence[int]]) -> Sentences:
        """Concatenate lists of pieces."""
        starts = torch.tensor([0, *(len(line) for line in lines)]).cumsum(0)
        return Sentences(torch.tensor([piece for line in lines for piece in line], dtype=torch.int32), starts)


@dataclass(frozen=True, eq=False)
class Batch:
    """Pairs whose sources have the same length.

    Attributes:
        ids: (n,) int64, indices of the pairs in the text.
        source: (n, length) int64, ending with END.
        target: (n, time) int64, padded with END.
        mask: (n, time) bool, False in the padding.
    """

    ids: Tensor
    source: Tensor
    target: Tensor
    mask: Tensor


@dataclass(frozen=True, eq=False)
class Pairs:
    """An encoded text. Pairs with an empty side are not part of any batch.

    Attributes:
        sources, targets: equally many sentences.
        parts: number of pairs from each pair of files.
    """

    sources: Sentences
    targets: Sentences
    parts: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.sources.starts) - 1

    def batch(self, which: Tensor) -> Batch:
        """Return the batch of the pairs `which`, (n,) int64, whose sources have the same length."""
        return Batch(which, self.sources.padded(which)[0], *self.targets.padded(which))

    def usable(self, longest: int) -> Tensor:
        """Return whether both sides have 1 to `longest` pieces, not counting END: (n,) bool."""
        lengths = torch.stack((self.sources.lengths, self.targets.lengths)) - 1
        return ((lengths > 0) & (lengths <= longest)).all(0)

    def by_pair(self, of_parts: Tensor) -> Tensor:
        """Repeat a value of each part for each of its pairs, (parts,) -> (n,)."""
        return torch.repeat_interleave(of_parts, torch.tensor(self.parts))

    def repeated(self, repeats: Sequence[int], usable: Tensor) -> Tensor:
        """Return the indices of the usable pairs, (m,) int64, those of each part repeated; usable: (n,) bool."""
        return torch.repeat_interleave(torch.arange(len(self)), self.by_pair(torch.tensor(repeats)) * usable)

    def windows(
        self, repeats: Sequence[int], usable: Tensor, passage: int, together: int, generator: torch.Generator
    ) -> list[Tensor]:
        """Return the usable pairs, those of each part repeated, in random windows that keep passages together.

        Args:
            repeats: how often each part is repeated.
            usable: (n,) bool, which pairs to return.
            passage: consecutive pairs in a passage.
            together: passages per window, from any parts.
            generator: random generator of the order.

        Returns:
            The indices of the pairs of each window, (n,) int64.
        """
        numbers = torch.arange(len(self))
        passages = [
            lines[usable[lines]]
            for part, often in zip(numbers.split(list(self.parts)), repeats, strict=True)
            for _ in range(often)
            for lines in part.split(passage)
        ]
        order = torch.randperm(len(passages), generator=generator).tolist()
        found = [
            torch.cat([passages[number] for number in order[start : start + together]])
            for start in range(0, len(order), together)
        ]
        return [window for window in found if len(window)]

    def batches(self, which: Tensor, tokens: int, generator: torch.Generator) -> list[Tensor]:
        """Split pairs into batches of sources of the same length and at most `tokens` target pieces.

        No source is padded, so the encoder needs no mask. Pairs of similar target lengths are batched together; pairs
        of the same lengths and batches are in random order.

        Args:
            which: (n,) int64, indices of pairs, possibly repeated.
            tokens: maximum number of target pieces per batch, including padding; a batch has at least one pair.
            generator: random generator of the order.
        """
        which = which[torch.randperm(len(which), generator=generator)]
        lengths = torch.stack((self.sources.lengths, self.targets.lengths), 1)[which]
        order = (lengths[:, 0] * (int(lengths[:, 1].max()) + 1) + lengths[:, 1]).argsort(descending=True, stable=True)
        which, lengths = which[order], lengths[order]
        # In descending order: the first of a batch is the longest.
        ends = torch.cat((lengths[:, 0].diff().nonzero().squeeze(1) + 1, torch.tensor([len(which)]))).tolist()
        targets, found, start = lengths[:, 1].tolist(), [], 0
        for end in ends:
            while start < end:
                stop = min(end, start + max(1, tokens // targets[start]))
                found.append(which[start:stop])
                start = stop
        return [found[number] for number in torch.randperm(len(found), generator=generator).tolist()]


def encode(text: Text, vocabulary: Vocabulary, *, cached: bool = False, quiet: bool = True) -> Pairs:
    """Encode a text.

    Args:
        text: the sentences.
        vocabulary: the vocabulary.
        cached: use the cache, for large texts.
        quiet: show no progress bar.
    """
    key = hashlib.sha256(f"{text.digest} {vocabulary.digest}".encode()).hexdigest()[:16]
    path = folders.cache() / f"pairs-{key}.safetensors"
    if cached and path.is_file():
        tensors, _ = storage.read(path, kind="pairs")
    else:
        tensors = {}
        for name, lines in (("source", text.sources), ("target", text.targets)):
            sentences = _encoded(lines, vocabulary, name, quiet)
            tensors |= {f"{name}/pieces": sentences.pieces, f"{name}/starts": sentences.starts}
        if cached:
            folders.keep(path, tensors, kind="pairs")
    sides = [Sentences(tensors[f"{side}/pieces"], tensors[f"{side}/starts"]) for side in ("source", "target")]
    return Pairs(sides[0], sides[1], text.parts)


def by_length(lines: Sequence[Sequence[int]], size: int) -> list[tuple[list[int], Tensor]]:
    """Batch lines for translation: indices of at most `size` lines of the same length, and their pieces, (n, length).

    The longest come first. Empty lines, whose only piece is END, are left out.
    """
    places: dict[int, list[int]] = {}
    for place, line in enumerate(lines):
        if len(line) > 1:
            places.setdefault(len(line), []).append(place)
    return [
        (of_length[start : start + size], torch.tensor([lines[place] for place in of_length[start : start + size]]))
        for _, of_length in sorted(places.items(), reverse=True)
        for start in range(0, len(of_length), size)
    ]


def _encoded(lines: list[str], vocabulary: Vocabulary, title: str, quiet: bool) -> Sentences:
    parts = []
    for start in tqdm(range(0, len(lines), AT_ONCE), desc=f"encoding the {title}", disable=quiet):
        parts.append(Sentences.of(vocabulary.encode(lines[start : start + AT_ONCE])))
    lengths = torch.cat([part.lengths for part in parts])
    return Sentences(torch.cat([part.pieces for part in parts]), torch.cat((torch.zeros(1).long(), lengths.cumsum(0))))
