"""Published weights are fetched once, from a server, and checked."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rarecall.models import load, published, weights

CHECKOUT = weights.FOLDER
NAME = "omniglot-paper"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that is served, to an install without a checkout."""
    served = tmp_path / "served"
    served.mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=served)) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        monkeypatch.setenv("RARECALL_WEIGHTS_URL", f"http://127.0.0.1:{running.server_port}/")
        monkeypatch.setenv("RARECALL_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(weights, "FOLDER", tmp_path / "no checkout")
        yield served
        running.shutdown()


def test_the_published_files_are_those_of_the_checkout() -> None:
    found = {
        path.stem: (path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in CHECKOUT.glob("*.safetensors")
    }
    assert found == published.FILES


def test_weights_are_fetched_once_and_then_found(server: Path) -> None:
    content = (CHECKOUT / f"{NAME}.safetensors").read_bytes()
    (server / f"{NAME}.safetensors").write_bytes(content)
    assert load(NAME).state_dict().keys() == load(CHECKOUT / f"{NAME}.safetensors").state_dict().keys()
    (server / f"{NAME}.safetensors").unlink()
    load(NAME)


def test_a_damaged_file_is_refused_and_a_damaged_cache_is_fetched_anew(server: Path, tmp_path: Path) -> None:
    content = (CHECKOUT / f"{NAME}.safetensors").read_bytes()
    for wrong in (content[:-1], content + b"x", bytes([content[0] ^ 1]) + content[1:]):
        (server / f"{NAME}.safetensors").write_bytes(wrong)
        with pytest.raises(ValueError, match="not the file that was published"):
            load(NAME)
        assert not list((tmp_path / "cache").rglob("*.safetensors"))
    (server / f"{NAME}.safetensors").write_bytes(content)
    load(NAME)
    [kept] = (tmp_path / "cache").rglob("*.safetensors")
    kept.write_bytes(content[:-1])
    load(NAME)
    assert kept.read_bytes() == content


def test_what_cannot_be_reached_or_is_not_known_is_told(server: Path) -> None:
    with pytest.raises(FileNotFoundError, match="cannot be reached"):
        load(NAME)
    with pytest.raises(FileNotFoundError, match="expected a path or one of"):
        load("nothing")
