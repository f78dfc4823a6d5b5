"""Kinds of arguments, checked as they are read."""

from __future__ import annotations

import argparse


def count(text: str) -> int:
    """1, 2, 3, ..."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a count; expected 1, 2, 3, ...")
    return int(text)


def share(text: str) -> float:
    """From 0 to 1."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share; expected a number from 0 to 1")
    return number
