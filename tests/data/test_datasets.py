from __future__ import annotations

import numpy as np
import pytest

from softki.data import ski_split_indices


@pytest.mark.parametrize("count", [9, 100, 45_730])
def test_the_split_for_ski(count: int) -> None:
    train, test = ski_split_indices(count, seed=3)
    assert len(train) == len(test) == 4 * count // 9
    assert len(np.union1d(train, test)) == 2 * len(train)
    assert not np.array_equal(train, ski_split_indices(count, seed=4)[0])
