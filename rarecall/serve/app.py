"""The HTTP service: JSON in and out, one function a route."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

import rarecall
from rarecall.kept import Answer, Evidence, Line, Taught
from rarecall.kept.changes import UNDOABLE
from rarecall.serve.fields import LIMITS, LISTED, Fields, Query
from rarecall.serve.memories import Served
from rarecall.serve.metrics import Metrics
from rarecall.serve.openapi import describe
from rarecall.serve.security import Guard, Policy, Refused
from rarecall.store.folder import FolderError

STATIC = Path(__file__).parent / "static"
PUBLIC = ("/static/", "/health", "/favicon.ico")  # and the page itself; they tell nothing of what was taught
PATIENCE = 30  # seconds that a body may take to come
PAGES, HEARTBEAT = 256, 15  # open pages that are told of changes; seconds between signs of life
SHOWN, TOLD = 4, 8  # newest examples of a class in the list, alternatives in an answer
IMAGE_TYPES = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg"}


class Service:
    """The routes, over the memories that are served.

    Args:
        memories: a request that names none means the first.
        policy: who may use it.
    """

    def __init__(self, memories: Sequence[Served], policy: Policy) -> None:
        self.memories = {memory.name: memory for memory in memories}
        self.pages: set[asyncio.Queue[dict[str, Any]]] = set()
        posts = (self.ask, self.explain, self.teach, self.correct, self.relabel, self.rename, self.forget, self.undo)
        gets = (self.classes, self.examples, self.example, self.history, self.unsure, self.export)
        routes = [
            Route("/", self.page),
            Route("/health", self.health),
            Route("/metrics", self.show_metrics),
            Route("/openapi.json", lambda request: JSONResponse(describe())),
            Route("/api/memories", self.list_memories),
            Route("/api/events", self.events),
            *(Route(f"/api/{post.__name__}", self._post(post), methods=["POST"]) for post in posts),
            *(Route(f"/api/{get.__name__}", self._get(get), methods=["GET"]) for get in gets),
        ]
        handlers: dict[Any, Any] = {Refused: _refused, HTTPException: _refused, Exception: _failed}
        self.metrics = Metrics(
            Starlette(
                routes=[*routes, Mount("/static", StaticFiles(directory=STATIC))],
                exception_handlers=handlers,
                lifespan=self._lifespan,
            ),
            [route.path for route in routes],
        )
        self.app: ASGIApp = Guard(self.metrics, policy, PUBLIC)

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        yield
        for memory in self.memories.values():
            await asyncio.to_thread(memory.close)

    # ---- asking ----

    async def ask(self, memory: Served, fields: Fields) -> Any:
        """Answer one question or many."""
        return await self._ask(memory, fields, because=False)

    async def explain(self, memory: Served, fields: Fields) -> Any:
        """Answer, with the taught examples that decided it."""
        return await self._ask(memory, fields, because=True)

    async def _ask(self, memory: Served, fields: Fields, because: bool) -> Any:
        remember = not fields.flag("draft")
        examples, many = await fields.examples(memory)
        found = await asyncio.gather(*(memory.ask(each, because, remember) for each in examples))
        answers = [_answer(memory, *each, because) for each in found]
        return {"answers": answers} if many else answers[0]

    # ---- changing ----

    async def teach(self, memory: Served, fields: Fields) -> Any:
        """Remember one example or many, in one commit."""
        labels: Any = fields.labels() if "labels" in fields.given else fields.label("label")
        notes = fields.notes()
        examples, _ = await fields.examples(memory)
        if isinstance(labels, list) and len(labels) != len(examples):
            raise Refused(400, f"Got {len(examples)} examples and {len(labels)} labels; expected one for each.")
        told = await self._change("ids", memory, memory.classifier.teach, examples, labels, **notes)
        memory.taught(examples)
        return told

    async def correct(self, memory: Served, fields: Fields) -> Any:
        """Say what the right answer to an example is."""
        label, notes = fields.label("label"), fields.notes()
        [example], _ = await fields.examples(memory, one=True)
        told = await self._change("corrected", memory, memory.classifier.correct, example, label, **notes)
        memory.taught([example])
        return told

    async def relabel(self, memory: Served, fields: Fields) -> Any:
        """Change what taught examples are taught as."""
        ids, label, notes = fields.ids(), fields.label("label"), fields.notes()
        return await self._change("relabelled", memory, memory.classifier.relabel, None, label, id=ids, **notes)

    async def rename(self, memory: Served, fields: Fields) -> Any:
        """Rename a class; where the new name is that of another, they become one."""
        label, to, notes = fields.label("label"), fields.label("to"), fields.notes()
        return await self._change("renamed", memory, memory.classifier.rename, label, to, **notes)

    async def forget(self, memory: Served, fields: Fields) -> Any:
        """Forget for good: a class, or examples."""
        what: dict[str, Any] = {}
        if "label" in fields.given:
            what["label"] = fields.label("label")
        if "ids" in fields.given:
            what["id"] = fields.ids()
        if "example" in fields.given:
            [what["example"]], _ = await fields.examples(memory, one=True)
        if not what:
            raise Refused(400, "Nothing says what to forget; expected label, ids or example.")
        notes = fields.notes()
        notes["by"] = notes.pop("who", None)
        return await self._change("forgotten", memory, memory.classifier.forget, **what, **notes)

    async def undo(self, memory: Served, fields: Fields) -> Any:
        """Take back an entry of the history, the last one by default."""
        entry = fields.number("entry") if "entry" in fields.given else None
        return await self._change("restored", memory, memory.classifier.undo, entry, **fields.notes())

    async def _change(
        self, told: str, memory: Served, call: Callable[..., Any], *args: Any, **options: Any
    ) -> dict[str, Any]:
        """Run a change on the memory's own thread, and tell the open pages; `told` names its result in the answer."""
        classifier = memory.classifier
        try:
            result, entry = await memory.change(lambda: (call(*args, **options), classifier.entry))
        except (ValueError, KeyError, TypeError) as error:
            raise Refused(409, str(error.args[0]) if error.args else "This cannot be done.") from error
        except FolderError as error:
            raise Refused(503, str(error)) from error
        except OSError as error:
            raise Refused(507, f"Nothing was changed: {error}.") from error
        self._tell({"memory": memory.name, "entry": entry, "kind": call.__name__})
        return {"entry": entry} | ({} if result is None else {told: result})

    # ---- looking ----

    async def list_memories(self, request: Request) -> Response:
        """List the memories, what they hold, and what requests may have."""
        return JSONResponse({"memories": [_size(memory) for memory in self.memories.values()], "limits": LIMITS})

    async def classes(self, memory: Served, query: Query) -> Response:
        """List the classes and, of each, how many examples it has and the newest of them."""
        found = await memory.look(memory.classifier.classes)
        newest = await memory.look(memory.classifier.newest, SHOWN)
        classes = [{"label": label, "count": count, "newest": newest.get(label, [])} for label, count in found.items()]
        return JSONResponse({"classes": classes, **_size(memory)})

    async def examples(self, memory: Served, query: Query) -> Response:
        """List examples, the newest first."""
        label, before, count = query.label(), query.number("before"), query.number("count", 50, LISTED)
        taught = await memory.look(memory.classifier.examples, label=label, before=before, last=count)
        return JSONResponse({"examples": [_taught(memory, each) for each in taught]})

    async def example(self, memory: Served, query: Query) -> Response:
        """Return one example: a text, or an image."""
        number = query.number("id", -1)
        taught = await memory.look(memory.classifier.examples, ids=[number])
        if not taught:
            raise Refused(404, f"There is no example {number}; it may be forgotten.")
        example = taught[0].example
        headers = {"cache-control": "private, max-age=3600"}
        if isinstance(example, bytes):
            kind = next((kind for magic, kind in IMAGE_TYPES.items() if example.startswith(magic)), None)
            if kind is None:
                raise Refused(415, f"Example {number} is not an image that a browser may show.")
            return Response(example, media_type=kind, headers=headers)
        return Response(str(memory.show(example)), media_type="text/plain", headers=headers)

    async def history(self, memory: Served, query: Query) -> Response:
        """List the last entries of the journal, the newest first."""
        lines = await memory.look(memory.classifier.history, query.number("count", 50, LISTED))
        return JSONResponse({"history": [_line(line) for line in reversed(lines)]})

    async def unsure(self, memory: Served, query: Query) -> Response:
        """List the last questions by how unsure the memory is about them."""
        found = await memory.look(memory.unsure, query.number("count", 8, LISTED))
        unsure = [{"example": memory.show(example)} | _answer(memory, answer, [], False) for example, answer in found]
        return JSONResponse({"unsure": unsure})

    async def export(self, memory: Served, query: Query) -> Response:
        """Return all examples as JSON lines; images in base64."""
        taught = await memory.look(memory.classifier.examples)

        async def lines() -> AsyncIterator[str]:
            for each in taught:
                yield json.dumps(_taught(memory, each, whole=True), ensure_ascii=False) + "\n"

        name = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in memory.name)
        headers = {"content-disposition": f'attachment; filename="{name}.jsonl"'}
        return StreamingResponse(lines(), media_type="application/x-ndjson", headers=headers)

    # ---- the rest ----

    async def page(self, request: Request) -> Response:
        """Return the page."""
        return FileResponse(STATIC / "index.html", headers={"cache-control": "no-cache"})

    async def health(self, request: Request) -> Response:
        """Say that the service is up."""
        return JSONResponse({"status": "ok", "version": rarecall.__version__})

    async def show_metrics(self, request: Request) -> Response:
        """Return counters and times."""
        sizes = {memory.name: _size(memory) for memory in self.memories.values()}
        gauges = {name: {of: size[name] for of, size in sizes.items()} for name in ("examples", "slots", "capacity")}
        gauges["answered_unknown_total"] = {memory.name: memory.unknown for memory in self.memories.values()}
        return Response(self.metrics.text(gauges), media_type="text/plain; version=0.0.4")

    async def events(self, request: Request) -> Response:
        """Tell of every change, as server-sent events."""
        if len(self.pages) >= PAGES:
            raise Refused(503, f"There are {PAGES} open pages already; close some.")
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue(64)

        async def stream() -> AsyncIterator[str]:
            self.pages.add(queue)
            try:
                yield ": connected\n\n"
                while True:
                    try:
                        change = await asyncio.wait_for(queue.get(), HEARTBEAT)
                        yield f"event: change\ndata: {json.dumps(change)}\n\n"
                    except TimeoutError:
                        yield ": still here\n\n"
            finally:
                self.pages.discard(queue)

        return StreamingResponse(stream(), media_type="text/event-stream")

    def _tell(self, change: dict[str, Any]) -> None:
        for queue in self.pages:
            if not queue.full():  # a page that does not read will load everything when it comes back
                queue.put_nowait(change)

    def _memory(self, request: Request) -> Served:
        name = request.query_params.get("memory")
        if name is None:
            return next(iter(self.memories.values()))
        if name not in self.memories:
            raise Refused(404, f"There is no memory of that name; expected one of {', '.join(self.memories)}.")
        return self.memories[name]

    def _post(self, handler: Callable[[Served, Fields], Awaitable[Any]]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            memory = self._memory(request)
            try:
                body = await asyncio.wait_for(request.body(), PATIENCE)
            except ClientDisconnect:
                raise Refused(400, "The request ended before its body.") from None
            except TimeoutError:
                raise Refused(408, f"The request did not come within {PATIENCE} seconds.") from None
            return JSONResponse(await handler(memory, Fields(handler.__name__, body)))

        return endpoint

    def _get(self, handler: Callable[[Served, Query], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            return await handler(self._memory(request), Query(request.query_params))

        return endpoint


def _answer(memory: Served, answer: Answer, evidence: list[Evidence], because: bool) -> dict[str, Any]:
    told: dict[str, Any] = {
        "label": answer.label,
        "probability": answer.probability,
        "known": answer.known,
        "familiarity": answer.familiarity,
        "alternatives": [{"label": label, "probability": p} for label, p in answer.alternatives[:TOLD]],
    }
    if because:
        told["because"] = [_taught(memory, each) | {"similarity": each.similarity} for each in evidence]
    return told


def _taught(memory: Served, taught: Taught, whole: bool = False) -> dict[str, Any]:
    """An example for JSON; an image only where the whole is asked for, else it is fetched by its number."""
    example = None if isinstance(taught.example, bytes) and not whole else memory.show(taught.example)
    when = taught.when.isoformat(timespec="milliseconds")
    return {"id": taught.id, "example": example, "label": taught.label, "when": when, "who": taught.who}


def _line(line: Line) -> dict[str, Any]:
    told = asdict(line) | {"when": line.when.isoformat(timespec="milliseconds")}
    return told | {"undoable": line.kind in UNDOABLE and line.undone is None and line.count > 0}


def _size(memory: Served) -> dict[str, Any]:
    inside = memory.classifier.memory
    slots, capacity = (len(inside), inside.capacity) if inside is not None else (0, 0)
    return {
        "name": memory.name,
        "kind": memory.kind,
        "examples": len(memory.classifier),
        "slots": slots,
        "capacity": capacity,
        "grows": memory.classifier.settings["capacity"] == "grow",
        "readonly": memory.classifier.readonly,
        "suggestions": memory.suggestions,
        "entry": memory.classifier.entry,
    }


async def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, Refused):
        status, sentence = error.status, error.sentence
    else:
        assert isinstance(error, HTTPException)
        status, sentence = error.status_code, f"{error.detail}: see /openapi.json for what there is."
    headers = {"retry-after": "1"} if status == 503 else None
    return JSONResponse({"error": sentence}, status, headers)


async def _failed(request: Request, error: Exception) -> Response:
    """A fault of ours: uvicorn logs where it happened."""
    return JSONResponse({"error": "This is a fault of the service; its log says more."}, 500)
