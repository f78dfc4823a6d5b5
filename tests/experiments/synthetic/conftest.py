"""A task that is small enough for a test."""

from __future__ import annotations

from experiments.synthetic.task import Task

TASK = Task(symbols=60, digits=3, shortest=4, longest=7, training=100, test=40)
