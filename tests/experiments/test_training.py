from __future__ import annotations

import platform
import resource

import pytest
import torch

from experiments.training import keep_freed_memory, schedule


def test_the_learning_rate_rises_and_falls_to_nothing() -> None:
    assert schedule(0.0, 0.1) == pytest.approx(0.02)
    assert schedule(0.1, 0.1) == pytest.approx(1.0)
    assert schedule(0.55, 0.1) == pytest.approx(0.5)
    assert schedule(1.0, 0.1) == pytest.approx(0.0)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_what_a_step_freed_is_taken_again_without_the_kernel() -> None:
    assert keep_freed_memory()
    faults = []
    for _ in range(20):  # glibc keeps up to seven cuttings of a kind apart, and what they were cut from is too short
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.ones(16_000_000)  # 64 MB are 15,625 pages
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    assert faults[-1] < 1_000, faults
