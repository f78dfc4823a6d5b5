"""The pieces of words that sentences are made of: byte-pair encoding by sentencepiece, with bytes for what is left.

sentencepiece reads raw text and gives it back: no tokenizer before it, no detokenizer after it. Byte-pair encoding
counts whole numbers, so that the same text makes the same vocabulary on any machine; a character that has no piece is
written as its UTF-8 bytes, so that nothing is unknown.
"""

from __future__ import annotations

import base64
import hashlib
import io
import zlib
from collections.abc import Sequence

import sentencepiece
import torch

from experiments import folders
from experiments.translation.text import Text
from rarecall import storage

START, END = 1, 2  # 0 is sentencepiece's "unknown", which bytes make needless
SENTENCES = 1_000_000  # of both languages, that a vocabulary is learned from, at the most
AT_ONCE = 10_000  # lines between two movements of the progress bar


class Vocabulary:
    """Sentences to numbers and back.

    Args:
        model: what sentencepiece wrote.
    """

    def __init__(self, model: bytes) -> None:
        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
        except RuntimeError as error:
            raise ValueError(f"This is not a vocabulary of sentencepiece: {error}") from error

    def __len__(self) -> int:
        return int(self._processor.vocab_size())

    @property
    def digest(self) -> str:
        """Tells this vocabulary from others."""
        return hashlib.sha256(self.model).hexdigest()[:16]

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """The pieces of each line, END after the last."""
        pieces: list[list[int]] = self._processor.encode(list(lines), num_threads=torch.get_num_threads())
        return [[*line, END] for line in pieces]

    def decode(self, pieces: Sequence[int]) -> str:
        """The text of pieces; START and END are left out."""
        text: str = self._processor.decode([piece for piece in pieces if piece > END])
        return text

    def piece(self, number: int) -> str:
        """A piece as it is shown: "▁" begins a word, END is "</s>"."""
        shown: str = self._processor.id_to_piece(number)
        return shown

    def to_text(self) -> str:
        """What `from_text` reads, for the header of a file."""
        return base64.b64encode(zlib.compress(self.model, 9)).decode()

    @staticmethod
    def from_text(text: str) -> Vocabulary:
        """What `to_text` wrote."""
        try:
            model = zlib.decompress(base64.b64decode(text))
        except (ValueError, zlib.error) as error:
            raise ValueError(f"This is not a vocabulary as rarecall writes it: {error}") from error
        return Vocabulary(model)


def learn(text: Text, size: int, *, quiet: bool = False) -> Vocabulary:
    """A vocabulary of so many pieces, learned from both languages; from a cache after the first time."""
    cached = folders.cache() / f"vocabulary-{size}-{text.digest}.safetensors"
    if cached.is_file():
        return Vocabulary(storage.read(cached, kind="vocabulary")[0]["model"].numpy().tobytes())
    # Every n-th line, so that all parts of the text have their share.
    lines = text.sources + text.targets
    lines = lines[:: -(-len(lines) // SENTENCES)]
    written = io.BytesIO()
    if not quiet:
        print(f"Learning {size} pieces from {len(lines)} lines; of a million lines, that takes some minutes.")
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=written,
            vocab_size=size,
            model_type="bpe",
            byte_fallback=True,
            character_coverage=0.9999,
            bos_id=START,
            eos_id=END,
            pad_id=-1,
            num_threads=torch.get_num_threads(),
            minloglevel=2,
        )
    except RuntimeError as error:
        raise ValueError(
            f"No vocabulary of {size} pieces can be learned from {len(lines)} lines: {error}. Give more text or ask "
            "for fewer pieces, at least one for each of 256 bytes and each character."
        ) from error
    vocabulary = Vocabulary(written.getvalue())
    folders.keep(cached, {"model": torch.frombuffer(bytearray(vocabulary.model), dtype=torch.uint8)}, kind="vocabulary")
    return vocabulary
