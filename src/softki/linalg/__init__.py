"""Products, distances and solvers of linear systems: tensors only, no Gaussian process."""
