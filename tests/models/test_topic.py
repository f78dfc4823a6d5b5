from __future__ import annotations

import torch
from torch.nn import functional as F

from rarecall.models.topic import Topic


def test_the_cosine_of_two_topics_is_about_that_of_the_tf_idf_vectors() -> None:
    torch.manual_seed(0)
    sentences = torch.randint(50, (200, 12)) * torch.randint(2, (200, 12))  # 0 is in all of them
    topic = Topic(50, 4096)
    topic.fit(sentences.flatten(), torch.arange(0, 2401, 12))
    frequency = torch.stack([(sentences == piece).any(1).sum() for piece in range(50)])
    torch.testing.assert_close(topic.rarity, (201 / (frequency + 1)).log())
    vectors = F.normalize(F.one_hot(sentences, 50).sum(1) * topic.rarity, dim=-1)
    topics = topic(sentences)
    torch.testing.assert_close(topics.norm(dim=-1), torch.ones(200))
    torch.testing.assert_close(topics @ topics.T, vectors @ vectors.T, rtol=0, atol=0.08)


def test_the_same_in_every_process_and_version() -> None:
    assert Topic(6, 4).signs.tolist() == [
        [-1, 1, 1, -1],
        [1, 1, 1, 1],
        [1, 1, 1, -1],
        [-1, 1, -1, -1],
        [-1, -1, -1, 1],
        [-1, 1, 1, -1],
    ]
    assert list(Topic(6, 4).state_dict()) == ["rarity"]
