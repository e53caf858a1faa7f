"""A Gaussian process written as directly as possible, in float64: what tests compare with."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

F64 = torch.float64


def weights(x: Tensor, z: Tensor, temperature: Tensor | float = 1.0) -> Tensor:
    """exp(−‖x/T − z‖), normalised, by an (n, m, d) tensor."""
    distance = (x[:, None, :] / temperature - z[None, :, :]).square().sum(-1).sqrt()
    unnormalised = torch.exp(-(distance - distance.min(1, keepdim=True).values))
    return unnormalised / unnormalised.sum(1, keepdim=True)


def matern32(z: Tensor, lengthscale: Tensor, outputscale: Tensor | float = 1.0) -> Tensor:
    """σ²(1 + √3 r) exp(−√3 r), with r = 0 put in by hand on the diagonal."""
    squared = ((z[:, None, :] - z[None, :, :]) / lengthscale).square().sum(-1)
    r = (squared + torch.eye(len(z), dtype=z.dtype)).sqrt() * (1 - torch.eye(len(z), dtype=z.dtype))
    return outputscale * (1 + math.sqrt(3) * r) * torch.exp(-math.sqrt(3) * r)


def with_jitter(K: Tensor, jitter: float = 1e-6) -> Tensor:
    return K + jitter * K.diagonal().mean() * torch.eye(len(K), dtype=K.dtype)


@dataclass
class DenseGP:
    """y = S u + ε with u ~ N(0, K), ε ~ N(0, β²σ²), by n×n matrices."""

    S: Tensor  # (n, m)
    K: Tensor  # (m, m)
    Y: Tensor  # (n, t)
    noise_variance: Tensor
    noise_std: Tensor | None = None

    @property
    def noise(self) -> Tensor:
        ones = torch.ones(len(self.S), dtype=F64)
        return self.noise_variance * (ones if self.noise_std is None else self.noise_std**2)

    @property
    def D(self) -> Tensor:
        return self.S @ self.K @ self.S.T + torch.diag(self.noise)

    def log_likelihood(self) -> Tensor:
        """Summed over targets."""
        return (
            MultivariateNormal(torch.zeros(len(self.S), dtype=F64), self.D).log_prob(self.Y.T).sum()
        )

    def mean(self, S_new: Tensor) -> Tensor:
        return S_new @ self.K @ self.S.T @ torch.linalg.solve(self.D, self.Y)

    def covariance(self, S_new: Tensor) -> Tensor:
        cross = S_new @ self.K @ self.S.T
        return S_new @ self.K @ S_new.T - cross @ torch.linalg.solve(self.D, cross.T)


@dataclass
class Problem:
    """A random regression problem with its weights and kernel matrix."""

    x: Tensor
    Y: Tensor
    z: Tensor
    x_new: Tensor
    temperature: Tensor
    lengthscale: Tensor
    noise_std: Tensor | None

    @property
    def S(self) -> Tensor:
        return weights(self.x, self.z, self.temperature)

    @property
    def S_new(self) -> Tensor:
        return weights(self.x_new, self.z, self.temperature)

    @property
    def K(self) -> Tensor:
        return with_jitter(matern32(self.z, self.lengthscale))

    def gp(self, noise_variance: float) -> DenseGP:
        return DenseGP(
            self.S, self.K, self.Y, torch.tensor(noise_variance, dtype=F64), self.noise_std
        )


def problem(
    n: int = 40, m: int = 12, d: int = 3, targets: int = 1, noisy_rows: bool = False, seed: int = 0
) -> Problem:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=F64)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, dtype=F64)

    x = normal(n, d)
    Y = torch.sin(x.sum(1, keepdim=True) + torch.arange(targets, dtype=F64)) + 0.1 * normal(
        n, targets
    )
    temperature = 0.5 + 0.5 * uniform(d)
    return Problem(
        x=x,
        Y=Y,
        z=1.5 * normal(m, d),
        x_new=normal(7, d),
        temperature=temperature,
        lengthscale=1 + uniform(d),
        noise_std=0.5 + uniform(n) if noisy_rows else None,
    )


def relative_error(value: Tensor, reference: Tensor) -> float:
    """‖value − reference‖ / ‖reference‖."""
    value, reference = value.detach().double(), reference.detach().double()
    difference = torch.linalg.vector_norm(value - reference)
    return float(difference / torch.linalg.vector_norm(reference))
