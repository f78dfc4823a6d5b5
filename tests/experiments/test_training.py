from __future__ import annotations

import pytest

from rarecall.experiments.training import schedule


def test_the_learning_rate_rises_and_falls_to_nothing() -> None:
    assert schedule(0.0, 0.1) == pytest.approx(0.02)
    assert schedule(0.1, 0.1) == pytest.approx(1.0)
    assert schedule(0.55, 0.1) == pytest.approx(0.5)
    assert schedule(1.0, 0.1) == pytest.approx(0.0)
