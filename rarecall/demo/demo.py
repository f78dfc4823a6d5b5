"""rarecall demo

Train a small network with a memory on generated characters to recognise drawings of the same character. Then, without
further training, test it on a hundred characters that it has never seen; see `rarecall.demo.one_shot`.
"""

from __future__ import annotations

from pathlib import Path

import torch
from tqdm import tqdm

from rarecall import Memory
from rarecall.demo.handwriting import Alphabet
from rarecall.demo.one_shot import SHOWINGS, Report, show_and_ask
from rarecall.models.convnet import ConvNet

KNOWN = 1000  # training characters
NEW = 100  # new characters for the test
STRANGERS = 100  # characters that it is asked about and never shown
WAYS, DRAWINGS = 32, 4  # a training episode: WAYS characters, DRAWINGS drawings of each
QUESTIONS = 10  # test drawings of each new character; they are never written to the memory
KEY_SIZE = 128


def run(out: Path, seed: int = 0, steps: int = 700) -> Report:
    """Train for `steps` episodes, test on new characters, print a table and write an image to `out` as PNG."""
    if not out.absolute().parent.is_dir():
        raise ValueError(f"run got out={out}, but there is no folder {out.parent}. Create it first.")
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    alphabet = Alphabet(KNOWN + NEW + STRANGERS, seed=seed)
    network = ConvNet(KEY_SIZE, channels=(16, 32), dropout=0.0)
    # On a CPU, convolutions with few channels are up to twice as fast in channels-last format.
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing in torch's stubs
    memory = Memory(KEY_SIZE, capacity=4096, k=32)

    # 1. Train. An episode starts with an empty memory and presents WAYS characters, one drawing of each at a time.
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
        # The first drawings met an empty memory, so they contribute no loss.
        loss, accuracy = torch.stack(losses[1:]).mean(), torch.stack(right[1:]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        rate = max(0.02, 1 / (step + 1))
        loss_so_far += rate * (loss.item() - loss_so_far)
        accuracy_so_far += rate * (accuracy.item() - accuracy_so_far)
        progress.set_postfix(loss=f"{loss_so_far:.3f}", accuracy=f"{accuracy_so_far:.1%}", refresh=False)

    # 2. Test on new characters. From here on nothing is trained and the memory is never reset.
    memory.reset()
    generator.manual_seed(seed + 1)  # the test drawings do not depend on `steps`
    new = torch.arange(KNOWN, KNOWN + NEW)
    album = alphabet.draw(new.repeat(max(SHOWINGS)), generator).unflatten(0, (-1, NEW))
    questions = alphabet.draw(new.repeat(QUESTIONS), generator).unflatten(0, (-1, NEW))
    strangers = alphabet.draw(torch.arange(KNOWN + NEW, KNOWN + NEW + STRANGERS), generator)
    return show_and_ask(memory, network, album, questions, out, generator, strangers)
