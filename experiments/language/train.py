"""Training of a small GPT-2 on Europarl's English side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from experiments.language.text import read_documents, train_tokenizer
from experiments.training import CHECKPOINT, Pace, go, read_checkpoint, schedule, write_checkpoint

PIECES, LENGTH, SIZE, LAYERS, HEADS = 6000, 128, 256, 3, 4
BATCH, RATE, WARM_UP = 24, 2e-3, 0.03


def make_model(pieces: int = PIECES) -> Any:
    """Return a new GPT-2 of transformers."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=pieces, n_positions=LENGTH, n_embd=SIZE, n_layer=LAYERS, n_head=HEADS, bos_token_id=0, eos_token_id=0
    )
    return GPT2LMHeadModel(config)


class Run:
    """The state of a training run."""

    def __init__(self, tokens: Tensor, steps: int, seed: int) -> None:
        torch.manual_seed(seed)
        self.model, self.tokens = make_model(), tokens
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=RATE, betas=(0.9, 0.98), weight_decay=0.01)
        self.run = {"steps": steps, "seed": seed}
        self.step = 0

    def advance(self) -> dict[str, float]:
        """Run one step."""
        rate = RATE * schedule(self.step / self.run["steps"], WARM_UP)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        starts = torch.randint(len(self.tokens) - LENGTH, (BATCH, 1))
        batch = self.tokens[starts + torch.arange(LENGTH)].long()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = self.model(input_ids=batch, labels=batch).loss
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.step += 1
        return {"loss": loss.item(), "rate": rate}

    def write(self, path: Path) -> None:
        """Write a checkpoint."""
        tensors = {f"model/{name}": tensor for name, tensor in self.model.named_parameters()}
        write_checkpoint(path, tensors, self.optimizer, {"run": self.run, "step": self.step})

    def read(self, path: Path) -> None:
        """Go on from a checkpoint."""
        parts, header = read_checkpoint(path, self.run, self.optimizer)
        self.step = header["step"]
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(parts["model"][name])


def train(data: Path, out: Path, steps: int, seed: int) -> None:
    """Train, or go on training; the model goes to out/model in transformers' own format."""
    out.mkdir(parents=True, exist_ok=True)
    documents = read_documents(data).train
    pieces = train_tokenizer(documents[::10], PIECES)
    numbers = [token for document in documents for token in pieces("\n".join(document))["input_ids"] + [0]]
    run = Run(torch.tensor(numbers, dtype=torch.int32), steps, seed)
    if (out / CHECKPOINT).is_file():
        run.read(out / CHECKPOINT)
    if go(run, steps, run.advance, out, Pace(save=100), title="language model"):
        run.model.save_pretrained(out / "model")
        pieces.save_pretrained(out / "model")
