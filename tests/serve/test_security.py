"""Strangers are refused, each kind of them; nothing of the file system is reached."""

import socket
import time

import pytest

from rarecall.serve.security import BODY, Policy, Rates, split_port

from .conftest import serving

TOKEN = "a-token-of-enough-characters"


@pytest.fixture(scope="module")
def open_client(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("open")) as client:
        yield client


@pytest.fixture(scope="module")
def closed_client(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("closed"), Policy("0.0.0.0", token=TOKEN, rate=0)) as client:
        yield client


PRIVATE = ["/api/memories", "/api/classes", "/api/history", "/api/export", "/api/events", "/metrics", "/openapi.json"]


@pytest.mark.parametrize("path", PRIVATE)
@pytest.mark.parametrize(
    "shown",
    ["", "Bearer ", "Bearer wrong", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", "Bearer \xe4\xf6"],
)
def test_without_the_right_token_nothing_is_told(closed_client, path, shown):
    status, told = closed_client.request("GET", path, headers={"authorization": shown})
    assert (status, told) == (401, {"error": "A token is required: the header Authorization: Bearer TOKEN."})
    assert closed_client.headers["www-authenticate"] == "Bearer"


def test_without_the_token_nothing_is_taught(closed_client):
    body = {"example": "hello", "label": "greeting"}
    assert closed_client.request("POST", "/api/teach", body, {"authorization": "Bearer wrong"})[0] == 401
    assert closed_client.get("/api/memories")["memories"][0]["examples"] == 0


def test_the_page_and_health_need_no_token_and_tell_nothing(closed_client):
    for path in ("/", "/static/app.js", "/health"):
        assert closed_client.request("GET", path, headers={"authorization": ""})[0] == 200


def test_beyond_loopback_there_is_no_service_without_a_token():
    with pytest.raises(ValueError, match="a token is required"):
        Policy("0.0.0.0")
    with pytest.raises(ValueError, match="too short"):
        Policy("0.0.0.0", token="short")
    assert Policy("localhost").token is None


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "192.168.1.7", "[::2]", ""]
)
def test_another_host_is_refused(open_client, host):
    status, told = open_client.request("GET", "/api/memories", headers={"host": host})
    assert status == 421
    assert "Host" in told["error"]


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1234", "127.0.0.1", "127.0.0.1:99", "[::1]:99", "localhost."])
def test_this_machine_goes_by_several_names(open_client, host):
    assert open_client.request("GET", "/api/memories", headers={"host": host})[0] == 200


def test_two_hosts_and_none_are_refused(open_client):
    for lines in (b"", b"Host: localhost\r\nHost: evil.example\r\n"):
        with socket.create_connection(("127.0.0.1", open_client.port), timeout=10) as connection:
            connection.sendall(b"GET /api/memories HTTP/1.1\r\n" + lines + b"Connection: close\r\n\r\n")
            assert connection.recv(100).split()[1] in (b"400", b"421")


def test_names_are_allowed_by_name(closed_client):
    policy = Policy("0.0.0.0", frozenset({"memory.example"}), TOKEN)
    assert policy.allows("memory.example:8765")
    assert policy.allows("192.168.1.7:8765")
    assert not policy.allows("evil.example")
    assert [split_port(host) for host in ("a:1", "A", "[::1]:2", "::1", "a:b")] == ["a", "a", "::1", "::1", "a:b"]


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:1", "http://localhost", "x://[", ""]
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_another_origin_is_refused(open_client, origin, method):
    body = {"example": "hello", "label": "greeting"} if method == "POST" else None
    path = "/api/teach" if method == "POST" else "/api/memories"
    status, told = open_client.request(method, path, body, {"origin": origin})
    assert status == 403
    assert "origin" in told["error"]
    assert open_client.get("/api/memories")["memories"][0]["examples"] == 0


def test_the_pages_own_origin_is_served(open_client):
    headers = {"host": "localhost:5000", "origin": "http://localhost:5000", "sec-fetch-site": "same-origin"}
    assert open_client.request("GET", "/api/memories", headers=headers)[0] == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_site_shows_none_of_it(open_client, site):
    assert open_client.request("GET", "/api/export", headers={"sec-fetch-site": site})[0] == 403
    assert open_client.request("GET", "/", headers={"sec-fetch-site": site})[0] == 200  # a link may lead here


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
)
def test_what_a_form_of_another_site_can_send_is_refused(open_client, kind):
    status, told = open_client.request("POST", "/api/ask", {"example": "x"}, {"content-type": kind})
    assert status == 415
    assert "JSON" in told["error"]


def test_browsers_are_told_what_the_page_may_do(open_client):
    for path in ("/", "/static/app.js", "/api/memories", "/nowhere"):
        open_client.request("GET", path)
        policy = open_client.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert open_client.headers["x-content-type-options"] == "nosniff"
        assert open_client.headers["referrer-policy"] == "no-referrer"
        assert "set-cookie" not in open_client.headers
        assert "server" not in open_client.headers


@pytest.mark.parametrize(
    "path",
    ["/static/../app.py", "/static/..%2f..%2fkept.py", "/static/%2e%2e/app.py", "/static//etc/passwd", "/..",
     "/static/%00", "/api/example?id=../journal.sqlite", "/api/classes?memory=../text", "/static/", "/api"],
)  # fmt: skip
def test_no_path_reaches_the_file_system(open_client, path):
    status, told = open_client.request("GET", path)
    assert status in (400, 404)
    assert told["error"]


def test_a_body_that_is_too_large_is_refused_before_it_is_read(open_client):
    headers = {"content-type": "application/json"}
    status, told = open_client.request("POST", "/api/ask", raw=b"x" * (BODY + 1), headers=headers)
    assert status == 413
    assert "too large" in told["error"]
    chunks = (b"x" * 2**20 for _ in range(20))  # no Content-Length
    assert open_client.request("POST", "/api/ask", raw=chunks, headers=headers)[0] == 413
    assert open_client.request("POST", "/api/ask", raw=b"", headers=headers | {"content-length": "1" * 30})[0] in (
        400,
        413,
    )


def test_a_flood_is_slowed_down(tmp_path):
    with serving(tmp_path, Policy(rate=5)) as client:
        statuses = [client.request("GET", "/health")[0] for _ in range(12)]
        assert statuses[:5] == [200] * 5
        assert 429 in statuses
        assert client.headers["retry-after"] == "1"
        time.sleep(0.5)
        assert client.request("GET", "/health")[0] == 200


def test_the_rates_of_many_addresses_take_little_room():
    rates = Rates(3)
    assert [rates.allow("a") for _ in range(4)] == [True, True, True, False]
    assert all(rates.allow(str(number)) for number in range(10_000))
    assert len(rates.clients) <= 4096
