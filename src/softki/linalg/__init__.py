"""Products, distances and solvers of linear systems, on tensors and without Gaussian processes."""
