import pytest
import torch
from hypothesis import settings

# Tests say the same today and tomorrow, on a slow machine and on a fast one.
settings.register_profile("rarecall", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("rarecall")

# The tensors of most tests are so small that a second thread only waits for the first.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
