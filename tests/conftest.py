from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import torch

# The workers of `make test` have one thread each, which they take from this variable.
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))

# How long an example takes says nothing where workers share the processors.
hypothesis.settings.register_profile("softki", deadline=None)
hypothesis.settings.load_profile("softki")


def pytest_collection_finish() -> None:
    """Let collections of garbage pass over all that was imported, a million objects or so."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Two threads in torch, however many the other tests have."""
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def data_folder() -> Path:
    """The folder of real data sets; the test is skipped where there is none."""
    folder = os.environ.get("SOFTKI_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("no data sets here: SOFTKI_DATA does not name a folder")
    return Path(folder)
