"""python -m experiments.translation fit --weights runs/memory/network.safetensors --refill 3003 --out FILE

Fit the trust on the development set. The network knows its training text by heart and has little need of a memory
there; text that it has not seen tells how far to trust one.

The memory is filled as for `evaluate`. The odd lines of the development set are asked, then the even ones are shown and
the odd ones asked again, each after a prefix that is in part the network's own (see `frozen`).
"""

from __future__ import annotations

from typing import cast

import torch
from tqdm import tqdm

from experiments.translation.evaluate import fill
from experiments.translation.frozen import Pieces, decode
from experiments.translation.networks import Trained, make_memory
from experiments.translation.pairs import encode
from experiments.translation.text import Text
from experiments.translation.translator import LONGEST, PASSES, show
from rarecall.integrations.listening import Asked
from rarecall.models.gnmt import GNMT
from rarecall.recall import Recall

STEPS, RATE, BATCH = 400, 0.01, 1024  # of Adam; the rate falls to 0
TOKENS = 1280  # target pieces that are decoded at once


def fit(
    trained: Trained, development: Text, training: Text, *, refill: int, seed: int = 0, quiet: bool = False
) -> float:
    """Fit the trust of a network with memory. Its memory is empty afterwards.

    Args:
        trained: the network.
        development: text that it has not seen.
        training: its training text, to fill the memory.
        refill: how many of the last training pairs the memory is filled with; 0 for none.
        seed: random seed.
        quiet: show no progress bars.

    Returns:
        By how much the memory raises the log-likelihood of a piece, after the even lines are shown.

    Raises:
        ValueError: if it has no learned query or no trust.
    """
    network = trained.network.eval()
    memory, trust = network.memory, network.decoder.trust
    if memory is None or trust is None or network.decoder.ask is None:
        raise ValueError("Only a network with a memory, --ask and --trust can be fitted.")
    generator = torch.Generator().manual_seed(seed)
    if refill:
        fill(trained, training, refill, quiet=quiet)
    odd = encode(development.of(range(1, len(development), 2)), trained.vocabulary)
    pieces = decode(network, odd, odd.usable(LONGEST).nonzero().squeeze(1), TOKENS, generator)
    before = _ask(network, pieces)
    even = encode(development.of(range(0, len(development), 2)), trained.vocabulary)
    show(network, even, first_id=len(training), passes=PASSES, quiet=quiet)
    asked = Asked.join([before, _ask(network, pieces)])
    network.decoder.memory = make_memory(network.units, memory.capacity)

    def gain(of: Asked) -> torch.Tensor:
        return -of.says.mean() - trust.loss(of.says, cast(Recall, of), of.right).mean()

    trust.requires_grad_(True)
    optimizer = torch.optim.Adam(trust.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, STEPS)
    with torch.autocast("cpu", enabled=False):
        for _ in tqdm(range(STEPS), desc="fitting", disable=quiet):
            some = torch.randint(len(asked.says), (BATCH,), generator=generator)
            optimizer.zero_grad()
            (-gain(Asked(*(column[some] for column in asked)))).backward()
            optimizer.step()
            schedule.step()
        trust.requires_grad_(False)
        with torch.no_grad():
            return float(gain(Asked(*(column[len(before.says) :] for column in asked))))


@torch.no_grad()
def _ask(network: GNMT, pieces: Pieces) -> Asked:
    """Return what the trust reads when the pieces are asked."""
    assert network.memory is not None
    assert network.decoder.ask is not None
    parts = []
    for read, says, values in zip(
        *(of.split(TOKENS) for of in (pieces.asked, pieces.says, pieces.values)), strict=True
    ):
        parts.append(Asked.of(says, values, network.memory(network.decoder.ask(read))))
    return Asked.join(parts)
