"""Whether QR factorisations of tall blocks pay: streamed statistics, with blocks as they come.

    .venv/bin/python benchmarks/tall_blocks.py

Microseconds a row of the square-root form at m = 512, in chunks of 1,024 rows, weights included.
"""

from __future__ import annotations

import time

import torch
from scale import start_model, table

from softki import FitSettings, statistics
from softki.batches import Data
from softki.training.fit import prepared
from softki.training.inference import statistics_of

ROWS, COLUMNS, POINTS = 40_960, 10, 512


def main() -> None:
    x, y = (torch.from_numpy(values) for values in table(ROWS, COLUMNS))
    data, settings = Data(x, y[:, None]), FitSettings(solver="qr")
    model = start_model(POINTS, COLUMNS, torch.device("cpu"))
    usual = statistics._TALL
    seconds: dict[str, list[float]] = {"as they come": [], "tall": []}
    with prepared():
        for _ in range(6):  # in turn, as the machine may be busy
            for name, times in (("as they come", 0), ("tall", usual)):
                statistics._TALL = times
                start = time.perf_counter()
                statistics_of(model, data, settings)
                seconds[name].append(time.perf_counter() - start)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    for name, all_seconds in seconds.items():
        print(f"{name:14}{1e6 * sorted(all_seconds[1:])[2] / ROWS:8.1f} µs a row")


if __name__ == "__main__":
    main()
