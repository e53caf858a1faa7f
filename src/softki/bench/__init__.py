"""The paper's experiments: data sets, methods, runs, tables and figures.

    softki bench run --data uci --methods softki,sgpr,svgp --seeds 3
    softki bench table uci-rmse
    softki bench figure ricker

`python -m softki.bench` is the same, and needs torch, gpytorch, scikit-learn and NumPy only.
"""
