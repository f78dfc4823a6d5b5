"""The paper's first table, Omniglot, and four life-long measurements that the paper does not have."""
