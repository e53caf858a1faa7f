from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def data_folder() -> Path:
    """The folder of real data sets; the test is skipped where there is none."""
    folder = os.environ.get("SOFTKI_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("no data sets here: SOFTKI_DATA does not name a folder")
    return Path(folder)
