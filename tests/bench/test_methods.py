from __future__ import annotations

import json
import math
import sys
from functools import cache
from types import ModuleType
from typing import Any

import gpytorch
import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal

from softki.bench.method import Method
from softki.bench.methods import METHODS, make
from softki.bench.methods.dense import (
    DensePosterior,
    DistinctRows,
    Parameters,
    log_likelihood,
)
from softki.bench.methods.gp import MIN_NOISE_VARIANCE, matern32
from softki.bench.methods.sgpr import Sparse, by_cholesky, by_qr
from softki.bench.methods.vnngp import Neighbours
from softki.exceptions import InvalidInputError

from dense import F64, relative_error
from dense import matern32 as dense_matern32

# Few steps, so that the tests are quick, at a rate that makes the most of them.
QUICK: dict[str, dict[str, Any]] = {
    "softki": {"points": 64, "steps": 60},
    "softki_paper": {"points": 64, "epochs": 40, "batch_size": 128, "learning_rate": 0.05},
    "softki_mll": {"points": 64, "epochs": 40, "batch_size": 128, "learning_rate": 0.05},
    "softki_hutchinson": {"points": 48, "epochs": 10, "batch_size": 128, "learning_rate": 0.1},
    "exact": {"epochs": 40},
    "sgpr": {"points": 48, "epochs": 40, "learning_rate": 0.1},
    "sgpr_qr": {"points": 48, "epochs": 40, "learning_rate": 0.1},
    "svgp": {"points": 48, "least_steps": 300, "batch_size": 64, "learning_rate": 0.05},
    "ski": {"epochs": 20},
    "skip": {"epochs": 15, "learning_rate": 0.2},
    "vnngp": {"neighbours": 16, "least_steps": 180, "batch_size": 64, "learning_rate": 0.03},
    "sklearn_gpr": {"rows": 200},
    "hist_gradient_boosting": {"iterations": 100},
    "extra_trees": {"trees": 50},
}
FEW = {
    "epochs": 2,
    "least_steps": 5,
    "steps": 5,
    "iterations": 10,
    "rows": 60,
    "trees": 5,
    "points": 16,
}
GPS = ["exact", "sgpr", "sgpr_qr", "svgp", "ski", "skip", "vnngp", "sklearn_gpr"]
SOFTKI = ["softki", "softki_paper", "softki_mll", "softki_hutchinson"]
FREE = [name for name in METHODS if name != "gpboost_vecchia"]  # those that need no more packages


def columns(name: str) -> int:
    return 2 if name == "ski" else 3


