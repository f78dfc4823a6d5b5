"""BLEU with sacrebleu, significance of differences, and the translation of rare words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest, Result
from tqdm import tqdm

RARE = 5  # a word is rare if it occurs at most this often in training
SAMPLES = 1000  # bootstrap samples
# A word contains a letter; hyphens separate words.
WORD = re.compile(r"\w*[^\W\d_]\w*")


def bleu(found: Sequence[str], right: Sequence[str]) -> dict[str, Any]:
    """Return the BLEU score, the number of sentences, and sacrebleu's signature."""
    if not found:
        return {"score": 0.0, "sentences": 0, "signature": ""}
    metric = BLEU()
    score = metric.corpus_score(list(found), [list(right)]).score
    return {"score": round(score, 2), "sentences": len(found), "signature": str(metric.get_signature())}


def difference(found: Sequence[str], baseline: Sequence[str], right: Sequence[str]) -> dict[str, Any]:
    """Return the difference in BLEU between two translations, with its p-value."""
    systems: list[tuple[str, Sequence[str]]] = [("baseline", list(baseline)), ("found", list(found))]
    test = PairedTest(systems, {"BLEU": BLEU()}, [list(right)], test_type="bs", n_samples=SAMPLES)
    before, after = test()[1]["BLEU"]
    assert isinstance(before, Result)
    assert isinstance(after, Result)
    # If the scores are equal, no resample is further from 0, and sacrebleu would report a tiny p-value.
    p = 1.0 if after.p_value is None or after.score == before.score else after.p_value
    return {
        "difference": round(after.score - before.score, 2),
        "p": round(p, 4),
        "significant": p < 0.05,
        "test": f"paired bootstrap, {SAMPLES} samples",
    }


def words(line: str) -> set[str]:
    """Return the words of a line, case-sensitive."""
    return set(WORD.findall(line))


def rare_words(context: Iterable[str], training: Iterable[str], *, quiet: bool = True) -> set[str]:
    """Return the words of the context that occur at most RARE times in training."""
    seen = Counter({word: 0 for line in context for word in words(line)})
    for line in tqdm(training, desc="counting words", disable=quiet):
        seen.update(word for word in WORD.findall(line) if word in seen)
    return {word for word, times in seen.items() if times <= RARE}


def with_rare_words(lines: Sequence[str], rare: set[str]) -> dict[int, set[str]]:
    """Return the rare words of each line that has any, by line number."""
    found = {number: words(line) & rare for number, line in enumerate(lines)}
    return {number: has for number, has in found.items() if has}


def of_rare_words(found: Sequence[str], right: Sequence[str], rare: dict[int, set[str]]) -> dict[str, Any]:
    """Return BLEU of the lines with rare words, and the percentage of these words found in the translations."""
    hit = [word in words(found[number]) for number, has in rare.items() for word in has]
    return {
        "bleu": bleu([found[number] for number in rare], [right[number] for number in rare]),
        "accuracy": round(100 * sum(hit) / len(hit), 2) if hit else None,
        "words": len(hit),
    }
