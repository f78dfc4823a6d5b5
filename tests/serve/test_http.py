"""What a program may ask of the service."""

import base64
import io
import json
import socket
import threading

import pytest
from PIL import Image

from rarecall.integrations.drawings import KEPT
from rarecall.serve.memories import WAITING

from .conftest import drawing, png, serving


def test_teach_ask_explain_correct_undo_forget(client):
    taught = client.post("teach", example="the machine ate my card", label="swallowed", who="anna")
    client.post("teach", example="my card was stolen", label="stolen")
    answer = client.post("ask", example="a machine ate my card")
    assert (answer["label"], answer["known"]) == ("swallowed", True)
    assert "because" not in answer

    [first, *_] = client.post("explain", example="a machine ate my card")["because"]
    assert (first["id"], first["example"], first["who"]) == (taught["ids"][0], "the machine ate my card", "anna")
    assert 0.5 < first["similarity"] <= 1

    entry = client.post("correct", example="the machine ate my card", label="eaten")["entry"]
    assert client.post("ask", example="the machine ate my card")["label"] == "eaten"
    assert client.post("undo", entry=entry)["restored"] == 1
    assert client.post("ask", example="the machine ate my card")["label"] == "swallowed"

    assert client.post("forget", label="swallowed", reason="asked by customer 812")["forgotten"] == 1
    assert client.get("/api/classes?memory=text")["classes"] == [{"label": "stolen", "count": 1, "newest": [2]}]
    [last, *_] = client.get("/api/history?memory=text")["history"]
    assert (last["kind"], last["reason"], last["undoable"]) == ("forget", "asked by customer 812", False)


def test_many_at_once(client):
    texts = [f"number {number}" for number in range(200)]
    assert len(client.post("teach", examples=texts, labels=list(range(200)))["ids"]) == 200
    answers = client.post("ask", examples=texts)["answers"]
    assert [answer["label"] for answer in answers] == list(range(200))
    assert len(client.post("teach", examples=["a b", "c d"], label="letters")["ids"]) == 2
    assert "one for each" in client.post("teach", status=400, examples=["a", "b"], labels=["x"])["error"]
    assert "list of 1 to 256" in client.post("ask", status=400, examples=["x"] * 257)["error"]


def test_classes_are_renamed_merged_and_moved(client):
    client.post(
        "teach", examples=["a lost card", "a stolen card", "my purse is gone"], labels=["lost", "stolen", "lost"]
    )
    assert client.post("rename", label="lost", to="gone")["renamed"] == 2
    assert client.post("relabel", ids=[1], label="stolen")["relabelled"] == 1
    entry = client.post("rename", label="gone", to="stolen")["entry"]
    assert [each["count"] for each in client.get("/api/classes")["classes"]] == [3]
    client.post("undo", entry=entry)
    assert {each["label"]: each["count"] for each in client.get("/api/classes")["classes"]} == {"stolen": 2, "gone": 1}
    assert "nothing that is taught" in client.post("rename", status=409, label="never", to="ever")["error"]


def test_examples_are_listed_and_exported(client):
    client.post("teach", examples=["one", "two", "three"], labels=[1, 2, 1])
    listed = client.get("/api/examples?memory=text&label=1&count=1")["examples"]
    assert [(each["id"], each["example"]) for each in listed] == [(3, "three")]
    assert [each["id"] for each in client.get("/api/examples?label=1&before=3")["examples"]] == [1]
    assert client.get("/api/example?id=2") == b"two"
    client.post("teach", "pictures", example=png(Image.new("RGB", (40, 30), "red")), label="red")
    lines = [json.loads(line) for line in client.get("/api/export?memory=text").splitlines()]
    assert [(line["example"], line["label"]) for line in lines] == [("three", 1), ("two", 2), ("one", 1)]
    [line] = [client.get("/api/export?memory=pictures")]
    assert Image.open(io.BytesIO(base64.b64decode(line["example"]))).size == (40, 30)
    assert client.headers["content-disposition"] == 'attachment; filename="pictures.jsonl"'


def test_drawings_are_known_however_large_and_where_they_are(client):
    for name in ("house", "star", "heart"):
        client.post("teach", "drawings", example=drawing(name), label=name)
    small = Image.open(io.BytesIO(base64.b64decode(drawing("star")))).resize((70, 70))
    paper = Image.new("L", (400, 300), 255)
    paper.paste(small, (300, 20))
    assert client.post("ask", "drawings", example=png(paper))["label"] == "star"
    answer = client.post("explain", "drawings", example="data:image/png;base64," + drawing("heart"))
    assert (answer["label"], answer["because"][0]["example"]) == ("heart", None)
    remembered = client.get(f"/api/example?memory=drawings&id={answer['because'][0]['id']}")
    assert Image.open(io.BytesIO(remembered)).size == (KEPT, KEPT)
    assert client.headers["content-type"] == "image/png"
    blank = png(Image.new("L", (50, 50), 255))
    assert "Nothing is drawn" in client.post("ask", "drawings", status=400, example=blank)["error"]


def test_a_photo_is_made_small_and_what_the_camera_noted_is_not_kept(client):
    file, noted = io.BytesIO(), Image.Exif()
    noted[0x010E], noted[0x0112] = "taken at home", 6  # description; turned by 90 degrees
    Image.new("RGB", (3000, 2000), "red").save(file, "JPEG", exif=noted)
    client.post("teach", "pictures", example=base64.b64encode(file.getvalue()).decode(), label="red")
    kept = client.get("/api/example?memory=pictures&id=1")
    assert b"taken at home" not in kept
    assert Image.open(io.BytesIO(kept)).size == (256, 384)


