"""What the experiments on frozen embedders share: embeddings that are kept, baselines, streams."""
