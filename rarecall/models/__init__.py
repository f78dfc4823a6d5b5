"""The paper's networks, each in one file."""
