"""The paper's second table: a task that cannot be solved without a life-long memory."""
