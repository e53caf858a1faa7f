from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softki.exceptions import InvalidInputError
from softki.statistics import Features, GramStatistics, SquareRootStatistics, Statistics

import dense
from dense import F64, relative_error

FORMS = [GramStatistics, SquareRootStatistics]


def features(n: int, m: int, targets: int, noisy_rows: bool, seed: int = 0) -> Features:
    p = dense.problem(n, m, targets=targets, noisy_rows=noisy_rows, seed=seed)
    return Features(p.S, p.Y, p.noise_std)


def take(block: Features, index: torch.Tensor) -> Features:
    return Features(*(None if part is None else part[index] for part in block))


def assert_same(left: Statistics, right: Statistics) -> None:
    assert left.count == right.count
    assert left.log_noise == pytest.approx(right.log_noise, abs=1e-12)
    assert left.targets == right.targets
    for name in ("gram", "cross", "target_square"):
        torch.testing.assert_close(
            getattr(left, name), getattr(right, name), rtol=1e-11, atol=1e-12
        )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("noisy_rows", [False, True])
def test_statistics_are_what_they_say(form: type[Statistics], noisy_rows: bool) -> None:
    block = features(20, 5, 2, noisy_rows)
    sigma = torch.ones(20, dtype=F64) if block.noise_std is None else block.noise_std
    S, Y = block.weights / sigma[:, None], block.targets / sigma[:, None]
    statistics = form.from_block(block)
    assert (statistics.count, statistics.targets) == (20, 2)
    torch.testing.assert_close(statistics.gram, S.T @ S)
    torch.testing.assert_close(statistics.cross, S.T @ Y)
    torch.testing.assert_close(statistics.target_square, (Y * Y).sum(0))
    assert statistics.log_noise == pytest.approx(float((sigma**2).log().sum()))


@given(
    form=st.sampled_from(FORMS),
    n=st.integers(1, 30),
    m=st.integers(1, 8),
    targets=st.integers(1, 3),
    noisy_rows=st.booleans(),
    seed=st.integers(0, 1000),
    data=st.data(),
)
def test_order_and_splitting_do_not_matter(
    form: type[Statistics],
    n: int,
    m: int,
    targets: int,
    noisy_rows: bool,
    seed: int,
    data: st.DataObject,
) -> None:
    block = features(n, m, targets, noisy_rows, seed)
    order = torch.tensor(data.draw(st.permutations(range(n))))
    cuts = sorted(data.draw(st.lists(st.integers(1, max(1, n - 1)), max_size=4)))
    parts = [part for part in torch.tensor_split(order, cuts) if len(part)]
    assert_same(form.from_blocks(take(block, part) for part in parts), form.from_block(block))


def test_combining_is_associative_and_both_forms_agree() -> None:
    blocks = [features(n, 4, 1, True, seed=n) for n in (3, 9, 1)]
    for form in FORMS:
        a, b, c = map(form.from_block, blocks)
        assert_same((a + b) + c, a + (b + c))
    assert_same(*(form.from_blocks(blocks) for form in FORMS))


def test_the_square_root_form_stays_small() -> None:
    statistics = SquareRootStatistics.from_blocks(
        features(50, 4, 2, False, seed) for seed in range(5)
    )
    assert statistics.factor.shape == (6, 6)
    assert SquareRootStatistics.from_block(features(3, 4, 2, False)).factor.shape == (3, 6)


def test_the_square_root_form_keeps_digits_that_a_gram_matrix_loses() -> None:
    """Two nearly equal columns: R sees their difference of 1e-10, G does not."""
    S = torch.rand(30, 2, dtype=F64)
    S[:, 1] = S[:, 0] + 1e-10 * torch.rand(30, dtype=F64)
    statistics = SquareRootStatistics.from_block(Features(S, torch.zeros(30, 1, dtype=F64)))
    values = torch.linalg.svdvals(statistics.weights_factor)[:2]
    assert relative_error(values[1], torch.linalg.svdvals(S)[1]) < 1e-4
    gram = torch.linalg.eigvalsh(S.T @ S).clamp_min(0).sqrt()
    assert relative_error(gram[0], torch.linalg.svdvals(S)[1]) > 0.1


def test_float32_weights_are_accumulated_in_float64() -> None:
    block = features(20, 5, 1, False)
    single = Features(block.weights.float(), block.targets.float())
    for form in FORMS:
        assert form.from_block(single).gram.dtype == F64


def test_no_rows_is_an_error() -> None:
    with pytest.raises(InvalidInputError, match="no rows"):
        GramStatistics.from_blocks([])


def test_only_statistics_of_the_same_kind_add() -> None:
    square_root = SquareRootStatistics.from_block(features(20, 4, 2, False))
    for other in (
        GramStatistics.from_block(features(20, 4, 2, False)),
        SquareRootStatistics.from_block(features(20, 5, 1, False)),
    ):
        with pytest.raises(InvalidInputError, match=r"cannot add .* to SquareRootStatistics"):
            square_root + other
