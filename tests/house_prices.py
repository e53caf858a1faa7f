"""A table of houses, and the command line run on it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

SMALL = ("--points", "16", "--steps", "50")


def houses(count: int, seed: int) -> pa.Table:
    """Prices that depend on a size, a city, a flag and a date."""
    rng = np.random.default_rng(seed)
    size = rng.uniform(30, 200, count).round(1)
    city = rng.choice(["Oslo", "Paris", "Rome"], count)
    garden = rng.random(count) < 0.5
    sold = np.datetime64("2020-01-01") + rng.integers(0, 1000, count)
    factor = np.where(city == "Oslo", 1.0, np.where(city == "Paris", 1.5, 2.0))
    price = factor * size + 30 * garden + rng.normal(0, 3, count)
    return pa.table(
        {
            "id": [f"h{i:04}" for i in range(count)],
            "size": size,
            "city": city,
            "garden": garden,
            "sold": pa.array(sold),
            "planet": ["Earth"] * count,
            "price": price,
            "tax": 0.1 * price,
            "zero": [0] * count,
        }
    )


def as_subprocess(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "softki", *arguments],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def assert_same_figures(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one["coverage"] == other["coverage"]
    for key in ("rmse", "mae", "r2", "nll"):
        assert one[key] == pytest.approx(other[key], rel=1e-9)
