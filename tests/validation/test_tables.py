from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import sparse

from softki.exceptions import InvalidInputError, InvalidTypeError
from softki.validation.tables import as_tensor, check_finite

NUMBERS = np.arange(12.0).reshape(6, 2)


class Column:
    """Enough of a data frame's column."""

    def __init__(self, values: object, dtype: str = "") -> None:
        self.values, self.dtype = np.asarray(values), dtype

    def to_numpy(self) -> np.ndarray:
        return self.values


class Frame(dict[str, Column]):
    """Enough of a data frame: columns by name, each with `to_numpy`."""

    @property
    def columns(self) -> list[str]:
        return list(self)


def read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "table",
    [
        NUMBERS,
        NUMBERS.tolist(),
        NUMBERS.astype(int),
        NUMBERS.astype(np.float16),
        NUMBERS.astype(np.float32),
        NUMBERS.astype(np.longdouble),
        NUMBERS.astype(">f8"),
        NUMBERS.astype(object),
        NUMBERS[::-1][::-1],
        np.asfortranarray(NUMBERS),
        read_only(NUMBERS),
        Frame(a=Column(NUMBERS[:, 0]), b=Column(NUMBERS[:, 1].astype(int))),
        torch.from_numpy(NUMBERS),
        torch.from_numpy(NUMBERS).to(torch.int32),
        torch.from_numpy(NUMBERS).half(),
        torch.from_numpy(NUMBERS).requires_grad_(),
    ],
    ids=lambda table: type(table).__name__,
)
def test_every_kind_of_table_gives_the_same_numbers(table: object) -> None:
    matrix = as_tensor(table)
    assert not matrix.requires_grad
    torch.testing.assert_close(matrix.double(), torch.from_numpy(NUMBERS))


def test_reversed_rows_and_booleans() -> None:
    assert as_tensor(NUMBERS[::-1])[0].tolist() == [10.0, 11.0]
    assert as_tensor(torch.tensor([True, False])).tolist() == [1.0, 0.0]
    assert as_tensor(NUMBERS > 3)[:, 0].tolist() == [0, 0, 1, 1, 1, 1]
    assert as_tensor(NUMBERS.astype(np.float32)).dtype == torch.float32


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (np.array([["a", "b"]]), "x column 0 holds text: encode it first.*OneHotEncoder"),
        (np.array([[1.0, "b"]], dtype=object), "x column 1 holds text"),
        (np.array([[1.0, {}]], dtype=object), "x column 1 has the type object.*not 'dict'"),
        (np.array([["2020-01-01"]], dtype="M8[D]"), "x column 0 holds dates.*days since"),
        ([[1, "2"], [3, 4]], "x column 1 holds text"),
        ([[1, 2], [3]], "x is not a table"),
        (NUMBERS + 1j, "Complex data not supported"),
        (torch.zeros(2, 2, dtype=torch.complex64), "Complex data not supported"),
        (torch.zeros(2, 2).to_sparse(), r"sparse data is not supported: pass x\.to_dense\(\)"),
        (Frame(city=Column(["Rome"])), "x column 'city' holds text"),
        (Frame(size=Column([1, 2], "category")), "x column 'size' holds categories"),
    ],
)
def test_what_is_not_numbers_is_named(table: object, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        as_tensor(table)


def test_scipy_matrices_are_refused_as_sparse() -> None:
    with pytest.raises(InvalidTypeError, match=r"pass x\.toarray\(\)"):
        as_tensor(sparse.eye(3))


def test_missing_values_are_found_with_their_place() -> None:
    check_finite(as_tensor(NUMBERS))
    with pytest.raises(InvalidInputError, match="x contains NaN in row 1, column 0"):
        check_finite(as_tensor(np.array([[1, 2], [None, 3]], dtype=object)))
    with pytest.raises(InvalidInputError, match="y contains infinity in row 2"):
        check_finite(torch.tensor([0.0, 1.0, -torch.inf]), "y")


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_real_data_frames(library: str) -> None:
    module = pytest.importorskip(library)
    make = module.table if library == "pyarrow" else module.DataFrame
    table = make({"a": NUMBERS[:, 0], "b": NUMBERS[:, 1].astype(int)})
    np.testing.assert_array_equal(as_tensor(table).numpy(), NUMBERS)
    with pytest.raises(InvalidInputError, match="x column 'c' holds text"):
        as_tensor(make({"a": [1.0], "c": ["text"]}))


def test_a_block_says_the_row_of_the_whole_table() -> None:
    block = np.array([[1.0, 2.0], [3.0, np.inf]])
    with pytest.raises(InvalidInputError, match=r"t.csv contains infinity in row 101, column 'b':"):
        check_finite(block, "t.csv", ["a", "b"], first_row=100)
    with pytest.raises(InvalidInputError, match="y contains NaN in row 7:"):
        check_finite(np.array([np.nan]), "y", first_row=7)
    check_finite(block[:1], "t.csv")
    block.setflags(write=False)
    check_finite(block[:1], "t.csv")
