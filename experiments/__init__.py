"""Recipes for the paper's tables and the measurements beyond them, one package per table.

They are not installed; run them from a checkout: `python -m experiments.omniglot --help`.
"""
