"""Recipe of our network: the memory's loss, a softmax over all training classes, and one over the batch.

The memory is kept for the whole run and holds about two keys of every training class, so the negative of the margin
loss is the hardest of thousands. On its own, this loss collapses the keys at the start; the cosine softmax (CosFace,
Wang et al. 2018) and the softmax over the batch (NCA, Goldberger et al. 2004) separate them from the first step.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments.omniglot.distort import distort
from experiments.omniglot.episodes import Learner, MemoryLearner
from experiments.omniglot.recipe import Recipe
from rarecall import Memory
from rarecall.models.residual import ResidualNet

KEY_SIZE = 256


class Ours(Recipe):
    """See the module.

    Args:
        classes: number of training classes.
        memory_weight: weight of the memory's margin loss.
        batch_weight: weight of the softmax over the batch.
    """

    ways, shows = 64, 2
    steps = 15_000
    learning_rate = 3e-3
    warm_up = 0.05
    weight_decay = 1e-2

    scale = 24.0  # inverse temperature of the softmax over the classes
    class_margin = 0.15  # margin of the correct class
    batch_scale = 16.0  # inverse temperature of the softmax over the batch
    memory_from = 0.2  # fraction of the run; before that, keys change too fast to be stored

    def __init__(self, classes: int, *, memory_weight: float = 4.0, batch_weight: float = 1.0) -> None:
        super().__init__()
        self.memory_weight, self.batch_weight = memory_weight, batch_weight
        self.network = self.make_network()
        self.memory = Memory(KEY_SIZE, capacity=2 * classes, k=32)
        self.class_keys = nn.Parameter(0.5 * F.normalize(torch.randn(classes, KEY_SIZE), dim=1))

    def make_network(self) -> nn.Module:
        """Return the network that maps drawings to queries."""
        return ResidualNet(KEY_SIZE, widths=(32, 96, 256))

    def loss(
        self, drawings: Tensor, target: Tensor, source: Tensor, progress: float
    ) -> tuple[Tensor, dict[str, float]]:
        query = F.normalize(self.query(distort(drawings)), dim=1)

        cosines = query @ F.normalize(self.class_keys, dim=1).T  # (n, classes)
        margin = self.class_margin * min(1.0, progress / 0.3)
        lowered = cosines.scatter_add(1, target[:, None], torch.full_like(cosines[:, :1], -margin))
        by_class = F.cross_entropy(self.scale * lowered, target)

        itself = torch.eye(len(query), dtype=torch.bool)
        same = (target[:, None] == target) & ~itself
        logits = (self.batch_scale * query @ query.T).masked_fill(itself, -torch.inf)
        by_batch = (logits.logsumexp(1) - logits.masked_fill(~same, -torch.inf).logsumexp(1)).mean()

        loss = by_class + self.batch_weight * by_batch
        figures = {
            "by_class": by_class.item(),
            "by_batch": by_batch.item(),
            "class_accuracy": (cosines.argmax(1) == target).float().mean().item(),
        }
        if progress >= self.memory_from and self.memory_weight > 0:
            # Exclude the key that the same drawing wrote an epoch ago.
            recall = self.memory(query, exclude=source)
            by_memory = self.memory.loss(recall, target)
            loss = loss + self.memory_weight * min(1.0, (progress - self.memory_from) / 0.1) * by_memory
            self.memory.update(recall, target, source=source)
            figures |= {
                "by_memory": by_memory.item(),
                "memory_accuracy": (recall.value == target).float().mean().item(),
            }
        return loss, figures

    def learner(self, network: nn.Module) -> Learner:
        return MemoryLearner(network, self.memory.key_size)
