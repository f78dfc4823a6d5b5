"""What a request may say: every field is checked here, and what is wrong is told in a sentence."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from typing import Any

from rarecall.serve.memories import TEXT, Served
from rarecall.serve.security import BODY, Refused

BATCH = 256  # examples of a request
LABEL, NOTE = 200, 1000  # characters of a label, and of who and why
LISTED = 500  # entries and examples that are listed at once
NUMBER = 2**53  # what JSON carries exactly
LIMITS = {"body_bytes": BODY, "batch": BATCH, "text_characters": TEXT, "label_characters": LABEL}

NOTES = ("who", "reason")
FIELDS: dict[str, tuple[str, ...]] = {
    "ask": ("example", "examples", "draft"),
    "explain": ("example", "examples", "draft"),
    "teach": ("example", "examples", "label", "labels", *NOTES),
    "correct": ("example", "label", *NOTES),
    "relabel": ("ids", "label", *NOTES),
    "rename": ("label", "to", *NOTES),
    "forget": ("label", "ids", "example", *NOTES),
    "undo": ("entry", *NOTES),
}


class Fields:
    """The JSON object of a request.

    Args:
        operation: a key of FIELDS.
        body: as it came.
    """

    def __init__(self, operation: str, body: bytes) -> None:
        try:
            given = json.loads(body, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:  # also a wrong encoding, and numbers of too many digits
            raise Refused(400, f"The body is not JSON: {str(error)[:100]}.") from None
        if not isinstance(given, dict):
            raise Refused(400, f"The body is a JSON {type(given).__name__}; expected an object.")
        known = FIELDS[operation]
        for name in given:
            if name not in known:
                raise Refused(400, f"{operation} has no field {name[:50]!a}; expected {', '.join(known)}.")
        self.given: dict[str, Any] = {name: value for name, value in given.items() if value is not None}

    async def examples(self, memory: Served, one: bool = False) -> tuple[list[Any], bool]:
        """Return the examples, and whether a list was given."""
        if ("example" in self.given) == ("examples" in self.given):
            raise Refused(400, "Expected either example, or examples as a list.")
        if "example" in self.given:
            return [await memory.read(_plain(self.given["example"], "example"))], False
        given = self.given["examples"]
        if one or not isinstance(given, list) or not 1 <= len(given) <= BATCH:
            raise Refused(400, f"examples must be a list of 1 to {BATCH}.")
        return list(await asyncio.gather(*(memory.read(_plain(each, "examples")) for each in given))), True

    def label(self, name: str) -> Any:
        """Return a label: a text or a number."""
        return _label(self.given.get(name), name)

    def labels(self) -> list[Any]:
        """Return a list of labels."""
        given = self.given["labels"]
        if "label" in self.given or not isinstance(given, list) or len(given) > BATCH:
            raise Refused(400, f"labels must be a list of at most {BATCH}, without a label beside it.")
        return [_label(each, "labels") for each in given]

    def ids(self) -> list[int]:
        """Return the numbers of examples."""
        given = self.given.get("ids")
        if not isinstance(given, list) or not 1 <= len(given) <= LISTED:
            raise Refused(400, f"ids must be a list of 1 to {LISTED} numbers.")
        return [_number(each, "ids") for each in given]

    def number(self, name: str) -> int:
        """Return a number from 0 on."""
        return _number(self.given[name], name)

    def flag(self, name: str) -> bool:
        """Return true or false."""
        given = self.given.get(name, False)
        if not isinstance(given, bool):
            raise Refused(400, f"{name} must be true or false.")
        return given

    def notes(self) -> dict[str, Any]:
        """Return who and why, where they are said."""
        notes = {name: self.given[name] for name in NOTES if name in self.given}
        for name, note in notes.items():
            if not isinstance(note, str) or len(note) > NOTE:
                raise Refused(400, f"{name} must be a text of at most {NOTE} characters.")
            _plain(note, name)
        return notes


class Query:
    """What stands behind the question mark of an address."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.given = given

    def number(self, name: str, default: int | None = None, most: int = NUMBER) -> Any:
        """Return a number from 0 to `most`."""
        text = self.given.get(name)
        if text is None and default != -1:
            return default
        if text is None or not text.isascii() or not text.isdecimal() or len(text) > 15 or int(text) > most:
            raise Refused(400, f"{name} must be a number from 0 to {most}.")
        return int(text)

    def label(self) -> Any:
        """Return the label: JSON, or else a text as it is; None where there is none."""
        text = self.given.get("label")
        if text is None:
            return None
        try:
            return _label(json.loads(text, parse_constant=_no_constant), "label")
        except (ValueError, RecursionError):
            return _label(text, "label")


def _label(given: Any, name: str) -> Any:
    if isinstance(given, str):
        label = _plain(given, name).strip()
        if not 1 <= len(label) <= LABEL:
            raise Refused(400, f"{name} must have 1 to {LABEL} characters.")
        return label
    if isinstance(given, bool) or not isinstance(given, int | float) or not abs(given) < NUMBER or math.isnan(given):
        raise Refused(400, f"{name} must be a text or a number.")
    return given


def _number(given: Any, name: str) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < NUMBER:
        raise Refused(400, f"{name} must be a whole number from 0 on.")
    return given


def _plain(text: Any, name: str) -> Any:
    """Refuse text with half a character, which no file can hold."""
    if isinstance(text, str) and not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Refused(400, f"{name} has half of a surrogate pair, which is not a character.") from None
    return text


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")
