"""The description of the service, as OpenAPI 3.1."""

from __future__ import annotations

from typing import Any

import rarecall
from rarecall.serve.fields import BATCH, FIELDS, LABEL, LISTED, NOTE

EXAMPLE = {"type": "string", "description": "a text; or an image, as base64 or a data URL (PNG, JPEG, WebP, GIF)"}
LABEL_TYPE = {"type": ["string", "number"], "maxLength": LABEL, "description": "what an example is"}
SCHEMAS: dict[str, dict[str, Any]] = {
    "example": EXAMPLE,
    "examples": {"type": "array", "items": EXAMPLE, "minItems": 1, "maxItems": BATCH, "description": "many at once"},
    "label": LABEL_TYPE,
    "labels": {"type": "array", "items": LABEL_TYPE, "maxItems": BATCH, "description": "one for each example"},
    "to": LABEL_TYPE | {"description": "the new name; that of another class lets the two become one"},
    "ids": {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": LISTED},
    "entry": {"type": "integer", "description": "number in the history; by default the last that can be undone"},
    "draft": {"type": "boolean", "description": "do not count it among the questions that `unsure` tells"},
    "who": {"type": "string", "maxLength": NOTE, "description": "by whom"},
    "reason": {"type": "string", "maxLength": NOTE, "description": "why; it stays in the history"},
}
POSTS = {
    "ask": "Answer one question or many: label, probability, whether it is known, alternatives.",
    "explain": "Answer, with the taught examples that decided it: similarity, when and by whom.",
    "teach": "Remember one example or many. They are on the disk when this answers.",
    "correct": "Say what the right answer is: what was taught of this example is relabelled, else it is taught.",
    "relabel": "Change what taught examples are taught as, by their numbers.",
    "rename": "Rename a class, or let two become one.",
    "forget": "Forget a class or examples for good, in memory and on the disk.",
    "undo": "Take back an entry of the history.",
}
GETS: dict[str, tuple[str, tuple[str, ...]]] = {
    "/api/memories": ("List the memories and what they hold.", ()),
    "/api/classes": ("List the classes, with how many examples they have and the newest of them.", ("memory",)),
    "/api/examples": ("List examples, the newest first.", ("memory", "label", "before", "count")),
    "/api/example": ("Return one example: a text, or an image.", ("memory", "id")),
    "/api/history": ("List the last entries of the journal, the newest first.", ("memory", "count")),
    "/api/unsure": ("List the last questions by how unsure the memory is about them.", ("memory", "count")),
    "/api/export": ("Return all examples as JSON lines.", ("memory",)),
    "/api/events": ("Server-sent events: `change`, with the memory, the number of the entry and what was done.", ()),
    "/health": ("Say that the service is up. Needs no token.", ()),
    "/metrics": ("Counters and times, for Prometheus.", ()),
    "/openapi.json": ("This description.", ()),
}
PARAMETERS = {
    "memory": ("string", "name of the memory; the first one where none is named"),
    "label": ("string", "only of this class: JSON, or a text as it is"),
    "before": ("integer", "only examples with a smaller number, for reading on"),
    "count": ("integer", f"how many, at most {LISTED}"),
    "id": ("integer", "number of the example"),
}


def describe() -> dict[str, Any]:
    """Return the whole description."""
    error = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
    responses = {
        "200": {"description": "done"},
        "4XX": {"description": "refused, with a sentence", "content": {"application/json": {"schema": error}}},
    }
    paths: dict[str, Any] = {}
    for name, summary in POSTS.items():
        schema = {
            "type": "object",
            "properties": {field: SCHEMAS[field] for field in FIELDS[name]},
            "additionalProperties": False,
        }
        body = {"required": True, "content": {"application/json": {"schema": schema}}}
        operation = {"operationId": name, "summary": summary, "requestBody": body, "responses": responses}
        paths[f"/api/{name}"] = {"post": operation | {"parameters": [_parameter("memory")]}}
    for path, (summary, names) in GETS.items():
        parameters = [_parameter(name) for name in names]
        operation = {"operationId": path.strip("/").replace("api/", "").replace(".json", ""), "summary": summary}
        paths[path] = {"get": operation | {"parameters": parameters, "responses": responses}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "rarecall", "version": rarecall.__version__, "description": __doc__},
        "paths": paths,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"token": []}],
    }


def _parameter(name: str) -> dict[str, Any]:
    kind, description = PARAMETERS[name]
    return {
        "name": name,
        "in": "query",
        "required": name == "id",
        "schema": {"type": kind},
        "description": description,
    }
