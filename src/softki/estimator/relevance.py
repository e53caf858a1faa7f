"""How much each column matters to the posterior mean."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from softki.posterior.functions import Posterior

# Rows on which it is measured, at most.
_ROWS = 2000


def feature_relevance(posterior: Posterior, x: Tensor, seed: int = 0) -> np.ndarray:
    """The root mean square of ∂mean/∂xₖ over rows and targets, by column, summing to one.

    T enters through the weights and the lengthscales through the posterior. Unlike 1/(Tₖℓₖ) it
    also sees a column whose effect is linear, for which both are large. Where the mean is
    constant, all columns have the same share.

    Args:
        posterior: of a fit.
        x: standardised rows (n, d), of which a random sample is looked at.
        seed: of the sample.
    """
    generator = torch.Generator("cpu").manual_seed(seed)
    rows = torch.randperm(len(x), generator=generator, device="cpu")[:_ROWS]
    gradient = posterior.mean.gradient(x[rows.to(x.device)])  # (n, t, d)
    relevance = gradient.square().mean((0, 1)).sqrt()
    total = relevance.sum()
    equal = torch.full_like(relevance, 1 / len(relevance))
    return np.asarray(torch.where(total > 0, relevance / total, equal).cpu())
