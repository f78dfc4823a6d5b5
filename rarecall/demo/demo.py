"""rarecall demo

A small network with a memory learns on made-up characters to tell which drawings are of one character. Then it meets a
hundred characters that it has never seen, and is trained no more; see `rarecall.demo.meeting`.
"""

from __future__ import annotations

from pathlib import Path

import torch
from tqdm import tqdm

from rarecall import Memory
from rarecall.demo.handwriting import Alphabet
from rarecall.demo.meeting import SHOWINGS, Meeting, meet
from rarecall.models.convnet import ConvNet

KNOWN = 1000  # characters to train on
NEW = 100  # characters to meet afterwards
WAYS, DRAWINGS = 32, 4  # an episode of training: so many characters, each shown so often
QUESTIONS = 10  # drawings of each new character that it is asked about, always the same ones, and never shown
KEY_SIZE = 128


def run(out: Path, seed: int = 0, steps: int = 700) -> Meeting:
    """Trains for `steps` episodes, teaches, asks, prints the table and writes the picture to `out` as a PNG."""
    if not out.absolute().parent.is_dir():
        raise ValueError(f"run got out={out}, but there is no folder {out.parent}. Make it first.")
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    alphabet = Alphabet(KNOWN + NEW, seed=seed)
    network = ConvNet(KEY_SIZE, channels=(16, 32), dropout=0.0)
    # Convolutions of few channels run up to twice as fast on a CPU when the channels of a pixel lie side by side.
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's types do not know of it
    memory = Memory(KEY_SIZE, capacity=4096, k=32)

    # 1. Learn to remember. In an episode an empty memory meets some characters, one drawing of each at a time.
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=max(steps, 1))
    progress = tqdm(range(steps), desc=f"training on {KNOWN} characters", unit="episode")
    loss_so_far = accuracy_so_far = 0.0
    for step in progress:
        classes = torch.randperm(KNOWN, generator=generator)[:WAYS]
        drawings = alphabet.draw(classes.repeat(DRAWINGS), generator)  # (DRAWINGS * WAYS, 1, 28, 28)
        queries = network(drawings).view(DRAWINGS, WAYS, KEY_SIZE)
        memory.reset()
        losses, right = [], []
        for query in queries:
            recall = memory(query)
            losses.append(memory.loss(recall, classes))
            right.append((recall.value == classes).float().mean())
            memory.update(recall, classes)
        # The first drawings met an empty memory: nothing was asked of them.
        loss, accuracy = torch.stack(losses[1:]).mean(), torch.stack(right[1:]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        rate = max(0.02, 1 / (step + 1))
        loss_so_far += rate * (loss.item() - loss_so_far)
        accuracy_so_far += rate * (accuracy.item() - accuracy_so_far)
        progress.set_postfix(loss=f"{loss_so_far:.3f}", accuracy=f"{accuracy_so_far:.1%}", refresh=False)

    # 2. Meet new characters, for life: from here on nothing is trained, and the memory is never reset again.
    memory.reset()
    generator.manual_seed(seed + 1)  # however long the training was, the questions are the same
    new = torch.arange(KNOWN, KNOWN + NEW)
    album = alphabet.draw(new.repeat(max(SHOWINGS)), generator).unflatten(0, (-1, NEW))
    questions = alphabet.draw(new.repeat(QUESTIONS), generator).unflatten(0, (-1, NEW))
    return meet(memory, network, album, questions, out, generator)
