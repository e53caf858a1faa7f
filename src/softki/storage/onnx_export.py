"""Mean and standard deviation of y as one ONNX graph, in float64 from end to end.

With s the standardised row divided by T, z* the point nearest to it and δ = s − z*,

    dⱼ² − d*² = ‖z* − zⱼ‖² + 2 δ·(z* − zⱼ),     dⱼ − d* = (dⱼ² − d*²)/(dⱼ + d*)

where d are the distances to the points and d* = ‖δ‖. The weights are the softmax of −(dⱼ − d*).
Nothing cancels: neither on a point, where δ = 0, nor far away, where all d are large.

Optimisers of onnxruntime put a single factor beside a matrix product into a float32 attribute of
the product, and take an addend that is 0 in float32 for 0. The graph has neither.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from softki._version import __version__
from softki.exceptions import SoftKIError
from softki.files.atomic import write_atomically
from softki.posterior.extrapolation import Edge
from softki.posterior.functions import Posterior
from softki.training.standardize import Standardizer

if TYPE_CHECKING:
    import onnx

# The versions of ONNX 1.8 (2020), which has all operators that are needed here.
_OPSET = 13
_IR_VERSION = 7
_TINY = 1e-30  # added to dⱼ + d*, which may be 0

_OUTPUTS = {"mean": "mean of y", "std": "standard deviation of y, with its noise"}


def export_onnx(
    path: str | PathLike[str],
    posterior: Posterior,
    x: Standardizer,
    y: Standardizer,
    columns: Sequence[str] | None = None,
    *,
    single_target: bool,
) -> None:
    """Write mean and standard deviation of y as an ONNX graph.

    The graph takes `x`, float64 (n, d) in the units of the table, and gives `mean` and `std`,
    those of `SoftKIRegressor.predict(x, return_std=True)`: float64, (n,) or (n, targets). A value
    that is missing or infinite makes its row of results NaN.

    Args:
        path: name of the file, by custom with the ending `.onnx`.
        posterior: posterior of the standardised rows.
        x: mean and scale of the columns of X.
        y: mean and scale of the targets.
        columns: names of the columns of X, if they have names.
        single_target: whether the results are (n,), and not (n, targets).
    """
    try:
        import onnx.helper
    except ImportError as error:
        raise SoftKIError(
            "export_onnx needs the package onnx: pip install 'softki[onnx]'"
        ) from error
    model = onnx.helper.make_model(
        _graph(posterior.to("cpu"), x, y, columns, single_target),
        producer_name="softki",
        producer_version=__version__,
        ir_version=_IR_VERSION,
        opset_imports=[onnx.helper.make_opsetid("", _OPSET)],
    )
    properties = {
        "columns": json.dumps(columns),
        "units": "of the training table, inputs and results alike",
    }
    onnx.helper.set_model_props(model, properties)
    write_atomically(path, model.SerializeToString())


class _Nodes:
    """Nodes of the graph in the order they are added, and the constants that they take."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, value: Operand | list[int]) -> _Value:
        """A constant: numbers in float64, or the numbers of axes; a value of the graph as it is."""
        from onnx import numpy_helper

        if isinstance(value, _Value):
            return value
        array = value.contiguous().numpy() if isinstance(value, Tensor) else np.array(value)
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return _Value(self, name)

    def add(self, operator: str, *inputs: Operand, output: str = "", **attributes: Any) -> _Value:
        """A new node, known by its one output."""
        from onnx import helper

        output = output or f"{operator.lower()}_{len(self.nodes)}"
        names = [self.constant(value).name for value in inputs]
        self.nodes.append(helper.make_node(operator, names, [output], output, **attributes))
        return _Value(self, output)


class _Value:
    """A value of the graph; every operation with it adds a node."""

    def __init__(self, nodes: _Nodes, name: str) -> None:
        self.nodes, self.name = nodes, name

    def __add__(self, other: Operand) -> _Value:
        return self.nodes.add("Add", self, other)

    def __sub__(self, other: Operand) -> _Value:
        return self.nodes.add("Sub", self, other)

    def __mul__(self, other: Operand) -> _Value:
        return self.nodes.add("Mul", self, other)

    def __truediv__(self, other: Operand) -> _Value:
        return self.nodes.add("Div", self, other)

    def __matmul__(self, other: Operand) -> _Value:
        return self.nodes.add("MatMul", self, other)

    def __neg__(self) -> _Value:
        return self.nodes.add("Neg", self)

    def sqrt(self) -> _Value:
        return self.nodes.add("Sqrt", self)

    def positive(self) -> _Value:
        """The value, or 0 where it is less."""
        return self.nodes.add("Max", self, 0.0)

    def row_sum(self) -> _Value:
        """The sum over the columns, (n, 1)."""
        return self.nodes.add("ReduceSum", self, self.nodes.constant([1]), keepdims=1)