@cache
def smooth(d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """300 rows to learn from and 200 to predict, standardised, a sixth of the target noise."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((500, d))
    y = np.sin(1.5 * X[:, 0]) + 0.5 * X[:, 1] + 0.15 * rng.standard_normal(500)
    y = (y - y.mean()) / y.std()
    return X[:300], y[:300], X[300:], y[300:]


@cache
def fitted(name: str) -> tuple[Method, np.ndarray, np.ndarray]:
    X, y, X_new, _ = smooth(columns(name))
    method = make(name, **QUICK[name])
    method.fit(X, y)
    return method, *method.predict(X_new)


@pytest.mark.parametrize("name", FREE)
def test_a_smooth_function_is_learned_with_honest_error_bars(name: str) -> None:
    method, mean, std = fitted(name)
    y = smooth(columns(name))[3]
    assert mean.shape == std.shape == y.shape
    assert mean.dtype == std.dtype == np.float64
    assert np.sqrt(np.mean((mean - y) ** 2)) < 0.45
    assert np.isfinite(std).all()
    assert (std > 0).all()
    assert 0.7 < np.mean(np.abs(mean - y) < 1.96 * std) <= 1
    json.dumps({**method.facts, "settings": method.settings})


@pytest.mark.parametrize("name", FREE)
def test_the_facts_are_those_that_a_method_has(name: str) -> None:
    facts, d = fitted(name)[0].facts, columns(name)
    if name in GPS or name.startswith("softki"):
        assert len(facts["lengthscale"]) == d
        assert min(facts["lengthscale"]) > 0
        assert 0.001 < facts["noise_variance"] < 0.15
        assert facts["training_seconds"] > 0
    if "epochs" in QUICK[name]:
        assert facts["epochs"] == QUICK[name]["epochs"]
    if name.startswith("softki"):
        assert len(facts["temperature"]) == d


@pytest.mark.parametrize("name", ["svgp", "sgpr"])
def test_noise_is_free_to_fall(name: str) -> None:
    assert fitted(name)[0].facts["noise_variance"] < 0.06


def wave(noise: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (150, 1))
    return X, np.sin(3 * X[:, 0]) + noise * rng.standard_normal(150)


def test_the_exact_gp_learns_little_noise() -> None:
    method = make("exact")
    method.fit(*wave(noise=0.01))
    assert 5e-5 < method.facts["noise_variance"] < 3e-4  # 1e-4; after 50 steps it is at 8e-4


def test_training_on_all_rows_stops_when_the_objective_rests() -> None:
    rested, cut_short = make("exact"), make("exact", epochs=10)
    for method in (rested, cut_short):
        method.fit(*wave(noise=0.3))
    assert 20 < rested.facts["epochs"] < 150
    assert rested.facts["last_change"] <= 1e-4
    assert cut_short.facts["epochs"] == 10
    assert cut_short.facts["last_change"] > 1e-4


@pytest.mark.parametrize("name", ["svgp", "vnngp"])
def test_few_rows_are_seen_in_more_epochs(name: str) -> None:
    X, y, *_ = smooth(3)
    known = {"points": 8, "neighbours": 4}
    settings = {key: value for key, value in known.items() if key in METHODS[name].defaults}
    for least, epochs in ((11, 6), (3, 3)):  # two steps an epoch
        method = make(name, epochs=3, least_steps=least, batch_size=50, **settings)
        method.fit(X[:54], y[:54])
        assert method.facts["epochs"] == epochs
    assert make(name).settings["least_steps"] == 1000


@pytest.mark.parametrize("name", FREE)
def test_the_same_seed_gives_the_same_predictions(name: str) -> None:
    X, y, X_new, _ = smooth(columns(name))
    settings = {key: value for key, value in FEW.items() if key in METHODS[name].defaults}
    predictions = []
    for _ in range(2):
        torch.rand(1)  # what was drawn before does not matter
        method = make(name, seed=3, **settings)
        method.fit(X[:100], y[:100])
        predictions.append(np.stack(method.predict(X_new[:20])))
    assert np.array_equal(*predictions)


@pytest.mark.parametrize("name", FREE)
@pytest.mark.parametrize("what", ["target", "column"])
def test_what_is_constant_is_survived(name: str, what: str) -> None:
    X, y, X_new, _ = (part.copy() for part in smooth(columns(name)))
    if what == "target":
        y[:] = 0
    else:
        X[:, 1] = X_new[:, 1] = 0
    settings = {key: value for key, value in FEW.items() if key in METHODS[name].defaults}
    method = make(name, **settings)
    method.fit(X[:80], y[:80])
    mean, std = method.predict(X_new[:20])
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()
    assert (std > 0).all()


@pytest.mark.parametrize("name", [*GPS, *SOFTKI])
def test_noise_enters_the_variance_once(name: str) -> None:
    """Of a target that is noise alone, the predictive variance is about one, not two.

    And it is nearly all noise, in units of what was learned, should that be less than one.
    """
    d = columns(name)
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((300, d)), rng.standard_normal(300)
    settings = {**QUICK[name], "points": 8, "epochs": 40, "learning_rate": 0.1}
    if name == "svgp":
        settings["least_steps"] = 200
    elif name == "vnngp":  # its own values at the rows have to be learned first
        settings.update(least_steps=360, learning_rate=0.05)
    known = METHODS[name].defaults
    method = make(name, **{key: value for key, value in settings.items() if key in known})
    method.fit(X, y)
    _, std = method.predict(rng.standard_normal((200, d)))
    assert 0.8 < np.mean(std**2) < 1.4
    assert 1 <= np.min(std**2) / method.facts["noise_variance"] < 1.5


@pytest.mark.parametrize("name", ["exact", "sgpr", "sgpr_qr", "svgp", "vnngp", "sklearn_gpr"])
def test_far_from_the_data_the_variance_is_that_of_the_prior(name: str) -> None:
    method = fitted(name)[0]
    mean, std = method.predict(np.full((2, 3), 1e4))
    facts = method.facts
    np.testing.assert_allclose(mean, 0, atol=1e-3)
    np.testing.assert_allclose(std**2, facts["outputscale"] + facts["noise_variance"], rtol=2e-3)


@pytest.mark.parametrize("name", list(METHODS))
def test_an_unknown_setting_is_refused(name: str) -> None:
    setting = next(iter(METHODS[name].defaults))
    with pytest.raises(InvalidInputError, match=f"setting of {name}.*did you mean '{setting}'"):
        make(name, **{setting + "_": 1})


def repeated_rows(distinct: int, rows: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Distinct inputs, the place of every row among them, and the targets of the rows."""
    place = torch.cat([torch.arange(distinct), torch.randint(distinct, (rows - distinct,))])
    return torch.randn(distinct, 3, dtype=F64), place, torch.randn(rows, dtype=F64)


@pytest.mark.parametrize("rows", [40, 100])
def test_the_log_likelihood_and_its_gradient_are_those_of_a_dense_gp(rows: int) -> None:
    x, place, y = repeated_rows(40, rows)
    vector = (0.3 * torch.randn(5, dtype=F64)).requires_grad_()
    noise = MIN_NOISE_VARIANCE + vector[-1].exp()
    K = dense_matern32(x, vector[:-2].exp(), vector[-2].exp())
    covariance = K[place][:, place] + noise * torch.eye(rows, dtype=F64)
    expected = MultivariateNormal(torch.zeros_like(y), covariance).log_prob(y)
    expected.backward()
    distinct = DistinctRows.of(x[place], y)
    assert len(distinct.x) == 40
    value, gradient = log_likelihood(distinct, Parameters(vector.detach()))
    assert relative_error(value, expected.detach()) < 1e-12
    assert relative_error(gradient, vector.grad) < 1e-10


def test_the_exact_posterior_of_repeated_rows_is_that_of_all_of_them() -> None:
    x, place, y = repeated_rows(40, 100)
    x_new = torch.randn(9, 3, dtype=F64)
    parameters = Parameters(0.3 * torch.randn(5, dtype=F64))
    K = dense_matern32(torch.cat([x, x_new]), parameters.lengthscale, parameters.outputscale.item())
    noise = parameters.noise_variance * torch.eye(100, dtype=F64)
    cross = K[40:, place]
    solved = torch.linalg.solve(K[place][:, place] + noise, cross.T)
    mean, variance = DensePosterior.of(DistinctRows.of(x[place], y), parameters)(x_new)
    assert relative_error(mean, solved.T @ y) < 1e-10
    assert relative_error(variance, (K[40:, 40:] - cross @ solved).diagonal()) < 1e-10


def test_repeated_rows_do_not_count_for_the_limit_of_cholesky() -> None:
    X, y, X_new, _ = smooth(3)
    repeats = {"cholesky_rows": 320, "epochs": 3}
    method = make("exact", **repeats)
    method.fit(np.concatenate([X, X]), np.concatenate([y, y]))
    assert method.facts["solver"] == "cholesky"
    assert method.facts["distinct_rows"] == 300
    method = make("exact", **repeats)
    method.fit(np.concatenate([X, X_new]), np.concatenate([y, y[:200]]))
    assert method.facts["solver"] == "cg"


def test_conjugate_gradients_give_the_exact_posterior() -> None:
    X, y, X_new, _ = smooth(3)
    method = make("exact", cholesky_rows=0, epochs=20)
    method.fit(X, y)
    mean, std = method.predict(X_new)
    facts = method.facts
    assert facts["solver"] == "cg"
    assert fitted("exact")[0].facts["solver"] == "cholesky"
    logarithms = torch.tensor(
        [*facts["lengthscale"], facts["outputscale"], facts["noise_variance"] - MIN_NOISE_VARIANCE],
        dtype=F64,
    ).log()
    rows = DistinctRows.of(torch.from_numpy(X), torch.from_numpy(y))
    posterior = DensePosterior.of(rows, Parameters(logarithms))
    expected, variance = posterior(torch.from_numpy(X_new))
    np.testing.assert_allclose(mean, expected, atol=0.01)
    np.testing.assert_allclose(std**2, variance + facts["noise_variance"], rtol=0.1)


def test_keops_is_not_replaced_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("softki.bench.methods.exact.find_spec", lambda name: None)
    X, y, *_ = smooth(3)
    with pytest.raises(InvalidInputError, match="pip install pykeops"):
        make("exact", keops=True).fit(X, y)


@pytest.mark.parametrize("solve", [by_cholesky, by_qr])
@torch.no_grad()
def test_the_sparse_posterior_is_that_of_titsias(solve: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("softki.bench.methods.sgpr._BLOCK", 23)
    n, m, noise = 60, 12, torch.tensor(0.05, dtype=F64)
    x, x_new = torch.randn(n, 2, dtype=F64), torch.randn(9, 2, dtype=F64)
    y = torch.sin(x[:, 0])
    kernel = matern32(2).double()
    everything = torch.cat([x[:m], x, x_new])
    K = dense_matern32(everything, kernel.base_kernel.lengthscale, kernel.outputscale)
    Kzz, Kzx, Kzs = K[:m, :m], K[:m, m : m + n], K[:m, m + n :]
    Q = Kzx.T @ torch.linalg.solve(Kzz, Kzx) + noise * torch.eye(n, dtype=F64)
    Qsx = Kzs.T @ torch.linalg.solve(Kzz, Kzx)
    expected = Qsx @ torch.linalg.solve(Q, y)
    variance = K[-1, -1] - (Qsx * torch.linalg.solve(Q, Qsx.T).T).sum(1)
    mean, got = solve(Sparse(kernel, x[:m], noise), x, y)(x_new)
    assert relative_error(mean, expected) < 1e-7
    assert relative_error(got, variance) < 1e-7


def test_sgpr_and_its_qr_version_agree_where_nothing_is_ill_conditioned() -> None:
    for one, other in zip(fitted("sgpr")[1:], fitted("sgpr_qr")[1:], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


def test_the_bound_of_sgpr_is_that_of_titsias() -> None:
    """What GPyTorch maximises, on the points and parameters that it ended with."""
    method = make("sgpr", points=12, epochs=1, learning_rate=1e-12)
    X, y, *_ = smooth(2)
    method.fit(X[:50], y[:50])
    model = method.model.train()
    x, t = model.train_inputs[0], model.train_targets
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    with torch.no_grad():
        got = 50 * objective(model(x), t)
        kernel, noise = model.covar_module.base_kernel, model.likelihood.noise
        z = model.covar_module.inducing_points
        K = dense_matern32(torch.cat([z, x]), kernel.base_kernel.lengthscale, kernel.outputscale)
        Q = K[12:, :12] @ torch.linalg.solve(K[:12, :12], K[:12, 12:])
        covariance = Q + noise * torch.eye(50, dtype=F64)
        expected = MultivariateNormal(torch.zeros_like(t), covariance).log_prob(t)
        expected -= (K[12:, 12:].trace() - Q.trace()) / (2 * noise.squeeze())
    assert relative_error(got, expected) < 1e-5


def test_neighbours_are_the_nearest_before() -> None:
    rows = torch.randn(50, 3)
    distance = torch.cdist(rows, rows)
    nearest = Neighbours(rows, 4).before()
    assert nearest.shape == (46, 4)
    for j, found in enumerate(nearest, start=4):
        expected = distance[j, :j].topk(4, largest=False).indices
        assert set(found.tolist()) == set(expected.tolist())
    x = rows[:5] + 1e-3
    assert torch.equal(Neighbours(rows, 4).find_nn_idx(x)[:, 0], torch.arange(5))


def test_skip_trains_on_ten_columns_by_lanczos(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("softki.bench.methods.ski._CHOLESKY_ROWS", 50)
    X, y, X_new, y_new = smooth(10)
    method = make("skip", epochs=3, learning_rate=0.3, rank=60)
    method.fit(X[:200], y[:200])
    mean, std = method.predict(X_new)
    assert method.facts["solver"] == "cg"
    assert len(method.facts["lengthscale"]) == 10
    assert np.isfinite(mean).all()
    assert (std > 0).all()
    assert np.sqrt(np.mean((mean - y_new) ** 2)) < 1


def test_a_grid_does_not_extrapolate() -> None:
    method = fitted("ski")[0]
    X = smooth(2)[0]
    edge = X.max(0)
    inside, outside = method.predict(edge[None]), method.predict(edge[None] + 5)
    assert method.facts["clamped_rows"] == 1
    np.testing.assert_allclose(inside, outside)
    with pytest.raises(InvalidInputError, match="ski takes at most 4 columns, not 5"):
        METHODS["ski"].check_size(100, 5)


def test_softki_has_the_parameters_of_the_estimator() -> None:
    settings = make("softki", points=64).settings
    assert settings["points"] == 64
    assert {"device", "random_state", "verbose"}.isdisjoint(settings)


def test_an_epoch_of_the_paper_is_all_its_whole_batches() -> None:
    method = make("softki_paper", points=8, epochs=3, batch_size=70)
    X, y, *_ = smooth(3)
    method.fit(X, y)
    assert method.facts["steps"] == 3 * (300 // 70)
    assert method.facts["stopped"] == "all steps done"


def test_without_gpboost_the_error_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "gpboost", None)
    X, y, *_ = smooth(3)
    with pytest.raises(InvalidInputError, match="pip install gpboost"):
        make("gpboost_vecchia").fit(X, y)


def test_gpboost_is_asked_for_the_model_of_the_comparison(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: dict[str, Any] = {}

    class GPModel:
        def __init__(self, **arguments: Any) -> None:
            asked.update(arguments)

        def fit(self, y: np.ndarray) -> None:
            asked["y"] = y

        def get_cov_pars(self) -> np.ndarray:
            return np.array([[0.1, 2.0, 1.0, 3.0, 5.0]])

        def predict(self, gp_coords_pred: np.ndarray, **arguments: bool) -> dict[str, np.ndarray]:
            asked.update(arguments)
            return {"mu": gp_coords_pred[:, 0], "var": np.full(len(gp_coords_pred), 4.0)}

    module = ModuleType("gpboost")
    module.GPModel = GPModel  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "gpboost", module)
    X, y, X_new, _ = smooth(3)
    method = make("gpboost_vecchia", seed=7, neighbours=9)
    method.fit(X, y)
    mean, std = method.predict(X_new)
    assert asked["gp_coords"] is X
    assert asked["y"] is y
    assert (asked["cov_function"], asked["cov_fct_shape"]) == ("matern_ard", 1.5)
    assert (asked["gp_approx"], asked["num_neighbors"], asked["seed"]) == ("vecchia", 9, 7)
    assert asked["predict_var"]
    assert asked["predict_response"]  # with the noise
    np.testing.assert_array_equal(mean, X_new[:, 0])
    np.testing.assert_array_equal(std, 2.0)
    facts = json.loads(json.dumps(method.facts))
    assert (facts["noise_variance"], facts["outputscale"]) == (0.1, 2.0)
    assert facts["lengthscale"] == [1.0, 3.0, 5.0]
    assert facts["training_seconds"] >= 0


def test_methods_without_torch_stay_on_the_cpu() -> None:
    assert {name for name in METHODS if METHODS[name].cpu_only} == {
        "gpboost_vecchia",
        "sklearn_gpr",
        "hist_gradient_boosting",
        "extra_trees",
    }


def test_the_error_of_trees_is_what_they_did_not_see() -> None:
    """On noise alone a tree has no error on its own rows, and the whole of it elsewhere."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((400, 3)), rng.standard_normal(400)
    for name in ("extra_trees", "hist_gradient_boosting"):
        method = make(name, **QUICK[name])
        method.fit(X, y)
        _, std = method.predict(rng.standard_normal((200, 3)))
        assert 0.85 < math.sqrt(np.mean(std**2)) < 1.2


@pytest.mark.parametrize("cholesky_rows", [None, 0])
def test_the_exact_gp_may_start_from_some_rows(cholesky_rows: int | None) -> None:
    X, y, Xt, yt = smooth(3)
    errors = []
    for start_rows in (0, 150):
        method = make("exact", start_rows=start_rows, epochs_on_all=5, cholesky_rows=cholesky_rows)
        method.fit(X, y)
        errors.append(np.sqrt(np.mean((method.predict(Xt)[0] - yt) ** 2)))
    assert method.facts["epochs"] <= 5
    assert method.facts["start_seconds"] > 0
    assert errors[1] == pytest.approx(errors[0], rel=0.1)
