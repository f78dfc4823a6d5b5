"""python -m tests.serve.fuzz --requests 100000

Sends bad requests to a real server: JSON that is broken or has wrong types, images that are cut or have flipped bits,
wrong sizes, headers and lines. Each must be answered with a status from 400 to 499 and a sentence (an image with a
flipped bit may still be one, and be answered 200), nothing may change, and the server's memory must not grow.
"""

import argparse
import base64
import contextlib
import http.client
import io
import json
import random
import socket
import tempfile
from collections import Counter
from pathlib import Path

from PIL import Image

from .conftest import drawing, serving

OPERATIONS = ("ask", "explain", "teach", "correct", "relabel", "rename", "forget", "undo")
GETS = ("classes", "examples", "example", "history", "unsure", "export")
STRANGE = (
    None,
    True,
    -1,
    0,
    2**70,
    1e308,
    0.5,
    "",
    " ",
    "\x00",
    "\ud800",
    "x" * 20_000,
    [],
    {},
    [[]],
    [None],
    {"a": 1},
    "ä" * 300,
)


class Fuzz:
    """Makes bad requests from a seed, and counts what they are answered."""

    def __init__(self, client, seed=0):
        self.client, self.random, self.counts = client, random.Random(seed), Counter()
        self.connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=60)
        picture = Image.effect_noise((64, 48), 90)
        self.files = [base64.b64decode(drawing("star"))]
        for kind in ("PNG", "JPEG", "GIF", "WEBP"):
            file = io.BytesIO()
            picture.save(file, kind)
            self.files.append(file.getvalue())

    def run(self, requests):
        kinds = (self.bad_json, self.bad_fields, self.bad_image, self.bad_query, self.bad_headers, self.bad_lines)
        for _ in range(requests):
            kind = self.random.choices(kinds, (4, 4, 3, 2, 2, 1))[0]
            kind()

    # ---- what is sent ----

    def bad_json(self):
        body = json.dumps({"example": "a lost card", "label": "lost", "ids": [1], "who": "me"}).encode()
        for _ in range(self.random.randint(1, 4)):
            body = self.mutated(body)
        # A field that no operation has, so that no request is right by chance.
        body += self.random.choice([b"", b',"zz":1}', b"]", b"\xff", b"{" * self.random.randint(1, 2000)])
        try:
            if isinstance(json.loads(body), dict):
                body = b'{"zz": ' + body + b"}"
        except (ValueError, RecursionError):
            pass
        self.send("POST", f"/api/{self.random.choice(OPERATIONS)}", body, self.json)

    def bad_fields(self):
        operation = self.random.choice(OPERATIONS)
        names = (
            "example",
            "examples",
            "label",
            "labels",
            "to",
            "ids",
            "entry",
            "draft",
            "who",
            "reason",
            "zz",
            "__class__",
        )
        given = {name: self.random.choice(STRANGE) for name in self.random.sample(names, self.random.randint(0, 6))}
        given["zz" if self.random.random() < 0.3 else "who"] = self.random.choice((1, [], {}, True))  # never right
        if operation in ("ask", "explain"):
            given.pop("who", None)
            given["draft"] = "yes"
        self.send("POST", f"/api/{operation}?memory={self.memory()}", json.dumps(given).encode(), self.json)

    def bad_image(self):
        file = self.random.choice(self.files)
        for _ in range(self.random.randint(1, 8)):
            file = self.mutated(file)
        text = base64.b64encode(file).decode()
        if self.random.random() < 0.2:
            text = self.mutated(text.encode()).decode("latin-1")
        body = {"example": self.random.choice(("", "data:image/png;base64,")) + text, "draft": True}
        path = f"/api/ask?memory={self.random.choice(('pictures', 'drawings'))}"
        self.send("POST", path, json.dumps(body).encode(), self.json, may_be_right=True)

    def bad_query(self):
        value = self.random.choice(("-1", "1e9", "x", "%00", "9" * 400, "../..", "%F0%9F%98%80", "1;2", "'", "٣"))
        name = self.random.choice(("memory", "count", "before", "id", "label"))
        path = f"/api/{self.random.choice(GETS)}?{name}={value}"
        path = path if path.isascii() else path.encode("ascii", "backslashreplace").decode()
        self.send("GET", path, None, {}, may_be_right=True)

    def bad_headers(self):
        headers = dict(self.json)
        name = self.random.choice(
            ("host", "origin", "content-type", "content-length", "sec-fetch-site", "transfer-encoding")
        )
        headers[name] = self.random.choice(
            ("", "evil.example", "null", "-5", "99999999999", "text/plain", "x" * 3000, "\x7f")
        )
        self.send("POST", "/api/teach", b'{"example": "x", "label": "y", "zz": 1}', headers, may_break=True)

    def bad_lines(self):
        teach = b"POST /api/teach HTTP/1.1\r\nHost: localhost\r\n"
        lines = self.random.choice(
            (
                b"GET\r\n\r\n",
                b"\x00" * 50 + b"\r\n\r\n",
                b"GET / HTTP/9.9\r\n\r\n",
                b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
                teach + b"Content-Type: application/json\r\nContent-Length: 5\r\n\r\n{}",
                teach + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
                b"BREW /api/teach HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
                self.random.randbytes(60) + b"\r\n\r\n",
            )
        )
        with socket.create_connection(("127.0.0.1", self.client.port), timeout=60) as connection:
            answer = b""
            with contextlib.suppress(ConnectionError):  # it hangs up on what is no HTTP, or too long
                connection.sendall(lines)
                with contextlib.suppress(OSError):  # ENOTCONN, no ConnectionError, where it has hung up already
                    connection.shutdown(socket.SHUT_WR)
                while part := connection.recv(65536):
                    answer += part
        self.counts[f"line {answer.split()[1].decode() if answer else 'closed'}"] += 1
        assert not answer or answer.split()[1].startswith(b"4"), answer[:300]

    # ---- how ----

    json = {"content-type": "application/json"}  # noqa: RUF012

    def memory(self):
        return self.random.choice(("text", "drawings", "pictures"))

    def mutated(self, data):
        place = self.random.randrange(len(data) or 1)
        what = self.random.randrange(4)
        if what == 0:
            return data[:place]
        if what == 1:
            return data[:place] + self.random.randbytes(self.random.randint(1, 9)) + data[place:]
        if what == 2:
            return data[:place] + data[place + self.random.randint(1, 9) :]
        flipped = bytearray(data)
        if flipped:
            flipped[place] ^= 1 << self.random.randrange(8)
        return bytes(flipped)

    def send(self, method, path, body, headers, may_be_right=False, may_break=False):
        try:
            self.connection.request(method, path, body, headers)
            answer = self.connection.getresponse()
            status, content = answer.status, answer.read()
        except (http.client.HTTPException, ValueError, OSError):
            # A wrong length or a forbidden character: one side hangs up, or the client refuses to send it.
            self.connection.close()
            assert may_break, (method, path, body[:200] if body else None)
            self.counts["closed"] += 1
            return
        self.counts[status] += 1
        if 400 <= status < 500:
            assert may_break or len(json.loads(content)["error"]) > 10
        else:
            assert (may_be_right, status) == (True, 200), (method, path, body, headers, content[:300])


def state(client):
    """All that was taught, and how often anything was changed."""
    return [
        (client.get(f"/api/export?memory={name}"), served.classifier.entry, len(served.questions))
        for name, served in client.memories.items()
    ]


def fuzz(client, requests, seed=0):
    """Return what the requests were answered; raise where one was answered wrong, or anything changed."""
    client.post("teach", examples=["a lost card", "a stolen card"], labels=["lost", "stolen"])
    client.post("teach", "drawings", example=drawing("house"), label="house")
    before, fuzz = state(client), Fuzz(client, seed)
    fuzz.run(requests // 10)
    memory = resident()
    fuzz.run(requests - requests // 10)
    fuzz.connection.close()
    assert state(client) == before
    assert client.post("ask", example="a lost card")["label"] == "lost"
    return fuzz.counts, resident() - memory


def resident():
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as client:
        counts, grown = fuzz(client, given.requests, given.seed)
    for status, count in sorted(counts.items(), key=lambda each: str(each[0])):
        print(f"{status!s:>12} {count:8}")
    print(f"Nothing was changed. The process grew by {grown / 2**20:.1f} MB after the first tenth.")
