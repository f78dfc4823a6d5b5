"""The memories that are served: each a folder, what its examples are, and who waits for it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch

from rarecall.kept import Answer, Evidence, KeptClassifier
from rarecall.serve import images
from rarecall.serve.security import Refused

T = TypeVar("T")
KINDS = ("text", "drawing", "picture")
BATCH = 64  # questions that are embedded together
WAITING = 1024  # questions that may wait for their turn
TEXT = 10_000  # characters of a text
QUESTIONS = 64  # the last questions that were asked, of which the most unsure are told


@dataclass
class Question:
    """A question that was asked, and its key, so that it can be asked again without embedding it."""

    example: Any
    key: Any


class Served:
    """A kept classifier in the service.

    All that changes it runs on one thread, in order. Questions that come while others are being answered wait, and are
    then embedded and answered together: many clients cost little more than one.

    Args:
        name: of the folder.
        kind: what its examples are: text, drawing or picture.
        classifier: opened with its embedder.
    """

    def __init__(self, name: str, kind: str, classifier: KeptClassifier) -> None:
        if kind not in KINDS:
            raise ValueError(f"Got the kind {kind!r}; expected one of {', '.join(KINDS)}.")
        self.name, self.kind, self.classifier = name, kind, classifier
        self.suggestions: list[str] = []  # questions that the page offers to try
        self.unknown = 0  # how many questions were answered with "I don't know"
        self.questions: OrderedDict[bytes, Question] = OrderedDict()
        self._writer, self._reader = ThreadPoolExecutor(1, f"teach-{name}"), ThreadPoolExecutor(1, f"ask-{name}")
        self._waiting: list[tuple[Any, bool, asyncio.Future[tuple[Answer, list[Evidence], Any]]]] = []
        self._answering: asyncio.Task[None] | None = None

    # ---- examples ----

    async def read(self, given: Any) -> Any:
        """Return an example as it is taught, from a request: text, or the bytes of an image that was made small."""
        if not isinstance(given, str) or not given.strip():
            what = "a text" if self.kind == "text" else "an image as base64 or a data URL"
            raise Refused(400, f"An example of {self.name!r} is {what}, and not empty.")
        if self.kind == "text":
            if len(given) > TEXT:
                raise Refused(413, f"The text has {len(given)} characters; expected at most {TEXT}.")
            return given
        shrink = images.to_drawing if self.kind == "drawing" else images.to_jpeg
        return await asyncio.to_thread(lambda: shrink(images.decode(given)))

    def show(self, example: Any) -> Any:
        """Return an example for JSON: a text as it is, an image as base64."""
        if isinstance(example, bytes):
            return base64.b64encode(example).decode()
        return example if isinstance(example, str | int | float) else None if example is None else str(example)

    # ---- changing ----

    async def change(self, call: Callable[..., T], *args: Any, **options: Any) -> T:
        """Run what changes the classifier, after all that was asked for before."""
        return await asyncio.get_running_loop().run_in_executor(self._writer, partial(call, *args, **options))

    async def look(self, call: Callable[..., T], *args: Any, **options: Any) -> T:
        """Run what only reads."""
        return await asyncio.to_thread(call, *args, **options)

    # ---- asking ----

    async def ask(self, example: Any, because: bool = False, remember: bool = True) -> tuple[Answer, list[Evidence]]:
        """Return the answer to a question and, `because` asked for, the examples that decided it."""
        if len(self._waiting) >= WAITING:
            raise Refused(503, "Too many questions are waiting; ask again in a second.")
        future: asyncio.Future[tuple[Answer, list[Evidence], Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append((example, because, future))
        if self._answering is None:
            self._answering = asyncio.create_task(self._answer_all())
        answer, evidence, key = await future
        self.unknown += not answer.known
        if remember:
            self.questions[_digest(example)] = Question(example, key)
            if len(self.questions) > QUESTIONS:
                self.questions.popitem(last=False)
        return answer, evidence

    async def _answer_all(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            now, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
            answered = await loop.run_in_executor(self._reader, self._answer, [each[:2] for each in now])
            for (_, _, future), result in zip(now, answered, strict=True):
                if future.done():  # the client is gone
                    continue
                if isinstance(result, BaseException):
                    future.set_exception(result)
                else:
                    future.set_result(result)
        self._answering = None

    def _answer(self, asked: list[tuple[Any, bool]]) -> list[Any]:
        try:
            keys = self.embed([example for example, _ in asked])
            answers = self.classifier.ask([example for example, _ in asked], keys=keys)
            found = zip(answers, asked, keys, strict=True)
            return [(answer, answer.because if because else [], key) for answer, (_, because), key in found]
        except Exception as error:  # one question must not fail the others
            return [error] if len(asked) == 1 else [self._answer([each])[0] for each in asked]

    def embed(self, examples: list[Any]) -> Any:
        """Return the keys of examples, (n, key_size)."""
        assert self.classifier.embed is not None
        with torch.inference_mode():
            keys = self.classifier.embed(examples)
        return keys.float().numpy() if isinstance(keys, torch.Tensor) else np.asarray(keys, np.float32)

    def taught(self, examples: list[Any]) -> None:
        """What was taught is no longer an open question."""
        for example in examples:
            self.questions.pop(_digest(example), None)

    def unsure(self, count: int) -> list[tuple[Any, Answer]]:
        """Return the questions of late that the memory is most unsure about now, and its answers to them."""
        questions = list(self.questions.values())
        if not questions:
            return []
        keys = np.stack([question.key for question in questions])
        answers = self.classifier.ask([question.example for question in questions], keys=keys)
        pairs = zip((question.example for question in questions), answers, strict=True)
        unsure = [pair for pair in pairs if certainty(pair[1]) < 0.8]
        return sorted(unsure, key=lambda pair: certainty(pair[1]))[:count]

    def close(self) -> None:
        """Finish what is being taught, and close the folder."""
        self._writer.shutdown()
        self._reader.shutdown()
        self.classifier.close()


def certainty(answer: Answer) -> float:
    """How sure an answer is: that the class was taught, and which one it is."""
    return answer.familiarity * answer.probability


def _digest(example: Any) -> bytes:
    data = example if isinstance(example, bytes) else str(example).encode(errors="surrogatepass")
    return hashlib.sha256(data).digest()
