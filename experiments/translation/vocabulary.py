"""Subword vocabulary: byte-pair encoding with sentencepiece, with byte fallback.

sentencepiece works on raw text, without a tokenizer and a detokenizer. Byte-pair encoding uses integer counts only, so
the same text gives the same vocabulary on any machine. Characters without a piece are encoded as their UTF-8 bytes, so
there are no unknown words. Quotation marks, apostrophes and dashes are reduced to the ASCII ones.
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

START, END = 1, 2  # 0 is sentencepiece's "unknown", which is not used due to byte fallback
SENTENCES = 1_000_000  # maximum number of lines, of both languages, to learn a vocabulary from
AT_ONCE = 10_000  # lines per update of the progress bar
# Debates are printed with typographic marks, news mostly with ASCII, so what one teaches about "don’t" would not help
# with "don't". \x84 to \x97 are marks of Windows-1252 that were read as Latin-1.
PLAIN = str.maketrans(
    dict.fromkeys("’‘‚‛`´\x91\x92", "'")
    | dict.fromkeys("“”„‟«»\x84\x93\x94", '"')
    | dict.fromkeys("–—―−‑\x96\x97", "-")
)


class Vocabulary:
    """Encoder and decoder of sentences.

    Args:
        model: serialised sentencepiece model.
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
        """Hash that identifies this vocabulary."""
        return hashlib.sha256(self.model).hexdigest()[:16]

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the pieces of each line, with plain punctuation, followed by END."""
        plain = [line.translate(PLAIN) for line in lines]
        pieces: list[list[int]] = self._processor.encode(plain, num_threads=torch.get_num_threads())
        return [[*line, END] for line in pieces]

    def decode(self, pieces: Sequence[int]) -> str:
        """Return the text of pieces, without START and END."""
        text: str = self._processor.decode([piece for piece in pieces if piece > END])
        return text

    def piece(self, number: int) -> str:
        """Return the string of a piece: "▁" begins a word, END is "</s>"."""
        shown: str = self._processor.id_to_piece(number)
        return shown

    def to_text(self) -> str:
        """Serialise as text, for the header of a file."""
        return base64.b64encode(zlib.compress(self.model, 9)).decode()

    @staticmethod
    def from_text(text: str) -> Vocabulary:
        """Deserialise the output of `to_text`."""
        try:
            model = zlib.decompress(base64.b64decode(text))
        except (ValueError, zlib.error) as error:
            raise ValueError(f"This is not a vocabulary as rarecall writes it: {error}") from error
        return Vocabulary(model)


def learn(text: Text, size: int, *, quiet: bool = False) -> Vocabulary:
    """Learn a vocabulary of `size` pieces from both languages, or read it from the cache."""
    cached = folders.cache() / f"plain-vocabulary-{size}-{text.digest}.safetensors"
    if cached.is_file():
        return Vocabulary(storage.read(cached, kind="vocabulary")[0]["model"].numpy().tobytes())
    # Every n-th line, so that all parts of the text are represented.
    lines = text.sources + text.targets
    lines = [line.translate(PLAIN) for line in lines[:: -(-len(lines) // SENTENCES)]]
    written = io.BytesIO()
    if not quiet:
        print(f"Learning {size} pieces from {len(lines)} lines; this takes some minutes for a million lines.")
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
            f"No vocabulary of {size} pieces can be learned from {len(lines)} lines: {error}. Use more text or "
            "fewer pieces, but at least one for each of 256 bytes and each character."
        ) from error
    vocabulary = Vocabulary(written.getvalue())
    folders.keep(cached, {"model": torch.frombuffer(bytearray(vocabulary.model), dtype=torch.uint8)}, kind="vocabulary")
    return vocabulary
