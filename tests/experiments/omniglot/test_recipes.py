from __future__ import annotations

import pytest
import torch
from torch import Tensor

from experiments.omniglot.baselines.mann import Mann, MannNet
from experiments.omniglot.baselines.matching import Matching, MatchingFullContext
from experiments.omniglot.baselines.pixels import Pixels
from experiments.omniglot.baselines.siamese import Siamese
from experiments.omniglot.ours import Ours
from experiments.omniglot.paper import (
    Paper,
    PaperBatchNorm,
    PaperDistorted,
    PaperWithSoftmax,
    convnet,
    even_start,
)
from experiments.omniglot.recipe import Recipe

RECIPES = [Siamese, Matching, MatchingFullContext, Mann, Ours, Paper, PaperDistorted, PaperBatchNorm, PaperWithSoftmax]


def batch(ways: int, shows: int) -> tuple[Tensor, Tensor, Tensor]:
    """Drawings, targets and sources; a class is a bar at a place of its own."""
    drawings = 0.1 * torch.rand(ways * shows, 1, 28, 28)
    for number in range(ways * shows):
        drawings[number, 0, :, number // shows + 2 : number // shows + 6] += 0.8
    return drawings, torch.arange(ways).repeat_interleave(shows), torch.arange(ways * shows)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_loss_is_finite_and_reaches_every_parameter(recipe: type[Recipe]) -> None:
    model = recipe(20)
    # Late in a run, where the memory takes part; the second time it has something to recall.
    for _ in range(2):
        loss, figures = model.loss(*batch(10, model.shows), progress=0.9)
    assert loss.isfinite()
    assert all(torch.tensor(figure).isfinite() for figure in figures.values())
    loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("recipe", [Siamese, Matching, Ours])
def test_a_few_steps_on_one_batch_lower_the_loss(recipe: type[Recipe]) -> None:
    model = recipe(20)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    for step in range(12):
        torch.manual_seed(0)  # the same distortions
        loss, _ = model.loss(*batch(6, model.shows), progress=0.0 if step == 0 else 0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[1]


def test_the_nearest_pixels_answer() -> None:
    drawings, target, _ = batch(5, 3)
    encoded = Pixels().encode(drawings).unflatten(0, (5, 3))
    answers = Pixels().answer(encoded[:, :2], encoded[:, 2])
    assert torch.equal(answers, target[::3])


def test_mann_remembers_within_an_episode_only() -> None:
    network = MannNet(labels=5)
    learner = Mann(1).learner(network)
    shown, asked = torch.rand(5, 2, 400), torch.rand(7, 400)
    first = learner.answer(shown, asked)
    learner.answer(torch.rand(5, 2, 400), asked)
    assert torch.equal(learner.answer(shown, asked), first)
    assert learner.most_ways == 5
    with pytest.raises(ValueError, match="knows 5 labels; 6-way needs one trained with more"):
        learner.answer(torch.rand(6, 1, 400), asked)


def test_mann_writes_where_it_read_or_where_nothing_is() -> None:
    network = MannNet(labels=2, slots=6, width=3, heads=2)
    seen = network.see(torch.randn(1, 400), torch.zeros(1, 2))
    _, state = network(seen, network.start(1))
    written = (state.memory[0].abs().sum(1) > 1e-3).sum()
    assert 1 <= written <= 3


def test_mann_starts_with_half_of_its_heads_adding_the_label_where_the_drawing_was_written() -> None:
    torch.manual_seed(0)
    network, drawings = MannNet(), torch.randn(2, 1, 400)
    nothing, label = torch.zeros(1, 5), torch.tensor([[0.0, 1.0, 0.0, 0.0, 0.0]])
    _, first = network(network.see(drawings[0], nothing), network.start(1))
    place = first.reading[0].argmax(1)  # (4,)
    assert torch.equal(place[:2], place[2:])
    memories = []
    for before in (nothing, label):
        _, second = network(network.see(drawings[1], before), first)
        memories.append(second.memory[0])
    changed = (memories[1] - memories[0]).norm(dim=1).topk(2).indices
    assert set(changed.tolist()) == set(place[:2].tolist())


def test_mann_has_an_even_number_of_heads() -> None:
    with pytest.raises(ValueError, match="got 3 heads; expected an even number"):
        MannNet(heads=3)


def test_the_mann_s_episodes_grow() -> None:
    recipe = Mann(1)
    assert recipe.active(0.0) == (160, 3)
    assert recipe.active(1.0) == (160, 6)


def test_the_paper_s_window_grows_while_the_loss_is_low_and_shrinks_while_it_is_high() -> None:
    recipe = Paper(100)
    for _ in range(500):
        recipe.pace(0.01)
    assert recipe.window == 100
    for _ in range(500):
        recipe.pace(0.2)
    assert recipe.window == recipe.first_window


def test_classes_that_left_the_paper_s_window_are_forgotten() -> None:
    recipe = Paper(30)
    met = set()
    for step in range(200):
        chosen = recipe.choose(30, progress=recipe.curriculum * step / 200)
        assert len(set(chosen.tolist())) == len(chosen) == recipe.first_window
        assert set(recipe.memory.values[recipe.memory.values >= 0].tolist()) <= set(chosen.tolist())
        recipe.memory.update(recipe.memory(torch.randn(len(chosen), 256)), chosen)
        met |= set(chosen.tolist())
    assert met == set(range(30))
    assert torch.equal(recipe.order.sort().values, torch.arange(30))


def test_after_the_curriculum_the_paper_s_window_is_fixed_and_dropout_is_higher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Paper, "late_window", 20)
    recipe = Paper(30)
    dropout = next(layer for layer in recipe.network.modules() if isinstance(layer, torch.nn.Dropout))
    for progress, window, probability in ((0.3, recipe.first_window, 0.1), (0.4, 20, 0.5), (0.9, 20, 0.5)):
        chosen = recipe.choose(30, progress)
        drawings, target, source = batch(len(chosen), 2)
        before = recipe.smoothed.clone()
        recipe.loss(drawings, chosen[target], source, progress)
        assert len(chosen) == window
        assert dropout.p == probability
        assert (recipe.smoothed == before) == (progress > recipe.curriculum)  # not paced any more


def test_an_even_start_has_outputs_of_mean_0_and_spread_1() -> None:
    network, drawings = convnet(), batch(20, 2)[0]
    even_start(network, drawings)
    with torch.no_grad():
        output = network(drawings)
    assert output.mean(0).abs().max() < 1e-3
    assert abs(output.std(0).mean() - 1) < 1e-2


def test_drawings_of_another_size_are_told() -> None:
    for recipe in (Siamese, Matching, Ours, Paper):
        with pytest.raises(ValueError, match=r"28, 28\)"):
            recipe(1).network(torch.zeros(2, 1, 32, 32))
