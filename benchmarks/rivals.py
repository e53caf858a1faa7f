"""What the engine is compared with: the published kit's step, and GPyTorch's SVGP and SGPR."""

from __future__ import annotations

import math

import gpytorch
import torch
from torch import Tensor, nn


class PublishedStep(nn.Module):
    """The step of the published kit: a b×m×d tensor of differences, and autograd throughout."""

    def __init__(self, x: Tensor, m: int) -> None:
        super().__init__()
        d = x.shape[1]
        self.z = nn.Parameter(x[:m].clone())
        self.temperature = nn.Parameter(torch.ones(d))
        self.log_lengthscale = nn.Parameter(torch.zeros(d))
        self.log_outputscale = nn.Parameter(torch.zeros(()))
        self.log_noise = nn.Parameter(torch.tensor(-2.0))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        distance = (x[:, None] / self.temperature - self.z).norm(dim=2)
        weights = torch.softmax(-distance, 1)
        scaled = self.z / self.log_lengthscale.exp()
        r = math.sqrt(3) * torch.cdist(scaled, scaled)
        K = self.log_outputscale.exp() * (1 + r) * torch.exp(-r)
        L = torch.linalg.cholesky(K + 1e-3 * torch.eye(len(K), device=K.device))
        noise = self.log_noise.exp().expand(len(x))
        normal = torch.distributions.LowRankMultivariateNormal(
            torch.zeros_like(y), weights @ L, noise
        )
        return -normal.log_prob(y) / len(x)


class SVGP(gpytorch.models.ApproximateGP):
    def __init__(self, z: Tensor) -> None:
        distribution = gpytorch.variational.CholeskyVariationalDistribution(len(z))
        super().__init__(gpytorch.variational.VariationalStrategy(self, z, distribution))
        self.mean_module = gpytorch.means.ConstantMean()
        base = gpytorch.kernels.MaternKernel(1.5, ard_num_dims=z.shape[1])
        self.covar_module = gpytorch.kernels.ScaleKernel(base)

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class SGPR(gpytorch.models.ExactGP):
    def __init__(self, x: Tensor, y: Tensor, m: int) -> None:
        likelihood = gpytorch.likelihoods.GaussianLikelihood()
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        base = gpytorch.kernels.MaternKernel(1.5, ard_num_dims=x.shape[1])
        self.covar_module = gpytorch.kernels.InducingPointKernel(
            gpytorch.kernels.ScaleKernel(base), x[:m].clone(), likelihood
        )

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))
