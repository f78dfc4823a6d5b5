"""The baselines of the paper's table, one file per model."""
