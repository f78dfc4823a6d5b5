"""Who may use the service: every request is checked here before anything of it is read.

- DNS rebinding: the Host must be an address, or a name that was allowed.
- Other sites (CSRF): the Origin, where a browser sends one, must be the page's own; the service sets no cookies, so a
  browser adds nothing by itself that would be trusted.
- Strangers: beyond loopback a token is required, compared in constant time.
- Floods: each client address has a rate, and a request a size.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import json
import time
from collections import OrderedDict
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY = 8 * 2**20  # bytes of a request: a photo of a telephone in base64
RATE = 1000.0  # requests a second from one address, and as many at once
CLIENTS = 4096  # addresses whose rate is remembered
UNREAD_BYTES, UNREAD_SECONDS = 16 * BODY, 2  # of a refused body: so much of it is read and thrown away

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "media-src 'self' blob:; connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(self), microphone=(), geolocation=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class Refused(Exception):
    """A request is refused: the status and a sentence that says why."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


@dataclass(frozen=True)
class Policy:
    """What is allowed.

    Attributes:
        host: the address that is served; without a token only loopback is.
        names: further names that the Host may have, such as that of a proxy.
        token: what a client must show; None: nothing.
        rate: requests a second from one address; 0: any number.
    """

    host: str = "127.0.0.1"
    names: frozenset[str] = frozenset()
    token: str | None = None
    rate: float = RATE

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and not self.token:
            raise ValueError(f"{self.host} can be reached from other machines: a token is required.")
        if self.token is not None and (len(self.token) < 16 or not self.token.isascii()):
            raise ValueError("The token is too short to be safe; expected 16 ASCII characters or more.")

    def allows(self, host: str) -> bool:
        """Whether a Host header names this service.

        An attacker's page can let a name of its own point here, and only a name: an address is always honest.
        """
        name = split_port(host)
        if name in self.names or name == "localhost":
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return name == self.host.lower()
        return address.is_loopback or not is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def split_port(host: str) -> str:
    """Return the name in a Host header, in lower case, without brackets and port."""
    name, colon, port = host.rpartition(":")
    if not colon or not port.isdecimal() or (":" in name and not name.endswith("]")):
        name = host
    return name.removeprefix("[").removesuffix("]").removesuffix(".").lower()


class Guard:
    """ASGI middleware that refuses what the policy does not allow, and sets the headers that browsers obey.

    Args:
        app: what is guarded.
        policy: what is allowed.
        public: how paths begin that need no token, besides the page itself; they must not tell anything.
    """

    def __init__(self, app: ASGIApp, policy: Policy, public: tuple[str, ...] = ()) -> None:
        self.app, self.policy, self.public = app, policy, public
        self.rates = Rates(policy.rate)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError(f"Only HTTP is served, not {scope['type']}.")
        started = False

        async def guarded_send(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        body = Body(receive, scope)
        try:
            self.check(scope)
            await self.app(scope, body, guarded_send)
        except Refused as refused:
            if started:
                raise
            await refuse(guarded_send, refused, body)

    def check(self, scope: Scope) -> None:
        """Raise `Refused` where a request is not allowed."""
        headers, policy = Headers(scope=scope), self.policy
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not policy.allows(hosts[0]):
            raise Refused(421, "This service does not go by the name in the Host header. Allow it with --allow-host.")
        origin = headers.get("origin")
        if origin is not None and (urlsplit_or_none(origin) or "") != hosts[0].lower():
            raise Refused(403, "The request comes from a page of another origin.")
        private = scope["path"] != "/" and not scope["path"].startswith(self.public)
        if private and headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise Refused(403, "The request comes from a page of another site.")
        if not self.rates.allow((scope.get("client") or ("",))[0]):
            raise Refused(429, "Too many requests from this address; wait a second.")
        if private and policy.token is not None:
            scheme, _, shown = headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not hmac.compare_digest(shown.strip().encode(), policy.token.encode()):
                raise Refused(401, "A token is required: the header Authorization: Bearer TOKEN.")
        if scope["method"] not in ("GET", "HEAD"):
            if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
                raise Refused(415, "The body must be JSON, with the header Content-Type: application/json.")
            length = headers.get("content-length", "0")
            if not length.isdecimal() or int(length[:20]) > BODY:
                raise Refused(413, f"The request is too large; expected at most {BODY} bytes.")


class Body:
    """The body of a request, no larger than allowed."""

    def __init__(self, receive: Receive, scope: Scope) -> None:
        self.receive, self.read = receive, 0
        self.more = any(name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"])

    async def __call__(self) -> Message:
        message = await self.receive()
        self.read += len(message.get("body", b""))
        self.more = message["type"] == "http.request" and message.get("more_body", False)
        if self.read > BODY:
            raise Refused(413, f"The request is too large; expected at most {BODY} bytes.")
        return message

    async def throw_away(self) -> None:
        """Read on, within limits: a client that is still sending would see a reset connection, and not the answer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(UNREAD_SECONDS):
                while self.more and self.read < UNREAD_BYTES:
                    message = await self.receive()
                    self.read += len(message.get("body", b""))
                    self.more = message["type"] == "http.request" and message.get("more_body", False)


class Rates:
    """A token bucket for each client address: `rate` a second, and as many at once."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.clients: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allow(self, client: str) -> bool:
        """Count a request; False where it is one too many."""
        if not self.rate:
            return True
        now = time.monotonic()
        left, before = self.clients.pop(client, (self.rate, now))
        left = min(left + (now - before) * self.rate, self.rate) - 1
        self.clients[client] = (max(left, -1.0), now)
        if len(self.clients) > CLIENTS:
            self.clients.popitem(last=False)
        return left >= 0


def urlsplit_or_none(origin: str) -> str | None:
    """Return host and port of an origin, in lower case; None where it has none."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


async def refuse(send: Send, refused: Refused, body: Body) -> None:
    """Answer with the sentence, as JSON, and hang up."""
    await asyncio.sleep(0)  # where the server has hung up on a broken request itself, it learns so now
    told = json.dumps({"error": refused.sentence}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(told)).encode())]
    headers += [(b"connection", b"close")] if body.more else []
    headers += [(b"www-authenticate", b"Bearer")] if refused.status == 401 else []
    headers += [(b"retry-after", b"1")] if refused.status == 429 else []
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": told, "more_body": True})
    await body.throw_away()
    await send({"type": "http.response.body"})
