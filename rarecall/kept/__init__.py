"""A classifier in a folder: taught one example at a time, asked why, made to forget, and kept for years."""

from rarecall.kept.classifier import KeptClassifier, open
from rarecall.kept.records import Answer, Evidence, Line, Taught

__all__ = ["Answer", "Evidence", "KeptClassifier", "Line", "Taught", "open"]
