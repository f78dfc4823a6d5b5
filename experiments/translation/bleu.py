"""BLEU by sacrebleu, whether a difference is more than chance, and how rare words fare."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest, Result
from tqdm import tqdm

RARE = 5  # a word is rare that was seen so often in training, or less often
SAMPLES = 1000  # of the bootstrap
# What has a letter in it, a compound with hyphens being several words.
WORD = re.compile(r"\w*[^\W\d_]\w*")


def bleu(found: Sequence[str], right: Sequence[str]) -> dict[str, Any]:
    """The score of translations, of how many sentences, and sacrebleu's signature."""
    if not found:
        return {"score": 0.0, "sentences": 0, "signature": ""}
    metric = BLEU()
    score = metric.corpus_score(list(found), [list(right)]).score
    return {"score": round(score, 2), "sentences": len(found), "signature": str(metric.get_signature())}


def difference(found: Sequence[str], baseline: Sequence[str], right: Sequence[str]) -> dict[str, Any]:
    """How much better one translation is than another, and how likely chance alone would make them so different."""
    systems: list[tuple[str, Sequence[str]]] = [("baseline", list(baseline)), ("found", list(found))]
    test = PairedTest(systems, {"BLEU": BLEU()}, [list(right)], test_type="bs", n_samples=SAMPLES)
    before, after = test()[1]["BLEU"]
    assert isinstance(before, Result)
    assert isinstance(after, Result)
    # Of no difference at all, no resample is further from 0, which the formula takes for certainty.
    p = 1.0 if after.p_value is None or after.score == before.score else after.p_value
    return {
        "difference": round(after.score - before.score, 2),
        "p": round(p, 4),
        "significant": p < 0.05,
        "test": f"paired bootstrap, {SAMPLES} samples",
    }


def words(line: str) -> set[str]:
    """The words of a line, as they are written."""
    return set(WORD.findall(line))


def rare_words(context: Iterable[str], training: Iterable[str], *, quiet: bool = True) -> set[str]:
    """The words of the context that were in training at most RARE times."""
    seen = Counter({word: 0 for line in context for word in words(line)})
    for line in tqdm(training, desc="counting words", disable=quiet):
        seen.update(word for word in WORD.findall(line) if word in seen)
    return {word for word, times in seen.items() if times <= RARE}


def with_rare_words(lines: Sequence[str], rare: set[str]) -> dict[int, set[str]]:
    """The lines that have rare words, by their number, and these words."""
    found = {number: words(line) & rare for number, line in enumerate(lines)}
    return {number: has for number, has in found.items() if has}


def of_rare_words(found: Sequence[str], right: Sequence[str], rare: dict[int, set[str]]) -> dict[str, Any]:
    """BLEU of the lines that have rare words, and the share of these words that the translations have, in per cent."""
    hit = [word in words(found[number]) for number, has in rare.items() for word in has]
    return {
        "bleu": bleu([found[number] for number in rare], [right[number] for number in rare]),
        "accuracy": round(100 * sum(hit) / len(hit), 2) if hit else None,
        "words": len(hit),
    }
