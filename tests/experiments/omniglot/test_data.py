from __future__ import annotations

import os
import shutil
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch

from experiments.omniglot import data
from experiments.omniglot.data import Omniglot
from tests.experiments.omniglot.conftest import BACKGROUND, EVALUATION, pack, png


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server(folder: Path) -> Iterator[str]:
    """Serves the archives of the small Omniglot."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder / "omniglot"))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    shutil.copytree(folder, tmp_path / "copy")
    return tmp_path / "copy"


def test_drawings_are_28_x_28_and_ink_is_255(small: Omniglot) -> None:
    assert small.drawings.shape == (40, 20, 28, 28)
    assert small.drawings.dtype == torch.uint8
    assert small.names == (*BACKGROUND, *EVALUATION)
    assert small.evaluation == ("Beta",)
    assert small.drawings.max() == 255
    assert small.drawings[:, :, 0, 0].max() == 0  # paper


def test_the_second_reader_reads_the_cache(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = data.load(copy, quiet=True)
    monkeypatch.setattr(data, "read_archive", None)
    assert torch.equal(data.load(copy, quiet=True).drawings, first.drawings)


def test_the_cache_is_of_these_archives_and_no_others(copy: Path) -> None:
    before = data.load(copy, quiet=True)
    pack(copy / "omniglot" / "images_evaluation.zip", "evaluation", EVALUATION, 100)
    assert not torch.equal(data.load(copy, quiet=True).drawings, before.drawings)


def test_a_cache_that_cannot_be_written_is_no_error(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RARECALL_CACHE", str(tmp_path / "file"))
    assert len(data.load(copy, quiet=True).names) == 40


def test_a_turn_of_a_character_is_a_class_of_its_own(small: Omniglot) -> None:
    characters = small.characters("all")
    turned = characters.turned()
    assert len(turned) == 160
    assert turned.names[5] == "Alpha/character02@90"
    assert torch.equal(turned.drawings[4], characters.drawings[1])
    assert torch.equal(turned.drawings[5, 3], torch.rot90(characters.drawings[1, 3]))
    assert len(characters.of("Beta")) == 20


def test_our_own_split_is_fixed_and_has_no_character_twice(small: Omniglot) -> None:
    assert small.split == "rarecall, seed 0"
    parts = {part: small.splits[part] for part in data.SPLITS}
    assert len(parts["test"]) == 10
    assert len(parts["val"]) == 4
    assert set(parts["trainval"]) == {*parts["train"], *parts["val"]}
    assert sorted([*parts["trainval"], *parts["test"]]) == sorted(small.names)
    assert data._splits(Path("nowhere"), small.names)[0] == small.splits


def test_a_split_of_the_folder_is_used(copy: Path) -> None:
    (copy / "omniglot" / "split").mkdir()
    for part in data.SPLITS:
        (copy / "omniglot" / "split" / f"{part}.txt").write_text("Beta/character03\nAlpha/character01\n")
    split = data.load(copy, quiet=True)
    assert split.split == "Vinyals et al."
    assert split.characters("val").names == ("Beta/character03", "Alpha/character01")
    assert torch.equal(split.characters("val").drawings[1], split.drawings[0])
    (copy / "omniglot" / "split" / "val.txt").write_text("Gamma/character01")
    with pytest.raises(ValueError, match="do not have, such as Gamma/character01"):
        data.load(copy, quiet=True)


def test_an_unknown_split_is_an_error(small: Omniglot) -> None:
    with pytest.raises(ValueError, match="expected one of train, val, trainval, test or all"):
        small.characters("testing")


def test_what_is_missing_is_fetched_and_its_content_checked(
    server: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archives = {part: folder / "omniglot" / f"images_{part}.zip" for part in data.PARTS}
    monkeypatch.setattr(data, "CHECKSUMS", {part: data.checksum(archive) for part, archive in archives.items()})
    fetched = data.load(tmp_path / "new", url=server, quiet=True)
    assert len(fetched.names) == 40
    assert sorted(os.listdir(tmp_path / "new" / "omniglot")) == ["images_background.zip", "images_evaluation.zip"]


def test_other_content_is_refused_and_leaves_nothing(server: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds other drawings.*expected 0082e759"):
        data.load(tmp_path / "new", url=server, quiet=True)
    assert os.listdir(tmp_path / "new" / "omniglot") == []


def test_the_checksum_is_of_the_content_not_of_the_packing(folder: Path, tmp_path: Path) -> None:
    archive = folder / "omniglot" / "images_background.zip"
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(tmp_path / "new.zip", "w", zipfile.ZIP_DEFLATED) as new:
        new.writestr("images_background/", "")
        for name in reversed(old.namelist()):
            new.writestr(name, old.read(name))
    assert data.checksum(tmp_path / "new.zip") == data.checksum(archive)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "nonsense://x"])
def test_without_a_network_the_error_says_what_to_do(url: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"copy images_background.zip there by hand.*--data or RARECALL_DATA"):
        data.load(tmp_path / "new", url=url, quiet=True)


def test_a_page_that_is_not_there_is_told(server: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="404"):
        data.fetch(f"{server}/no.zip", tmp_path / "a" / "no.zip", "", quiet=True)


def test_a_damaged_archive_is_told(copy: Path) -> None:
    archive = copy / "omniglot" / "images_background.zip"
    whole = archive.read_bytes()
    archive.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="is damaged"):
        data.load(copy, quiet=True)
    middle = len(whole) // 3
    archive.write_bytes(whole[:middle] + bytes(300) + whole[middle + 300 :])
    with pytest.raises(ValueError, match=r"is damaged|not an image"):
        data.load(copy, quiet=True)
    with zipfile.ZipFile(archive, "w"):
        pass
    with pytest.raises(ValueError, match="holds no drawings"):
        data.load(copy, quiet=True)


def test_a_character_with_too_few_drawings_is_told(copy: Path) -> None:
    pack(copy / "omniglot" / "images_background.zip", "background", BACKGROUND, 0, drawings=19)
    with pytest.raises(ValueError, match="19 drawings of Alpha/character01; expected 20"):
        data.load(copy, quiet=True)


def test_a_drawing_of_another_size_is_told(copy: Path) -> None:
    with zipfile.ZipFile(copy / "omniglot" / "images_background.zip", "w") as archive:
        for drawing in range(20):
            archive.writestr(f"images_background/Alpha/character01/{drawing}.png", png(drawing, size=64))
    with pytest.raises(ValueError, match="64 x 64 pixels; expected 105 x 105"):
        data.load(copy, quiet=True)


@pytest.mark.skipif("RARECALL_DATA" not in os.environ, reason="needs Omniglot itself: RARECALL_DATA")
def test_omniglot_itself_has_the_published_content() -> None:
    for part, expected in data.CHECKSUMS.items():
        assert data.checksum(Path(os.environ["RARECALL_DATA"]) / "omniglot" / f"images_{part}.zip") == expected
