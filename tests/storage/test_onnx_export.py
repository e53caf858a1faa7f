"""The ONNX graph gives what `predict` gives, wherever the rows lie."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpytorch
import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError

import softki
from softki import InvalidInputError, SoftKIError, SoftKIRegressor

OPTIMISED = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
PLAIN = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def table(n: int = 300, d: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    g = np.random.default_rng(seed)
    x = g.normal(size=(n, d))
    return x, np.sin(2 * x[:, 0]) + x.sum(1) + 0.1 * g.normal(size=n)


def fit(x: Any, y: Any, **parameters: Any) -> SoftKIRegressor:
    quick = {"points": 32, "steps": 50, "held_out": 0.1, "random_state": 0, "device": "cpu"}
    return SoftKIRegressor(**(quick | parameters)).fit(x, y)


def one_target() -> SoftKIRegressor:
    return fit(*table())


def without_temperature() -> SoftKIRegressor:
    x, y = table()
    model = one_target()
    model.fit_ = softki.fit(
        model.x_standardizer_.transform(torch.tensor(x)),
        model.y_standardizer_.transform(torch.tensor(y)[:, None]),
        settings=softki.FitSettings(points=16, steps=10, temperature="none"),
    )
    return model


def several_targets() -> SoftKIRegressor:
    x, y = table()
    return fit(x, np.stack([y, 1e6 * y**2 + 1e9, 1e-9 * y], 1))


def a_column_as_target() -> SoftKIRegressor:
    x, y = table()
    return fit(x, y[:, None])


def large_offsets() -> SoftKIRegressor:
    x, y = table()
    return fit(1e9 + x, 1e9 + y)


def a_constant_column() -> SoftKIRegressor:
    x, y = table()
    return fit(np.column_stack([x, np.full(len(x), 7.0)]), y)


def one_column() -> SoftKIRegressor:
    return fit(*table(d=1))


def one_point() -> SoftKIRegressor:
    return fit(*table(4, d=1), held_out=0.0)


def many_columns() -> SoftKIRegressor:
    return fit(*table(d=40))


def another_kernel() -> SoftKIRegressor:
    return fit(*table(), kernel=gpytorch.kernels.RBFKernel(), solver="whitened")


CASES = [
    one_target,
    without_temperature,
    several_targets,
    a_column_as_target,
    large_offsets,
    a_constant_column,
    one_column,
    one_point,
    many_columns,
    another_kernel,
]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.__name__)
def model(request: pytest.FixtureRequest) -> SoftKIRegressor:
    make: Callable[[], SoftKIRegressor] = request.param
    return make()


@pytest.fixture(scope="module")
def plain_model() -> SoftKIRegressor:
    return fit(*table(), held_out="auto")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.onnx"


def run(path: Path, x: np.ndarray, level: Any = OPTIMISED) -> tuple[np.ndarray, np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    mean, std = session.run(["mean", "std"], {"x": x})
    return mean, std


def probes(model: SoftKIRegressor) -> dict[str, np.ndarray]:
    """Rows among the data, on the points, next to them, between two, and far away."""
    posterior, d = model.fit_.posterior, model.n_features_in_

    def in_units(standardised: Any) -> np.ndarray:
        return np.asarray(model.x_standardizer_.inverse(standardised))

    temperature = 1.0 if posterior.temperature is None else posterior.temperature
    points = posterior.points * temperature
    g = np.random.default_rng(1)
    scale = np.asarray(model.x_standardizer_.scale)
    centre = np.asarray(model.x_standardizer_.mean)
    return {
        "data": centre + scale * g.normal(size=(200, d)),
        "one row": centre[None],
        "points": in_units(points),
        "next to points": in_units(points + 1e-7),
        "between points": in_units((points + points.roll(1, 0)) / 2),
        "far": centre + 1e6 * scale * g.normal(size=(50, d)),
        "very far": centre + 1e30 * scale * g.normal(size=(50, d)),
    }


@pytest.mark.parametrize("level", [PLAIN, OPTIMISED], ids=["plain", "optimised"])
def test_the_graph_agrees_with_predict(model: SoftKIRegressor, path: Path, level: Any) -> None:
    """To 1e-10 of the spread of y: float64 throughout, and nothing cancels."""
    model.export_onnx(path)
    onnx.checker.check_model(str(path), full_check=True)
    scale = np.asarray(model.y_standardizer_.scale)
    # An offset of y leaves its digits to neither.
    tolerance = 1e-10 * scale + 4e-16 * np.abs(np.asarray(model.y_standardizer_.mean))
    for name, x in probes(model).items():
        expected = model.predict(x, return_std=True)
        for got, value in zip(run(path, x, level), expected, strict=True):
            assert got.dtype == np.float64
            assert got.shape == value.shape, name
            assert np.isfinite(got).all(), name
            assert (np.abs(got - value) <= tolerance).all(), name


def test_std_is_relatively_exact(model: SoftKIRegressor, path: Path) -> None:
    model.export_onnx(path)
    for name, x in probes(model).items():
        expected = model.predict(x, return_std=True)[1]
        np.testing.assert_allclose(run(path, x)[1], expected, rtol=1e-9, err_msg=name)


def test_missing_values_give_nan_in_their_row_alone(
    plain_model: SoftKIRegressor, path: Path
) -> None:
    plain_model.export_onnx(path)
    x, _ = table(5)
    x[1, 0], x[3, 2] = np.nan, np.inf
    for result in run(path, x):
        np.testing.assert_array_equal(np.isnan(result), [False, True, False, True, False])


def test_no_rows_give_no_rows(plain_model: SoftKIRegressor, path: Path) -> None:
    plain_model.export_onnx(path)
    assert [result.shape for result in run(path, np.empty((0, 3)))] == [(0,), (0,)]


def test_another_number_of_columns_is_refused(plain_model: SoftKIRegressor, path: Path) -> None:
    plain_model.export_onnx(path)
    with pytest.raises(Exception, match=r"[Ii]nvalid dimensions"):
        run(path, np.zeros((2, 4)))


def test_the_graph_describes_itself_and_needs_nothing_recent(path: Path) -> None:
    x, y = table()
    fit(pd.DataFrame(x, columns=["a", "b", "länge"]), y).export_onnx(path)
    graph = onnx.load(str(path))
    assert graph.ir_version <= 7
    assert [(o.domain, o.version) for o in graph.opset_import] == [("", 13)]
    assert graph.producer_name == "softki"
    properties = {p.key: p.value for p in graph.metadata_props}
    assert json.loads(properties["columns"]) == ["a", "b", "länge"]
    assert "units" in properties
    assert "länge" in graph.graph.input[0].doc_string
    numbers = {v.type.tensor_type.elem_type for v in [*graph.graph.input, *graph.graph.output]}
    assert numbers == {onnx.TensorProto.DOUBLE}
    dimension = graph.graph.input[0].type.tensor_type.shape.dim
    assert dimension[0].dim_param == "n"
    assert dimension[1].dim_value == 3


def test_rows_added_later_are_in_the_graph(path: Path) -> None:
    model = one_target().partial_fit(*table(50, seed=9))
    model.export_onnx(path)
    x, _ = table(20, seed=3)
    np.testing.assert_allclose(run(path, x)[0], model.predict(x), rtol=1e-9)


def test_what_cannot_be_exported_is_refused(
    plain_model: SoftKIRegressor, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotFittedError):
        SoftKIRegressor().export_onnx(path)
    with pytest.raises(InvalidInputError, match="is a folder"):
        plain_model.export_onnx(path.parent)
    with pytest.raises(InvalidInputError, match="no folder"):
        plain_model.export_onnx(path.parent / "no" / "model.onnx")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(SoftKIError, match=r"pip install 'softki\[onnx\]'"):
        plain_model.export_onnx(path)
    assert not list(path.parent.iterdir())
