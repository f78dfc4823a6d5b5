"""What the paper's table compares with: each model in one file."""