Operand = _Value | Tensor | float


def _graph(
    posterior: Posterior,
    x: Standardizer,
    y: Standardizer,
    columns: Sequence[str] | None,
    single_target: bool,
) -> onnx.GraphProto:
    from onnx import TensorProto, helper

    nodes = _Nodes()
    weights, distance = _weights(_scaled_rows(_Value(nodes, "x"), posterior, x), posterior)
    novelty = None if posterior.edge is None else _novelty(distance, posterior.edge)
    moments = _moments(weights, novelty, posterior, y)
    targets = [] if single_target else [len(y.scale)]
    for name, column in zip(_OUTPUTS, moments, strict=True):
        if single_target:
            nodes.add("Squeeze", column, nodes.constant([1]), output=name)
        else:
            nodes.add("Identity", column, output=name)

    def described(name: str, shape: list[int], text: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.DOUBLE, ["n", *shape], text)

    names = "" if columns is None else f": {', '.join(columns)}"
    return helper.make_graph(
        nodes.nodes,
        "softki",
        [described("x", [len(x.scale)], f"columns as in the training table{names}")],
        [described(name, targets, text) for name, text in _OUTPUTS.items()],
        nodes.constants,
        "Gaussian-process regression by soft kernel interpolation; x and results are in the "
        "units of the training table",
    )


def _scaled_rows(x: _Value, posterior: Posterior, standardizer: Standardizer) -> _Value:
    """The standardised rows divided by T, from the mean of the points: s (n, d)."""
    rows = (x - standardizer.mean) / standardizer.scale
    if posterior.temperature is not None:
        rows = rows / posterior.temperature
    return rows - posterior.points.mean(0)


def _weights(s: _Value, posterior: Posterior) -> tuple[_Value, _Value]:
    """The softmax weights (n, m) of the rows s, and their distances d* (n, 1)."""
    nodes = s.nodes
    z = posterior.points - posterior.points.mean(0)  # (m, d)
    points, transposed = nodes.constant(z), nodes.constant(z.T)
    # The point with the least ‖zⱼ‖²/2 − s·zⱼ, (n,); a tie or a near miss does no harm.
    score = nodes.constant(z.square().sum(1) / 2) - s @ transposed
    nearest = nodes.add("ArgMin", score, axis=1, keepdims=0)
    z_nearest = nodes.add("Gather", points, nearest)  # (n, d)
    delta = s - z_nearest
    distance = torch.cdist(z, z, compute_mode="donot_use_mm_for_euclid_dist")  # (m, m)
    between = nodes.add("Gather", distance.square() / 2, nearest)
    half = between + ((delta * z_nearest).row_sum() - delta @ transposed)
    excess = half + half  # dⱼ² − d*², (n, m)
    square_nearest = (delta * delta).row_sum()
    d, d_nearest = (excess + square_nearest).positive().sqrt(), square_nearest.sqrt()
    logits = -(excess / (d + d_nearest + _TINY))
    return nodes.add("Softmax", logits, axis=1), d_nearest


def _novelty(distance: _Value, edge: Edge) -> _Value:
    """1 − κ² (n, 1), as in `softki.posterior.extrapolation`."""
    steps = (distance - edge.reach).positive() / (edge.width / math.sqrt(3))
    one = distance.nodes.constant(1.0)
    kappa = (steps + one) * distance.nodes.add("Exp", -steps)
    return one - kappa * kappa


def _moments(
    weights: _Value, novelty: _Value | None, posterior: Posterior, standardizer: Standardizer
) -> tuple[_Value, _Value]:
    """Mean and standard deviation of y in its units, (n, t)."""
    deviation = weights @ (posterior.mean_coefficients * standardizer.scale)
    rooted = weights @ posterior.root.T
    variance = (rooted * rooted).row_sum()
    if posterior.target_variance is not None:
        share = _share(variance, posterior.target_variance)
        deviation, variance = deviation * share, variance * share
    if novelty is not None:
        variance = variance + novelty
    std = (variance + posterior.noise_variance).sqrt()
    return deviation + standardizer.mean, std * standardizer.scale


def _share(variance: _Value, target_variance: Tensor) -> _Value:
    """α (n, 1), as `softki.posterior.calibration.share_kept` gives it."""
    ratio = variance / target_variance
    root = (ratio * ratio + 1.0).sqrt()
    return variance.nodes.add("Reciprocal", root)
