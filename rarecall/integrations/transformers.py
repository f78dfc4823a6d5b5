"""A memory in a language model of the transformers library: teach it a text, and `generate` continues from it.

    memory = attach(model, tokenizer)
    memory.fit(texts)                                    # once: how far to listen
    memory.teach("The capital of Quendor is Zorblax.", source="atlas")
    model.generate(...)                                  # as ever
    memory.explain("The capital of Quendor is Zorblax")  # which taught text stands behind each token
    memory.forget("atlas")

As in the kNN language model (Khandelwal et al. 2020), queries are the hidden states that enter the output embedding,
and values are the tokens that followed. It is attached to the output embedding, which every model class has.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rarecall import storage
from rarecall.integrations.listening import Asked, Listening
from rarecall.memory import Memory

# The source of a slot is the number of its text times this, plus the token's place in it.
PLACES = 2**20
IGNORED = -100  # the label of a token that takes no part, as transformers has it
# In a fit: one of ASKED_AGAIN texts is asked again after it was taught. Then memories are made of so many texts (FEW),
# ROUNDS times, and asked ASKED_OF_FEW unrelated texts and AGAIN_OF_FEW of their own.
ASKED_AGAIN, ASKED_OF_FEW, AGAIN_OF_FEW, FEW, ROUNDS = 4, 16, 4, (1, 4, 16, 64), 3
# Log-odds subtracted from the fitted trust. Chosen from 0, 0.25 and 0.5 on held-out debates, as the least that leaves
# the perplexity of unrelated text as it was (+0.3% without); it costs names in other sentences (59 to 55 of 148).
CAUTION = 0.25


@dataclass(frozen=True)
class TaughtToken:
    """A token of a text, and what the memory says of it.

    Attributes:
        token: its text.
        network: the probability that the network alone gives it.
        memory: the probability that the memory gives it.
        trust: how far the memory is listened to, 0 to 1.
        source: the taught text behind the memory's answer; None where it has none.
        taught: the answer's token as it was taught, with what stood before it.
        similarity: of the nearest key.
    """

    token: str
    network: float
    memory: float
    trust: float
    source: str | None
    taught: str
    similarity: float


class LanguageMemory(nn.Module):
    """The memory of a language model; `attach` makes it.

    Args:
        model: a causal or sequence-to-sequence model of transformers.
        tokenizer: of that model.
        capacity: number of tokens that it remembers.
        k: neighbours of a query.
        search: as of `Memory`.
        caution: log-odds subtracted from the fitted trust; the larger, the surer the memory must be.
    """

    centre: Tensor

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        capacity: int = 2**20,
        k: int = 32,
        search: str = "auto",
        caution: float = CAUTION,
    ) -> None:
        super().__init__()
        head = model.get_output_embeddings()
        if head is None:
            raise TypeError(
                f"{type(model).__name__} has no output embedding; expected a model that predicts tokens, such as "
                "AutoModelForCausalLM or AutoModelForSeq2SeqLM."
            )
        key_size = head.weight.shape[1]
        self.memory = Memory(key_size, capacity, k=k, search=search)
        self.trust = Listening(key_size).requires_grad_(False)
        self.trust.caution = caution
        # Hidden states of a language model share a large component, which says nothing: it is subtracted.
        self.register_buffer("centre", torch.zeros(key_size))
        self.sources: dict[str, int] = {}  # number of each taught text
        self._texts: dict[int, list[int]] = {}  # its tokens
        self._model, self._tokenizer = (model,), tokenizer  # in a tuple: not a part of this module
        self._listens, self._heard = True, list[Tensor]()
        self._hook = head.register_forward_hook(self._mix)

    @property
    def model(self) -> Any:
        """The language model."""
        return self._model[0]

    def detach(self) -> None:
        """Leave the model as it was."""
        self._hook.remove()

    def fit(self, texts: Sequence[str] | Sequence[tuple[str, str]], steps: int = 80) -> float:
        """Learn how far to listen, from some texts like those to come: each is asked first, and taught then.

        Some are asked again, from a later start, as a prompt has less before it than the taught text had. What was
        taught before stays; these texts are not kept. To learn when not to listen, texts of each half of the list are
        also asked of a memory that holds only texts of the other half.

        Args:
            texts: two or more, those of one document next to each other; pairs of input and output for a
                sequence-to-sequence model.
            steps: of the optimizer.

        Returns:
            By how much the memory lowers the loss of these texts, in nats a token.
        """
        if len(texts) < 2:
            raise ValueError(f"fit got {len(texts)} texts; expected 2 or more, of a few sentences each.")
        inputs = [self._tokens(*([text] if isinstance(text, str) else text)) for text in texts]
        runs = [self._run(*each) for each in inputs]
        if not self.sources:  # keys that were taught have the centre of then
            self.centre = torch.cat([hidden for hidden, _, _ in runs]).mean(0)
        trial = Memory(self.memory.key_size, sum(len(labels) for _, labels, _ in runs), k=self.memory.k)
        first, again = [], []
        for hidden, labels, says in runs:
            # A text is taught as it is read: its second half is asked when the first was taught.
            for part in torch.arange(len(labels), device=labels.device).tensor_split(2):
                query = hidden[part] - self.centre
                first.append(Asked.of(says[part], labels[part], trial(query)))
                trial.write(query, labels[part])
        for number in range(0, len(inputs), ASKED_AGAIN):
            hidden, labels, says = self._from_later(inputs[number], number // ASKED_AGAIN)
            again.append(Asked.of(says, labels, trial(hidden - self.centre)))
        # When not to listen: texts of one half of the list are asked when only some of the other half were taught. The
        # latter are asked again, so that it is not the size of the memory that decides.
        random = torch.Generator().manual_seed(0)
        for (taught, others), size in itertools.product(_halves(len(runs)), FEW * ROUNDS):
            trial.reset()
            written = [taught[i] for i in torch.randperm(len(taught), generator=random)[:size].tolist()]
            for number in written:
                hidden, labels, _ = runs[number]
                trial.write(hidden - self.centre, labels)
            for i in torch.randperm(len(others), generator=random)[:ASKED_OF_FEW].tolist():
                hidden, labels, says = runs[others[i]]
                first.append(Asked.of(says, labels, trial(hidden - self.centre)))
            for number in written[:AGAIN_OF_FEW]:
                hidden, labels, says = self._from_later(inputs[number], number)
                again.append(Asked.of(says, labels, trial(hidden - self.centre)))
        return self.trust.fit(Asked.join(first[1:]), Asked.join(again), steps)

    def _from_later(self, text: tuple[dict[str, Tensor], Tensor], number: int) -> tuple[Tensor, Tensor, Tensor]:
        """Run a text from a later start, of eight in turns: a prompt has less before it than the taught text had."""
        inputs, labels = text
        start = 0 if "labels" in inputs else len(labels) * (number % 8) // 16
        return self._run({name: tensor[:, start:] for name, tensor in inputs.items()}, labels[start:])

    def teach(self, text: str, target: str | None = None, *, source: str | None = None) -> str:
        """Remember a text.

        Args:
            text: what to continue from now on; for a sequence-to-sequence model, the input.
            target: for such a model, the output.
            source: what to call it, in `explain` and `forget`; the text itself by default. One of the same name is
                replaced.

        Returns:
            The source.
        """
        source = text if source is None else source
        hidden, labels, _ = self._run(*self._tokens(text, target))
        if len(labels) == 0:
            raise ValueError(f"teach got {text!r}, in which no token follows another; expected at least two tokens.")
        if source in self.sources:
            self.forget(source)
        if not self.centre.any():  # not fitted
            self.centre = hidden.mean(0)
        number = max(self.sources.values(), default=-1) + 1
        places = torch.arange(len(labels), device=labels.device)
        self.memory.write(hidden - self.centre, labels, number * PLACES + places)
        self.sources[source], self._texts[number] = number, labels.tolist()
        return source

    def forget(self, source: str) -> int:
        """Forget a taught text; return how many tokens were forgotten."""
        if source not in self.sources:
            raise KeyError(f"Nothing was taught as {source!r}; taught are: {', '.join(map(repr, self.sources))}.")
        number = self.sources.pop(source)
        places = len(self._texts.pop(number))
        return self.memory.forget(source=torch.arange(places) + number * PLACES)

    def explain(self, text: str, target: str | None = None) -> list[TaughtToken]:
        """Say of each token of a text (of the target, where there is one) which taught text stands behind it."""
        hidden, labels, says = self._run(*self._tokens(text, target))
        recall = self.memory(hidden - self.centre)
        memory, trust = self.trust.memory_prob(recall, labels), self.trust(recall)
        names = {number: source for source, number in self.sources.items()}
        explained = []
        for row, label in enumerate(labels.tolist()):
            slot = int(recall.slots[row, 0])
            number, place = divmod(int(self.memory.sources[slot]), PLACES) if slot >= 0 else (-1, 0)
            taught = self._texts.get(number, [])[max(place - 8, 0) : place + 1]
            explained.append(
                TaughtToken(
                    token=self._tokenizer.decode([label]),
                    network=float(says[row].exp()),
                    memory=float(memory[row]),
                    trust=float(trust[row]),
                    source=names.get(number),
                    taught=self._tokenizer.decode(taught),
                    similarity=float(recall.similarities[row, 0]),
                )
            )
        return explained

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all that was taught and fitted to one file."""
        texts = {source: self._texts[number] for source, number in self.sources.items()}
        held = self.memory.slots()
        tensors = {name: getattr(held, name) for name in ("keys", "values", "sources", "counts", "ages")}
        tensors |= {f"trust.{name}": tensor for name, tensor in self.trust.state_dict().items()}
        header = {"texts": json.dumps(texts), "numbers": json.dumps(self.sources)}
        storage.write(path, tensors | {"centre": self.centre}, kind="language memory", header=header)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Read what `save` wrote, in place of all that was taught here."""
        tensors, header = storage.read(path, kind="language memory")
        if tensors["centre"].shape != self.centre.shape:
            raise ValueError(
                f"{path} is of a model with hidden states of {len(tensors['centre'])} numbers; this one has "
                f"{len(self.centre)}. Attach it to the model that it was saved with."
            )
        order = tensors["ages"].sort(descending=True, stable=True).indices
        self.memory.reset()
        self.memory.write(*(tensors[name][order] for name in ("keys", "values", "sources", "counts")))
        self.trust.load_state_dict({name: tensors[f"trust.{name}"] for name in self.trust.state_dict()})
        self.centre = tensors["centre"].to(self.centre.device)
        texts = json.loads(header["texts"])
        self.sources = json.loads(header["numbers"])
        self._texts = {number: texts[source] for source, number in self.sources.items()}

    # ---- inside ----

    def _mix(self, head: nn.Module, inputs: tuple[Any, ...], logits: Tensor) -> Tensor | None:
        """Mix what the memory says into the logits: a hook of the output embedding."""
        hidden: Tensor = inputs[0]
        if not self._listens:
            self._heard = [hidden]
            return None
        if not len(self.memory):
            return None
        recall = self.memory(hidden.detach().float() - self.centre)
        return self.trust.mix(logits.float(), recall).to(logits.dtype)

    def _tokens(self, text: str, target: str | None = None) -> tuple[dict[str, Tensor], Tensor]:
        """The model's inputs, and what it is to say at each place, (n,)."""
        inputs = dict(self._tokenizer(text, return_tensors="pt").to(self.model.device))
        if not self.model.config.is_encoder_decoder:
            if target is not None:
                raise ValueError("A causal model has no target; teach it the whole text.")
            following = inputs["input_ids"].roll(-1, 1)
            following[:, -1] = IGNORED
            return inputs, following[0]
        if target is None:
            raise ValueError("A sequence-to-sequence model is taught an input and its output; pass target.")
        labels = self._tokenizer(text_target=target, return_tensors="pt")["input_ids"].to(self.model.device)
        return inputs | {"labels": labels}, labels[0]

    @torch.no_grad()
    def _run(self, inputs: dict[str, Tensor], labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return hidden states (n, size), labels (n,) and the network's log-probabilities of these, (n,)."""
        most = getattr(self.model.config, "max_position_embeddings", None) or PLACES
        if len(labels) > min(most, PLACES):
            raise ValueError(f"Got a text of {len(labels)} tokens; the model takes {most}. Teach it in parts.")
        was_training = self.model.training
        self.model.eval()
        self._listens = False
        try:
            logits = self.model(**inputs).logits[0]
        finally:
            self._listens = True
            self.model.train(was_training)
        [hidden] = self._heard
        there = labels != IGNORED
        labels = labels[there]
        says = logits[there].float().log_softmax(-1).gather(1, labels[:, None]).squeeze(1)
        return hidden[0][there].float(), labels, says


class Encoder(nn.Module):
    """An encoder of transformers as an embedder: texts to (n, size), for `rarecall.open` and `MemoryClassifier`.

    Args:
        model: such as AutoModel makes.
        tokenizer: of that model.
        pooling: "mean" of all tokens, the "first" (as BERT's), or the "last" (of a causal model).
        batch: texts that are embedded at once.
    """

    def __init__(self, model: Any, tokenizer: Any, *, pooling: str = "mean", batch: int = 32) -> None:
        super().__init__()
        if pooling not in ("mean", "first", "last"):
            raise ValueError(f"Encoder got pooling={pooling!r}; expected 'mean', 'first' or 'last'.")
        self.model, self.tokenizer, self.pooling, self.batch = model.eval(), tokenizer, pooling, batch
        self.tokenizer.padding_side = "right"

    def forward(self, texts: Sequence[str]) -> Tensor:
        parts = [self._embed(texts[start : start + self.batch]) for start in range(0, len(texts), self.batch)]
        return torch.cat(parts) if parts else torch.empty(0, self.model.config.hidden_size)

    def _embed(self, texts: Sequence[str]) -> Tensor:
        inputs = self.tokenizer(list(texts), padding=True, truncation=True, return_tensors="pt").to(self.model.device)
        hidden: Tensor = self.model(**inputs).last_hidden_state
        there = inputs["attention_mask"].to(hidden.dtype)
        if self.pooling == "mean":
            return (hidden * there[..., None]).sum(1) / there.sum(1, keepdim=True)
        last = inputs["attention_mask"].sum(1) - 1
        return hidden[:, 0] if self.pooling == "first" else hidden[torch.arange(len(hidden)), last]


def _halves(count: int) -> tuple[tuple[range, range], tuple[range, range]]:
    """The numbers of the first and the second half, in both orders."""
    first, second = range(count // 2), range(count // 2, count)
    return (first, second), (second, first)


def attach(model: Any, tokenizer: Any, **settings: Any) -> LanguageMemory:
    """Give a language model a memory; settings: as of `LanguageMemory`."""
    return LanguageMemory(model, tokenizer, **settings)
