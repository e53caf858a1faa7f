"""What each departure from the paper's settings does to test RMSE / NLL.

    SOFTKI_DATA=folder python benchmarks/choices.py --device cuda

One choice at a time is set back to the paper's: the start of the temperature, the learning rate,
early stopping with calibration. Data: UCI sets, and the molecule aspirin by its 210 inverse
interatomic distances; split as in uci.py, seed 0.
"""

import argparse
from dataclasses import replace

import torch
from uci import load, print_versions

from softki import FitSettings, SoftKI, fit
from softki.kernels.stationary import Matern32
from softki.metrics import gaussian_nll, rmse
from softki.training.initialization import initial_points

DEFAULT = FitSettings()
DATA = ["pol", "kin40k", "pumadyn32nm", "aspirin/inverse"]


def cold_start(x: torch.Tensor) -> SoftKI:
    """T = 1, and the points at the k-means centres themselves."""
    points = initial_points(x.float(), DEFAULT.points, torch.Generator().manual_seed(0))
    d = x.shape[1]
    return SoftKI(points, Matern32(d), torch.ones(d)).to(x.device)


VARIANTS = {
    "default": (DEFAULT, None),
    "T starts at 1": (DEFAULT, cold_start),
    "rate 0.01, constant": (replace(DEFAULT, learning_rate=0.01, schedule="constant"), None),
    "no held-out rows": (replace(DEFAULT, held_out=0.0), None),
    "no held-out rows, 3× steps": (replace(DEFAULT, held_out=0.0, steps=3 * DEFAULT.steps), None),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device
    print_versions(device)
    print("test RMSE / NLL, seed 0")
    sets = {name: load(name, seed=0) for name in DATA}
    print(f"{'':28}" + "".join(f"{name:>16}" for name in sets))
    for variant, (settings, start) in VARIANTS.items():
        cells = []
        for parts in sets.values():
            x, y, x_test, y_test = (part.to(device) for part in parts)
            result = fit(x, y, settings=settings, model=start(x) if start else None)
            mean, variance = result.posterior.predict(x_test)
            residual, total = y_test - mean[:, 0], variance + result.posterior.noise_variance
            cells.append(f"{rmse(residual):.3f} / {float(gaussian_nll(residual, total)):.2f}")
        print(f"{variant:28}" + "".join(f"{cell:>16}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
