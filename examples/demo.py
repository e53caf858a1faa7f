"""The main job: a table in, predictions with error bars out, next to what people use instead.

The table has 20,000 rows made by `softki.data.robot_arm`: the angles of eight joints, and how
far the hand of the arm is from a fixed point. Run it with `make demo`.
"""

import sys
import time

import gpytorch
import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.preprocessing import StandardScaler

from softki import SoftKIRegressor
from softki.data import robot_arm, split_indices
from softki.metrics import coverage, gaussian_nll, rmse

SUBSET = 2000


def soft_kernel_interpolation(x, y, x_test):
    model = SoftKIRegressor(steps=500, random_state=0, verbose=sys.stderr.isatty()).fit(x, y)
    mean, std = model.predict(x_test, return_std=True)
    return mean, std.square()


class ExactGP(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ZeroMean()
        matern = gpytorch.kernels.MaternKernel(nu=1.5, ard_num_dims=x.shape[1])
        self.covar_module = gpytorch.kernels.ScaleKernel(matern)

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def exact_gp_on_a_subset(x, y, x_test):
    """By Cholesky, with the hyperparameters at a maximum of the likelihood by L-BFGS."""
    x, y = x[:SUBSET], y[:SUBSET]
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = ExactGP(x, y, likelihood).double()
    likelihood_per_row = gpytorch.ExactMarginalLogLikelihood(likelihood, model)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=30, line_search_fn="strong_wolfe")

    def loss():
        optimizer.zero_grad()
        value = -likelihood_per_row(model(x), y)
        value.backward()
        return value

    with gpytorch.settings.max_cholesky_size(SUBSET):
        optimizer.step(loss)
        model.eval()
        with torch.no_grad():
            predicted = likelihood.eval()(model(x_test))
            return predicted.mean, predicted.variance


def histogram_gradient_boosting(x, y, x_test):
    """Its error bars: one standard deviation for all rows, from rows it did not see."""
    cut = int(0.9 * len(x))
    model = HistGradientBoostingRegressor(max_iter=500, random_state=0)
    model.fit(x[:cut].numpy(), y[:cut].numpy())
    variance = np.mean((y[cut:].numpy() - model.predict(x[cut:].numpy())) ** 2)
    mean = torch.from_numpy(model.predict(x_test.numpy()))
    return mean, torch.full_like(mean, variance)


def main():
    x, y = robot_arm(20_000, noise=0.02, seed=0)
    train, test = split_indices(len(x))
    inputs = StandardScaler().fit(x[train])
    target = StandardScaler().fit(y[train, None])
    x, y = (
        torch.from_numpy(inputs.transform(x)),
        torch.from_numpy(target.transform(y[:, None]))[:, 0],
    )

    print(f"robot arm: {len(train)} training rows, {len(test)} test rows, {x.shape[1]} columns")
    print("test figures are on the standardised target; its noise has standard deviation 0.02\n")
    methods = {
        "SoftKI, all rows": soft_kernel_interpolation,
        f"exact GP, {SUBSET} rows": exact_gp_on_a_subset,
        "histogram boosting, all rows": histogram_gradient_boosting,
    }
    rows = []
    for name, method in methods.items():
        start = time.perf_counter()
        mean, variance = method(x[train], y[train], x[test])
        seconds = time.perf_counter() - start
        residual = y[test] - mean
        figures = (
            rmse(residual),
            float(gaussian_nll(residual, variance)),
            coverage(residual, variance),
        )
        rows.append((name, *figures, seconds))

    print(f"{'':30}{'RMSE':>8}{'NLL':>9}{'95% interval covers':>22}{'seconds':>10}")
    for name, error, nll, covered, seconds in rows:
        print(f"{name:30}{error:8.4f}{nll:9.3f}{covered:22.1%}{seconds:10.1f}")


if __name__ == "__main__":
    main()
