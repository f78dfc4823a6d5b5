"""What a memory is worth to the language model: documents read on, names shown once, and whether anything is harmed."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from experiments.language.text import names, read_documents
from rarecall.integrations.transformers import LanguageMemory, attach

DOCUMENTS, FITTED, NAMES = 100, 40, 300


def evaluate(data: Path, model_folder: Path, caution: float, seed: int) -> dict[str, Any]:
    """Return the figures of a trained model."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(seed)
    model, tokenizer = (
        AutoModelForCausalLM.from_pretrained(model_folder).eval(),
        AutoTokenizer.from_pretrained(model_folder),
    )
    documents = read_documents(data)
    memory = attach(model, tokenizer, capacity=2**18, caution=caution)
    length = model.config.n_positions
    fitted = [part for document in documents.validation[:FITTED] for part in parts(document, tokenizer, length)]
    gain = memory.fit(fitted)
    known = {word for document in documents.train for line in document for word in re.findall(r"[A-Z][a-z]+", line)}
    return {
        "experiment": "language",
        "caution": caution,
        "fit": {"texts": len(fitted), "nats a token gained": round(gain, 4)},
        "documents": second_halves(memory, documents.test[:DOCUMENTS], tokenizer, length),
        "names": shown_names(memory, names(documents.test, known), documents.test[DOCUMENTS:], tokenizer, length),
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


def shown_names(
    memory: LanguageMemory, names: dict[str, list[str]], others: list[list[str]], tokenizer: Any, length: int
) -> dict[str, Any]:
    """How many names are continued rightly in another sentence, from their first piece, before and after one was shown.

    All names are taught before any is asked for; what that does to the perplexity of other documents is measured too.
    """
    asked = []
    for name, sentences in list(names.items())[:NAMES]:
        first, second = sentences[0], next((each for each in sentences if each != sentences[0]), None)
        if second is None or len(tokenizer(first)["input_ids"]) > length:
            continue
        prompt = tokenizer(second[: second.index(name)].rstrip())["input_ids"]
        pieces = tokenizer(f" {name}")["input_ids"]
        if prompt and len(pieces) >= 2 and len(prompt) + len(pieces) <= length:
            asked.append((first, [*prompt, pieces[0]], pieces[1:]))
    unrelated = [text for document in others[:30] for text in parts(document, tokenizer, length)]

    def right() -> int:
        return sum(continues(memory.model, prompt, pieces) for _, prompt, pieces in tqdm(asked, desc="names"))

    before, loss_before = right(), loss_of(memory.model, unrelated, tokenizer)
    for first, _, _ in asked:
        memory.teach(first)
    after, loss_after = right(), loss_of(memory.model, unrelated, tokenizer)
    return {
        "names": len(asked),
        "right before": before,
        "right after": after,
        "perplexity of other documents before": round(math.exp(loss_before[0] / loss_before[1]), 2),
        "perplexity of other documents after": round(math.exp(loss_after[0] / loss_after[1]), 2),
    }


@torch.no_grad()
def continues(model: Any, prompt: list[int], pieces: list[int]) -> bool:
    """Whether the model says just these pieces after the prompt."""
    said = model.generate(
        torch.tensor([prompt]), max_new_tokens=len(pieces), do_sample=False, pad_token_id=0, eos_token_id=None
    )
    return said[0, len(prompt) :].tolist() == pieces
