"""Omniglot: 1623 characters of 50 alphabets, 20 drawings of each, as 28 x 28 images.

    data = load("data")                    # data/omniglot/images_{background,evaluation}.zip, downloaded if missing
    characters = data.characters("test")   # 423 characters, as the split says
    turned = characters.turned()           # 1692 classes: rotations by 90 degrees are classes of their own

The split is that of Vinyals et al. (2016) if data/omniglot/split/ contains its files, otherwise a random one with a
fixed seed. `Characters.split` says which.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import secrets
import urllib.error
import urllib.request
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from tqdm import tqdm

from experiments import folders
from rarecall import storage

SIZE = 28  # side of the network's input in pixels
DRAWN_SIZE = 105  # side of an image in the archives in pixels
DRAWINGS = 20  # per character
PARTS = ("background", "evaluation")
SPLITS = ("train", "val", "trainval", "test")
URL = "https://raw.githubusercontent.com/brendenlake/omniglot/master/python"
# Checksums of the drawings' names and bytes, not of the archive file, which may have been repacked.
CHECKSUMS = {
    "background": "0082e759e5e5940ac4c2b15c7e4124628f7ef7789994fd66d902a12a1d2f838c",
    "evaluation": "5a63dc6702955375d177a28549f5b85562758fcd9f8c813ac216ec336135a6ff",
}


@dataclass(frozen=True, eq=False)
class Characters:
    """Classes and their drawings.

    Attributes:
        drawings: (classes, drawings, 28, 28) uint8, 255 is ink.
        names: "Alphabet/characterNN", one for each class.
        split: origin of the split: "Vinyals et al." or "rarecall, seed 0".
    """

    drawings: Tensor
    names: tuple[str, ...]
    split: str

    def __len__(self) -> int:
        return len(self.names)

    def turned(self) -> Characters:
        """Return four classes per class: class 4 c + t is class c rotated by t x 90 degrees."""
        turns = [torch.rot90(self.drawings, turn, (2, 3)) for turn in range(4)]
        names = tuple(f"{name}@{90 * turn}" for name in self.names for turn in range(4))
        return Characters(torch.stack(turns, 1).flatten(0, 1), names, self.split)

    def places(self, alphabet: str) -> list[int]:
        """Return the indices of the characters of one alphabet."""
        return [place for place, name in enumerate(self.names) if name.split("/")[0] == alphabet]

    def of(self, alphabet: str) -> Characters:
        """Return the characters of one alphabet."""
        chosen = self.places(alphabet)
        return Characters(self.drawings[chosen], tuple(self.names[place] for place in chosen), self.split)


@dataclass(frozen=True, eq=False)
class Omniglot:
    """All characters, ordered by name, background before evaluation.

    Attributes:
        drawings: (characters, 20, 28, 28) uint8, 255 is ink.
        names: "Alphabet/characterNN".
        evaluation: alphabets of the evaluation archive.
        splits: names of the characters of "train", "val", "trainval" and "test".
        split: origin of the split.
    """

    drawings: Tensor
    names: tuple[str, ...]
    evaluation: tuple[str, ...]
    splits: dict[str, tuple[str, ...]]
    split: str

    def characters(self, which: str) -> Characters:
        """Return the characters of the split "train", "val", "trainval" (both) or "test", or "all" characters."""
        if which != "all" and which not in self.splits:
            raise ValueError(f"Got the split {which!r}; expected one of {', '.join(SPLITS)} or all.")
        names = self.names if which == "all" else self.splits[which]
        place = {name: i for i, name in enumerate(self.names)}
        return Characters(self.drawings[[place[name] for name in names]], names, self.split)


def load(folder: str | os.PathLike[str] | None = None, *, url: str = URL, quiet: bool = False) -> Omniglot:
    """Read Omniglot. Missing archives are downloaded; decoded images are cached.

    Args:
        folder: folder that contains omniglot/images_background.zip and so on (default: the environment variable
            RARECALL_DATA or, if it is not set, a folder in the cache).
        url: where missing archives are downloaded from.
        quiet: show no progress bars.
    """
    home = folders.data(folder) / "omniglot"
    archives = {part: home / f"images_{part}.zip" for part in PARTS}
    for part, archive in archives.items():
        if not archive.is_file():
            fetch(f"{url}/{archive.name}", archive, CHECKSUMS[part], quiet=quiet)
    digest = hashlib.sha256()
    for archive in archives.values():
        digest.update(archive.read_bytes())
    cached = folders.cache() / f"omniglot-{SIZE}-{digest.hexdigest()[:16]}.safetensors"
    if cached.is_file():
        tensors, header = storage.read(cached, kind="omniglot")
        drawings, names = tensors["drawings"], tuple(json.loads(header["names"]))
        evaluation = tuple(json.loads(header["evaluation"]))
    else:
        parts = {part: read_archive(archive, quiet=quiet) for part, archive in archives.items()}
        names = tuple(name for part in PARTS for name in parts[part][1])
        drawings = torch.cat([parts[part][0] for part in PARTS])
        evaluation = tuple(sorted({name.split("/")[0] for name in parts["evaluation"][1]}))
        header = {"names": json.dumps(names), "evaluation": json.dumps(evaluation)}
        folders.keep(cached, {"drawings": drawings}, kind="omniglot", header=header)
    splits, split = _splits(home / "split", names)
    return Omniglot(drawings, names, evaluation, splits, split)


def read_archive(archive: Path, *, quiet: bool = False) -> tuple[Tensor, list[str]]:
    """Return the drawings of an archive, (characters, 20, 28, 28) uint8, and the names of the characters."""
    files: dict[str, list[str]] = {}
    characters = []
    try:
        with zipfile.ZipFile(archive) as unpacked:
            for name in _drawings(unpacked):
                files.setdefault("/".join(name.split("/")[-3:-1]), []).append(name)
            for character, drawings in tqdm(files.items(), desc=archive.name, unit=" characters", disable=quiet):
                if len(drawings) != DRAWINGS:
                    raise ValueError(
                        f"{archive} holds {len(drawings)} drawings of {character}; expected {DRAWINGS}. "
                        "Delete it, and it is downloaded again."
                    )
                characters.append(np.stack([_shrink(archive, name, unpacked.read(name)) for name in drawings]))
    except (zipfile.BadZipFile, EOFError) as error:
        raise ValueError(f"{archive} is damaged ({error}). Delete it, and it is downloaded again.") from error
    if not characters:
        raise ValueError(f"{archive} holds no drawings; expected <Alphabet>/characterNN/*.png in it.")
    return torch.from_numpy(np.stack(characters)), list(files)


def _shrink(archive: Path, name: str, png: bytes) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """Convert a black-on-white PNG to (28, 28) uint8, 255 is ink."""
    try:
        with Image.open(io.BytesIO(png)) as image:
            drawn = image.convert("L")
    except OSError as error:
        raise ValueError(f"{archive} holds {name}, which is not an image ({error}).") from error
    if drawn.size != (DRAWN_SIZE, DRAWN_SIZE):
        raise ValueError(
            f"{archive} holds {name} of {drawn.size[0]} x {drawn.size[1]} pixels; expected {DRAWN_SIZE} x {DRAWN_SIZE}."
        )
    ink = Image.fromarray(255 - np.asarray(drawn))
    # Box filter: thin lines turn grey, but none is lost.
    return np.asarray(ink.resize((SIZE, SIZE), Image.Resampling.BOX))


def checksum(archive: Path) -> str:
    """Return a checksum of the names and bytes of the drawings in an archive, ordered by name."""
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(archive) as unpacked:
            for name in _drawings(unpacked):
                digest.update(f"{name}\n".encode())
                digest.update(hashlib.sha256(unpacked.read(name)).digest())
    except (zipfile.BadZipFile, EOFError) as error:
        raise ValueError(f"{archive} is damaged ({error}).") from error
    return digest.hexdigest()


def _drawings(unpacked: zipfile.ZipFile) -> list[str]:
    """Return the names of the drawings, without hidden files such as those of macOS."""
    return sorted(name for name in unpacked.namelist() if name.endswith(".png") and not Path(name).name.startswith("."))


def fetch(url: str, archive: Path, expected: str, *, quiet: bool = False) -> None:
    """Download an archive to a temporary file, check it, and move it to its place."""
    beside = archive.with_name(f".{archive.name}.{secrets.token_hex(4)}.tmp")
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        with urllib.request.urlopen(url, timeout=30) as answer, open(beside, "wb") as file:
            size = int(answer.headers.get("Content-Length", 0))
            with tqdm(total=size or None, desc=archive.name, unit="B", unit_scale=True, disable=quiet) as bar:
                while block := answer.read(1 << 16):
                    file.write(block)
                    bar.update(len(block))
        found = checksum(beside)
        if found != expected:
            raise ValueError(
                f"{url} holds other drawings than Omniglot's: the checksum of its content is {found}, expected "
                f"{expected}. Download {archive.name} from another place to {archive}."
            )
        os.replace(beside, archive)
    except (urllib.error.URLError, OSError) as error:
        raise FileNotFoundError(
            f"There is no {archive}, and downloading it from {url} failed ({error}). With a network connection, run "
            f"this again; without one, copy {archive.name} there by hand, or set the folder that contains "
            f"omniglot/{archive.name} with --data or RARECALL_DATA."
        ) from error
    finally:
        beside.unlink(missing_ok=True)


def _splits(folder: Path, names: tuple[str, ...]) -> tuple[dict[str, tuple[str, ...]], str]:
    """Return the names of the characters of each split, and the origin of the split."""
    if all((folder / f"{split}.txt").is_file() for split in SPLITS):
        splits = {split: tuple((folder / f"{split}.txt").read_text().split()) for split in SPLITS}
        unknown = {name for split in SPLITS for name in splits[split]} - set(names)
        if unknown:
            raise ValueError(
                f"{folder} names {len(unknown)} characters that the archives do not have, such as {min(unknown)}. "
                "Delete the folder to use a random split with a fixed seed."
            )
        return splits, "Vinyals et al."
    order = torch.randperm(len(names), generator=torch.Generator().manual_seed(0)).tolist()
    shuffled = [sorted(names)[place] for place in order]
    test, val = round(len(names) * 423 / 1623), round(len(names) * 172 / 1623)
    parts = {"test": shuffled[:test], "val": shuffled[test : test + val], "train": shuffled[test + val :]}
    parts["trainval"] = parts["train"] + parts["val"]
    return {split: tuple(sorted(parts[split])) for split in SPLITS}, "rarecall, seed 0"
