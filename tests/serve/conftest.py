"""A real server on a free port of loopback, over folders with embedders that need no download."""

import base64
import contextlib
import hashlib
import http.client
import io
import json
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

import rarecall
from rarecall.integrations import embedders
from rarecall.serve import demo, images, run
from rarecall.serve.memories import Served
from rarecall.serve.security import Policy

SIZE = 48


class Words:
    """Sums of random word vectors: texts with words in common are near each other."""

    name = "words"

    def __call__(self, texts):
        keys = np.zeros((len(texts), SIZE), np.float32)
        for row, text in enumerate(texts):
            for word in text.lower().split() or [text]:
                seed = int(hashlib.md5(word.encode(errors="surrogatepass")).hexdigest()[:8], 16)
                keys[row] += np.random.default_rng(seed).normal(size=SIZE)
        return keys


class Colours:
    """The mean colour of nine fields of a picture."""

    name = "colours"

    def __call__(self, files):
        small = [np.asarray(images.open_image(file).resize((3, 3)), np.float32).ravel() for file in files]
        return np.stack(small) - 120.5


@dataclass
class Client:
    """Talks to the server: a request returns the status and the JSON, or the text where it is none."""

    port: int
    policy: Policy
    memories: dict

    def request(self, method, path, body=None, headers=None, raw=None, timeout=20):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        with contextlib.closing(connection):
            data = raw if raw is not None else None if body is None else json.dumps(body)
            sent = {"content-type": "application/json"} if data is not None else {}
            if self.policy.token:
                sent["authorization"] = f"Bearer {self.policy.token}"
            connection.request(method, path, data, sent | (headers or {}))
            answer = connection.getresponse()
            self.headers, content = dict(answer.getheaders()), answer.read()
        try:
            return answer.status, json.loads(content)
        except ValueError:
            return answer.status, content

    def post(self, operation, memory="text", status=200, **body):
        got, told = self.request("POST", f"/api/{operation}?memory={memory}", body)
        assert got == status, told
        return told

    def get(self, path, status=200):
        got, told = self.request("GET", path)
        assert got == status, told
        return told


@contextlib.contextmanager
def serving(folder: Path, policy: Policy = Policy(rate=0), memories: list[Served] | None = None):  # noqa: B008
    memories = memories or [
        Served("text", "text", rarecall.open(folder / "text", Words())),
        Served("drawings", "drawing", rarecall.open(folder / "drawings", embedders.load("omniglot"))),
        Served("pictures", "picture", rarecall.open(folder / "pictures", Colours())),
    ]
    with run.listen("127.0.0.1", 0) as listening:
        server = run.make_server(memories, policy)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
                assert thread.is_alive()
            yield Client(listening.getsockname()[1], policy, {memory.name: memory for memory in memories})
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture
def client(tmp_path):
    with serving(tmp_path) as client:
        yield client


def png(image) -> str:
    """An image as base64."""
    file = io.BytesIO()
    image.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def drawing(name: str) -> str:
    return png(demo.draw(demo.DRAWINGS[name]))
