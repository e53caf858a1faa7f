"""Test RMSE, NLL and coverage of the default fit on UCI data sets, with its time.

    SOFTKI_DATA=folder python benchmarks/uci.py pol elevators --seeds 1 --device cpu

takes 90% of the rows for training, the same rows as `softki.data.split_indices`, and standardises
by the training rows. Test rows are
used for the last line of each fit only.
"""

import argparse
import platform
import time

import gpytorch
import numpy as np
import torch
from sklearn.preprocessing import StandardScaler

import softki
from softki.bench import datasets
from softki.data import split_indices
from softki.interpolation import backends
from softki.kernels import matrix as kernels
from softki.linalg import products
from softki.metrics import coverage, gaussian_nll, rmse


def load(name: str, seed: int) -> list[torch.Tensor]:
    """Training inputs and target, test inputs and target, standardised by the training rows."""
    data = datasets.load(name)
    table = np.column_stack([data.X, data.y])
    train, test = split_indices(len(table), seed)
    table = StandardScaler().fit(table[train]).transform(table)
    parts = table[train, :-1], table[train, -1], table[test, :-1], table[test, -1]
    return [torch.from_numpy(part) for part in parts]


def print_versions(device: str) -> None:
    on_gpu = device.startswith("cuda")
    where = torch.cuda.get_device_name() if on_gpu else f"{torch.get_num_threads()} CPU threads"
    print(
        f"softki {softki.__version__}, torch {torch.__version__}, gpytorch {gpytorch.__version__}, "
        f"Python {platform.python_version()}, {where}"
    )


def measure(name: str, seed: int, device: str) -> None:
    x, y, x_test, y_test = load(name, seed)
    start = time.perf_counter()
    result = softki.fit(x, y, settings=softki.FitSettings(seed=seed), device=device)
    seconds = time.perf_counter() - start
    mean, variance = (part.cpu() for part in result.posterior.predict(x_test.to(device)))
    residual = y_test - mean[:, 0]
    total = variance + result.posterior.noise_variance.cpu()
    print(
        f"{name:14} {len(x):6d} × {x.shape[1]:3d}  seed {seed}  RMSE {rmse(residual):.4f}  "
        f"NLL {float(gaussian_nll(residual, total)):6.3f}  "
        f"95% interval covers {coverage(residual, total):.3f}  {seconds:5.1f} s"
    )
    print("    " + str(result.report).replace("\n", "\n    "), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=["pol"])
    parser.add_argument("--seeds", type=int, default=1, help="how many splits, from seed 0")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--plain", action="store_true", help="the plain backend on a GPU too")
    arguments = parser.parse_args()
    if arguments.plain:
        for module in (backends, kernels, products):
            setattr(module, "triton_trouble", lambda: "asked")  # noqa: B010
    print_versions(arguments.device)
    for name in arguments.names:
        for seed in range(arguments.seeds):
            measure(name, seed, arguments.device)


if __name__ == "__main__":
    main()
