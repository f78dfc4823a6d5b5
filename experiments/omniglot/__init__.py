"""The paper's first table, Omniglot, and the life-long measurements that it lacks."""
