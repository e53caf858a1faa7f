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

# Those of ONNX 1.8 of 2020: all that is needed here is in them.
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


class _Builder:
    """Nodes in the order they are added, each named by its one output."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.constant("axis_1", [1])

    def constant(self, name: str, value: Tensor | float | list[int]) -> str:
        from onnx import numpy_helper

        array = value.contiguous().numpy() if isinstance(value, Tensor) else np.array(value)
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def add(self, operator: str, output: str, *inputs: str, **attributes: Any) -> str:
        from onnx import helper

        self.nodes.append(helper.make_node(operator, inputs, [output], output, **attributes))
        return output


def _graph(
    posterior: Posterior,
    x: Standardizer,
    y: Standardizer,
    columns: Sequence[str] | None,
    single_target: bool,
) -> onnx.GraphProto:
    from onnx import TensorProto, helper

    build = _Builder()
    weights, distance = _weights(build, posterior, x)
    novelty = None if posterior.edge is None else _novelty(build, distance, posterior.edge)
    moments = _moments(build, weights, novelty, posterior, y)
    targets = [] if single_target else [len(y.scale)]
    for name, column in zip(_OUTPUTS, moments, strict=True):
        if single_target:
            build.add("Squeeze", name, column, "axis_1")
        else:
            build.add("Identity", name, column)

    def described(name: str, shape: list[int], text: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.DOUBLE, ["n", *shape], text)

    names = "" if columns is None else f": {', '.join(columns)}"
    return helper.make_graph(
        build.nodes,
        "softki",
        [described("x", [len(x.scale)], f"columns as in the training table{names}")],
        [described(name, targets, text) for name, text in _OUTPUTS.items()],
        build.constants,
        "Gaussian-process regression by soft kernel interpolation; x and results are in the "
        "units of the training table",
    )


def _weights(build: _Builder, posterior: Posterior, standardizer: Standardizer) -> tuple[str, str]:
    """The softmax weights (n, m) of the rows of x, and their distances d* (n, 1)."""
    centre = posterior.points.mean(0)
    z = posterior.points - centre  # (m, d)
    build.constant("points", z)
    build.constant("points_transposed", z.T)
    s = _scaled_rows(build, posterior.temperature, standardizer, centre)
    nearest = _nearest(build, s, z)
    z_nearest = build.add("Gather", "z_nearest", "points", nearest)  # (n, d)
    delta = build.add("Sub", "delta", s, z_nearest)
    excess = _excess(build, z, nearest, delta, z_nearest)
    d_squared = _row_sum(build, "d_squared", delta, delta)
    raw = build.add("Add", "squared_raw", excess, d_squared)
    squared = build.add("Max", "squared", raw, build.constant("zero", 0.0))
    d, d_nearest = build.add("Sqrt", "d", squared), build.add("Sqrt", "d_nearest", d_squared)
    total = build.add("Add", "total", d, d_nearest)
    positive = build.add("Add", "total_positive", total, build.constant("tiny", _TINY))
    difference = build.add("Div", "difference", excess, positive)
    logits = build.add("Neg", "logits", difference)
    return build.add("Softmax", "weights", logits, axis=1), d_nearest


def _novelty(build: _Builder, distance: str, edge: Edge) -> str:
    """1 − κ² (n, 1), as in `softki.posterior.extrapolation`."""
    beyond = build.add("Sub", "beyond", distance, build.constant("reach", edge.reach))
    beyond = build.add("Max", "beyond_positive", beyond, "zero")
    s = build.add("Div", "steps", beyond, build.constant("width", edge.width / math.sqrt(3)))
    power = build.add("Exp", "steps_power", build.add("Neg", "steps_negative", s))
    one = build.constant("one", 1.0)
    kappa = build.add("Mul", "kappa", build.add("Add", "steps_one", s, one), power)
    return build.add("Sub", "novelty", one, build.add("Mul", "kappa_square", kappa, kappa))


def _scaled_rows(
    build: _Builder, temperature: Tensor | None, standardizer: Standardizer, centre: Tensor
) -> str:
    """s − centre, with s the standardised rows divided by T: (n, d)."""
    rows = build.add("Sub", "x_shifted", "x", build.constant("x_mean", standardizer.mean))
    rows = build.add("Div", "x_standard", rows, build.constant("x_scale", standardizer.scale))
    if temperature is not None:
        rows = build.add("Div", "x_cooled", rows, build.constant("temperature", temperature))
    return build.add("Sub", "s", rows, build.constant("centre", centre))


def _nearest(build: _Builder, s: str, z: Tensor) -> str:
    """The point with the least ‖zⱼ‖²/2 − s·zⱼ, (n,); a tie or a near miss does no harm."""
    half_square = build.constant("points_half_square", z.square().sum(1) / 2)
    product = build.add("MatMul", "s_z", s, "points_transposed")
    score = build.add("Sub", "score", half_square, product)
    return build.add("ArgMin", "nearest", score, axis=1, keepdims=0)


def _excess(build: _Builder, z: Tensor, nearest: str, delta: str, z_nearest: str) -> str:
    """dⱼ² − d*², (n, m)."""
    distance = torch.cdist(z, z, compute_mode="donot_use_mm_for_euclid_dist")  # (m, m)
    half_square = distance.square() / 2
    between = build.add("Gather", "between", build.constant("half_square", half_square), nearest)
    product = build.add("MatMul", "delta_z", delta, "points_transposed")
    along = build.add("Sub", "along", _row_sum(build, "delta_z_nearest", delta, z_nearest), product)
    half = build.add("Add", "half_excess", between, along)
    return build.add("Add", "excess", half, half)


def _moments(
    build: _Builder,
    weights: str,
    novelty: str | None,
    posterior: Posterior,
    standardizer: Standardizer,
) -> tuple[str, str]:
    """Mean and standard deviation of y in its units, (n, t)."""
    scaled = posterior.mean_coefficients * standardizer.scale
    coefficients = build.constant("coefficients", scaled)
    deviation = build.add("MatMul", "deviation", weights, coefficients)
    rooted = build.add("MatMul", "rooted", weights, build.constant("root", posterior.root.T))
    noise = build.constant("noise_variance", posterior.noise_variance)
    variance = _row_sum(build, "variance_f", rooted, rooted)
    if posterior.target_variance is not None:
        share = _share(build, variance, posterior.target_variance)
        deviation = build.add("Mul", "deviation_shrunk", deviation, share)
        variance = build.add("Mul", "variance_shrunk", variance, share)
    mean = build.add("Add", "mean_column", deviation, build.constant("y_mean", standardizer.mean))
    if novelty is not None:
        variance = build.add("Add", "variance_beyond", variance, novelty)
    variance = build.add("Add", "variance_y", variance, noise)
    standard = build.add("Sqrt", "std_standard", variance)
    std = build.add("Mul", "std_column", standard, build.constant("y_scale", standardizer.scale))
    return mean, std


def _share(build: _Builder, variance: str, target_variance: Tensor) -> str:
    """α (n, 1), as `softki.posterior.calibration.share_kept` gives it."""
    limit = build.constant("target_variance", target_variance)
    ratio = build.add("Div", "variance_ratio", variance, limit)
    square = build.add("Mul", "variance_ratio_square", ratio, ratio)
    one = build.constant("one_share", 1.0)
    root = build.add("Sqrt", "share_root", build.add("Add", "share_square", square, one))
    return build.add("Reciprocal", "share", root)


def _row_sum(build: _Builder, name: str, left: str, right: str) -> str:
    """Σₖ leftᵢₖ rightᵢₖ, (n, 1)."""
    product = build.add("Mul", f"{name}_terms", left, right)
    return build.add("ReduceSum", name, product, "axis_1", keepdims=1)
