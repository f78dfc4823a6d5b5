"""One folder a table of the paper: data, baselines, train, evaluate."""
