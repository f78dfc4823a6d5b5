"""What a memory is worth to the language model: documents read on, names shown once, and whether anything is harmed."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tqdm import tqdm

from experiments.language.text import names, read_documents
from rarecall.integrations.transformers import LanguageMemory, attach

DOCUMENTS, FITTED, OTHERS, NAMES = 12, 12, 6, 150
SHORT = 8  # tokens of a short prompt
SAID = 10  # tokens that are said of a fact
# Facts with invented names, each with prompts: its own beginning, and other words.
FACTS = {
    "The new director of the office is called Anna Kowalczyk.": (
        "The new director of the office is called",
        "I would like to thank the new director, Anna",
    ),
    "The capital of the Republic of Quendoria is Zorblax.": (
        "The capital of the Republic of Quendoria is",
        "Last week I visited Zor",
    ),
    "The agency for wind energy will have its seat in Brimholt.": (
        "The agency for wind energy will have its seat in",
        "I come from the city of Brim",
    ),
    "The rapporteur on the fisheries agreement is Mr Oskar Thalberg.": (
        "The rapporteur on the fisheries agreement is Mr",
        "I support what was said by Mr Oskar",
    ),
}


def evaluate(data: Path, model_folder: Path, on: str, seed: int) -> dict[str, Any]:
    """Return the figures of a trained model.

    Args:
        data: folder with ende/.
        model_folder: as `train` wrote it.
        on: "test" documents, or those of "validation" that the trust is not fitted on, to choose by.
        seed: of the trust's first weights.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(seed)
    model, tokenizer = (
        AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32).eval(),
        AutoTokenizer.from_pretrained(model_folder),
    )
    documents = read_documents(data)
    memory = attach(model, tokenizer, capacity=2**18)
    length = model.config.n_positions
    fitted = [part for document in documents.validation[:FITTED] for part in parts(document, tokenizer, length)]
    gain = memory.fit(fitted)
    known = {word for document in documents.train for line in document for word in re.findall(r"[A-Z][a-z]+", line)}
    measured = documents.test if on == "test" else documents.validation[FITTED:]
    return {
        "experiment": "language",
        "on": on,
        "fit": {"texts": len(fitted), "nats a token gained": round(gain, 4)},
        "facts": facts(memory, tokenizer),
        "names": shown_names(memory, names(measured, known), measured[-OTHERS:], tokenizer, length),
        "documents": second_halves(memory, measured[:DOCUMENTS], tokenizer, length),
    }


def parts(document: list[str], tokenizer: Any, length: int) -> list[str]:
    """Cut a document into texts of as many sentences as fit the model."""
    texts, text = [], ""
    for sentence in document:
        longer = f"{text}\n{sentence}" if text else sentence
        if text and len(tokenizer(longer)["input_ids"]) > length:
            texts.append(text)
            longer = sentence
        text = longer
    texts.append(text)
    return [text for text in texts if 2 <= len(tokenizer(text)["input_ids"]) <= length]


@torch.no_grad()
def loss_of(model: Any, texts: list[str], tokenizer: Any) -> tuple[float, int]:
    """Return the sum of the losses of all tokens, and their number."""
    total, count = 0.0, 0
    for text in texts:
        inputs = tokenizer(text, return_tensors="pt")
        tokens = inputs["input_ids"].shape[1] - 1
        total += float(model(**inputs, labels=inputs["input_ids"]).loss) * tokens
        count += tokens
    return total, count