def test_an_image_with_too_many_pixels_is_not_decoded(client):
    for side, sentence in ((5_000, "5000 x 5000 pixels"), (20_000, "far too many pixels")):
        bomb = png(Image.new("1", (side, side)))
        assert len(bomb) < 1_000_000
        assert sentence in client.post("ask", "pictures", status=413, example=bomb)["error"]
    line = png(Image.new("L", (200_000, 1)))
    assert client.request("POST", "/api/ask?memory=pictures", {"example": line})[0] in (200, 400)


def test_what_it_is_unsure_about_is_told_until_it_is_taught(client):
    client.post("teach", examples=["the red card", "the blue card"], labels=["red", "blue"])
    client.post("ask", example="something else entirely")
    client.post("ask", example="the card")
    client.post("ask", example="the red card")
    client.post("ask", example="half a word of the", draft=True)
    unsure = [each["example"] for each in client.get("/api/unsure")["unsure"]]
    assert sorted(unsure) == ["something else entirely", "the card"]
    client.post("teach", example="something else entirely", label="other")
    assert [each["example"] for each in client.get("/api/unsure")["unsure"]] == ["the card"]


def test_changes_are_told_to_open_pages(client):
    with socket.create_connection(("127.0.0.1", client.port), timeout=10) as connection:
        connection.sendall(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        told = b""
        while b"connected" not in told:
            told += connection.recv(4096)
        assert b"text/event-stream" in told
        client.post("teach", example="hello", label="greeting")
        while b"\n\n" not in told.partition(b"event: change")[2]:
            told += connection.recv(4096)
    change = json.loads(told.split(b"event: change\ndata: ")[1].split(b"\n")[0])
    assert change == {"memory": "text", "entry": 2, "kind": "teach"}


def test_health_metrics_and_description(client):
    client.post("teach", example="hello", label="greeting")
    client.post("ask", example="hello")
    assert client.get("/health")["status"] == "ok"
    metrics = client.get("/metrics").decode()
    assert 'rarecall_requests_total{path="/api/teach",status="200"} 1\n' in metrics
    assert 'rarecall_request_seconds_bucket{path="/api/ask",le="+Inf"} 1\n' in metrics
    assert 'rarecall_examples{memory="text"} 1\n' in metrics
    description = client.get("/openapi.json")
    assert description["openapi"].startswith("3.1")
    for path, operations in description["paths"].items():
        [method] = operations
        if path != "/api/events":
            assert client.request(method.upper(), path, {} if method == "post" else None)[0] in (200, 400, 409), path


def test_everything_is_there_after_a_restart(tmp_path):
    with serving(tmp_path) as client:
        client.post("teach", example="hello there", label="greeting")
    with serving(tmp_path) as client:
        assert client.post("ask", example="hello there")["label"] == "greeting"


@pytest.mark.parametrize(
    ("operation", "body", "sentence"),
    [
        ("ask", {}, "either example, or examples"),
        ("ask", {"example": 7}, "is a text"),
        ("ask", {"example": "   "}, "not empty"),
        ("ask", {"example": "x" * 10_001}, "at most 10000"),
        ("ask", {"example": "\ud800"}, "surrogate"),
        ("ask", {"question": "x"}, "ask has no field 'question'; expected example"),
        ("teach", {"example": "x"}, "label must be a text or a number"),
        ("teach", {"example": "x", "label": True}, "label must be a text or a number"),
        ("teach", {"example": "x", "label": ""}, "1 to 200 characters"),
        ("teach", {"example": "x", "label": "y", "who": 3}, "who must be a text"),
        ("relabel", {"ids": [1.5], "label": "x"}, "whole number"),
        ("relabel", {"ids": [99], "label": "x"}, "99"),
        ("forget", {}, "expected label, ids or example"),
        ("undo", {"entry": 99}, "entry 99"),
        ("undo", {"entry": -1}, "whole number"),
    ],
)
def test_what_is_wrong_is_told_in_a_sentence(shared_client, operation, body, sentence):
    status, told = shared_client.request("POST", f"/api/{operation}", body)
    assert 400 <= status < 500
    assert sentence in told["error"]
    assert shared_client.memories["text"].classifier.entry == 1


@pytest.mark.parametrize("raw", [b"{", b"[]", b"7", b"\xff", b'{"example": NaN}', b"[" * 100_000, b'{"a":' * 50_000])
def test_what_is_not_json_is_told_so(shared_client, raw):
    status, told = shared_client.request("POST", "/api/ask", raw=raw, headers={"content-type": "application/json"})
    assert status == 400
    assert told["error"].startswith("The body is")


@pytest.fixture(scope="module")
def shared_client(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("shared")) as client:
        yield client


def test_questions_of_many_are_answered_together_and_a_bad_one_fails_alone(client):
    client.post("teach", examples=[f"word{n}" for n in range(30)], labels=list(range(30)))
    served = client.memories["text"]
    embed, sizes = served.classifier.embed, []

    def recording(texts):
        sizes.append(len(texts))
        if "poison" in texts:
            raise RuntimeError("the embedder has a fault")
        return embed(texts)

    served.classifier.embed = recording
    results = {}

    def ask(number):
        text = "poison" if number == 7 else f"word{number}"
        results[number] = client.request("POST", "/api/ask", {"example": text})

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results.pop(7)[0] == 500
    assert all(told["label"] == number for number, (status, told) in results.items())
    assert max(sizes) > 1


def test_too_many_waiting_questions_are_sent_away(client):
    client.post("teach", example="hello", label="greeting")
    client.memories["text"]._waiting.extend([None] * WAITING)
    assert "waiting" in client.post("ask", status=503, example="hello")["error"]
    client.memories["text"]._waiting.clear()
    assert client.post("ask", example="hello")["label"] == "greeting"
