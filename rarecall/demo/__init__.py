"""Handwriting that needs no download, and the demo that learns to remember it."""