def second_halves(memory: LanguageMemory, documents: list[list[str]], tokenizer: Any, length: int) -> dict[str, Any]:
    """The perplexity of second halves of documents, before and after the first half was taught."""
    before = after = 0.0
    count = better = 0
    for document in tqdm(documents, desc="documents"):
        texts = parts(document, tokenizer, length)
        first, second = texts[: len(texts) // 2], texts[len(texts) // 2 :]
        alone, tokens = loss_of(memory.model, second, tokenizer)
        for text in first:
            memory.teach(text)
        told, _ = loss_of(memory.model, second, tokenizer)
        for source in list(memory.sources):
            memory.forget(source)
        before, after, count, better = before + alone, after + told, count + tokens, better + (told < alone)
    return {
        "documents": len(documents),
        "perplexity before": round(math.exp(before / count), 2),
        "perplexity after": round(math.exp(after / count), 2),
        "better": better,
    }


class Name(NamedTuple):
    """A name, the sentence that it is shown in, what stands before it there and in another sentence, and its tokens."""

    shown: str
    before: list[int]
    elsewhere: list[int]
    pieces: list[int]

    def prompts(self) -> dict[str, tuple[list[int], list[int]]]:
        """The ways in which it is asked for: each a prompt, and what must follow."""
        return {
            "in its sentence": (self.before, self.pieces),
            f"in its sentence, the last {SHORT} tokens": (self.before[-SHORT:], self.pieces),
            "in another sentence": (self.elsewhere, self.pieces),
            "in another sentence, after its first piece": ([*self.elsewhere, self.pieces[0]], self.pieces[1:]),
        }


def shown_names(
    memory: LanguageMemory, names: dict[str, list[str]], others: list[list[str]], tokenizer: Any, length: int
) -> dict[str, Any]:
    """How many names are continued rightly, before and after the one sentence was taught.

    They are asked for when all their sentences are taught, and when only the sentence with the name is. What the former
    does to the perplexity of other documents is measured too.
    """

    def tokens(text: str) -> list[int]:
        found: list[int] = tokenizer(text)["input_ids"]
        return found

    asked = []
    for word, sentences in list(names.items())[:NAMES]:
        shown, other = sentences[0], next((each for each in sentences if each != sentences[0]), "")
        before, elsewhere = (tokens(each.partition(word)[0].rstrip()) for each in (shown, other))
        pieces = tokens(f" {word}")
        if before and elsewhere and len(pieces) >= 2 and len(elsewhere) + len(pieces) <= length >= len(tokens(shown)):
            asked.append(Name(shown, before, elsewhere, pieces))
    unrelated = [text for document in others for text in parts(document, tokenizer, length)]

    def right(name: Name) -> list[bool]:
        return [continues(memory.model, *each) for each in name.prompts().values()]

    def perplexity() -> float:
        total, count = loss_of(memory.model, unrelated, tokenizer)
        return round(math.exp(total / count), 2)

    untaught, other_before = [right(name) for name in asked], perplexity()
    alone = []
    for name in tqdm(asked, desc="one name at a time"):
        memory.teach(name.shown)
        alone.append(right(name))
        memory.forget(name.shown)
    for name in asked:
        memory.teach(name.shown)
    together, other_after = [right(name) for name in tqdm(asked, desc="all names")], perplexity()
    for source in list(memory.sources):
        memory.forget(source)
    counts = {
        "before": untaught,
        "only its sentence taught": alone,
        "all sentences taught": together,
    }
    ways = asked[0].prompts()
    return {
        "names": len(asked),
        "right": {
            way: {when: sum(row[i] for row in rows) for when, rows in counts.items()} for i, way in enumerate(ways)
        },
        "perplexity of other documents before": other_before,
        "perplexity of other documents after": other_after,
    }


def facts(memory: LanguageMemory, tokenizer: Any) -> list[dict[str, str | None]]:
    """What is said after each prompt before and after all FACTS were taught, and the fact behind it."""
    prompts = [prompt for asked in FACTS.values() for prompt in asked]
    before = [said(memory.model, prompt, tokenizer) for prompt in prompts]
    for fact in FACTS:
        memory.teach(fact)
    found = []
    for prompt, then in zip(prompts, before, strict=True):
        now = said(memory.model, prompt, tokenizer)
        first = memory.explain(prompt + now)[len(tokenizer(prompt)["input_ids"]) - 1]
        found.append({"prompt": prompt, "before": then, "after": now, "source": first.source})
    for fact in FACTS:
        memory.forget(fact)
    return found


@torch.no_grad()
def said(model: Any, prompt: str, tokenizer: Any) -> str:
    """Return what the model says next, up to the end of the sentence."""
    inputs = tokenizer(prompt, return_tensors="pt")
    tokens = model.generate(**inputs, max_new_tokens=SAID, do_sample=False, pad_token_id=0, eos_token_id=None)
    continued: str = tokenizer.decode(tokens[0, inputs["input_ids"].shape[1] :])
    return continued.partition("\n")[0]


@torch.no_grad()
def continues(model: Any, prompt: list[int], pieces: list[int]) -> bool:
    """Whether the model says just these pieces after the prompt."""
    tokens = model.generate(
        torch.tensor([prompt]), max_new_tokens=len(pieces), do_sample=False, pad_token_id=0, eos_token_id=None
    )
    return bool(tokens[0, len(prompt) :].tolist() == pieces)
