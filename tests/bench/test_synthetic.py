from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from softki.bench.synthetic import _directions, large_d, large_n, ricker, ricker_wavelet
from softki.exceptions import InvalidInputError


@pytest.mark.parametrize("make", [ricker, large_n, large_d])
def test_seed_and_noise(make: Callable[..., tuple[np.ndarray, np.ndarray]]) -> None:
    x, y = make(2000, seed=1, noise=0.0)
    again, _ = make(2000, seed=1, noise=0.0)
    other, _ = make(2000, seed=2, noise=0.0)
    np.testing.assert_array_equal(x, again)
    assert not np.array_equal(x, other)
    same, noisy = make(2000, seed=1, noise=0.2)
    np.testing.assert_array_equal(x, same)
    assert (noisy - y).std() / y.std() == pytest.approx(0.2, rel=0.1)


def test_the_ricker_wavelet_is_round_and_has_no_mean() -> None:
    angle = np.linspace(0, 6, 20)
    ring = 1.7 * np.column_stack([np.cos(angle), np.sin(angle)])
    np.testing.assert_allclose(ricker_wavelet(ring), ricker_wavelet(np.array([0.0, 1.7])))
    axis = np.linspace(-8, 8, 401)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1)
    assert abs(ricker_wavelet(grid).sum()) * 0.04**2 < 1e-6
    assert ricker_wavelet(grid).max() == ricker_wavelet(np.zeros(2)) == 1


@pytest.mark.parametrize("columns", [4, 10, 1000])
def test_directions_are_orthonormal(columns: int) -> None:
    W = _directions(columns)
    np.testing.assert_allclose(W.T @ W, np.eye(3), atol=1e-12)
    with pytest.raises(InvalidInputError, match="columns"):
        _directions(3)


def test_three_directions_say_it_all() -> None:
    """The rest of x does not matter for large_n, and hardly moves it for large_d."""
    x, y = large_n(1000, noise=0.0)
    u = x @ _directions(10)
    np.testing.assert_allclose(y, np.sin(2 * u[:, 0]) + u[:, 1] * np.cos(u[:, 2]))

    x, y = large_d(1000, columns=300, noise=0.0)
    u = x @ _directions(300) / np.sqrt(100)
    guess = np.sin(2 * u[:, 0]) + u[:, 1] * np.cos(u[:, 2])
    assert np.corrcoef(guess, y)[0, 1] > 0.99
    assert (x**2).mean() == pytest.approx(1 + 1 / 9, rel=0.1)
