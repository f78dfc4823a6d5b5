"""The paper's second table: a synthetic task that requires a life-long memory."""
