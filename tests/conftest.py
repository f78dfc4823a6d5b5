from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import settings

from rarecall import Memory, backend
from tests.helpers import BACKENDS, using

# Tests say the same today and tomorrow, on a slow machine and on a fast one.
settings.register_profile("rarecall", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("rarecall")

# The tensors of most tests are so small that a second thread only waits for the first.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(params=BACKENDS)
def new_memory(request: pytest.FixtureRequest) -> Iterator[Callable[..., Memory]]:
    """Makes memories; what is asked of them is asked of every backend. Their "auto" never searches exactly."""
    if request.param == "native" and backend.extension() is None:
        pytest.skip("the extension was not built")
    with using(request.param) as make:
        yield make
