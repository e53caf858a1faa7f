"""How a fit scales: over processes, and from host memory to a GPU.

    .venv/bin/python benchmarks/scale.py [--json FILE]                  # 1 and 2 processes, CPU
    .venv/bin/python benchmarks/scale.py --device cuda [--json FILE]    # host memory to one GPU

Seconds of one exact gradient on all rows, of one minibatch step, and of the statistics of a
posterior: with one thread a process on a CPU, and on a GPU with rows in its memory or in that of
the host. Each is a median; what softki does is what a fit does. `benchmarks/streaming.py` has the
time and memory of whole fits to files.
"""

from __future__ import annotations

import argparse
import json
import math
import socket
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from uci import print_versions

from softki import FitSettings, SoftKI
from softki.batches import Data
from softki.kernels.stationary import Matern32
from softki.objective.exact_likelihood import backward, exact
from softki.parallel.groups import joined_processes
from softki.parallel.processes import Processes
from softki.streaming import StreamedRows, open_source
from softki.training.data import InMemoryRows, TrainingData
from softki.training.fit import prepared
from softki.training.inference import statistics_of

CPU = {"rows": 200_000, "columns": 10, "points": 512, "batch": 4096}
CUDA = {"rows": 20_000_000, "columns": 11, "points": 512, "batch": 8192}
Figures = dict[str, float]


def table(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).standard_normal((rows, columns), dtype=np.float32)
    return x, np.sin(2 * x[:, 0])


def start_model(points: int, columns: int, device: torch.device) -> SoftKI:
    generator = torch.Generator().manual_seed(0)
    T = 0.2 * math.sqrt(columns)
    z = torch.randn(points, columns, generator=generator) / T
    return SoftKI(z, Matern32(columns), torch.full((columns,), T), 0.01).to(device)


def median(work: Callable[[], object], device: torch.device, repeats: int = 5) -> float:
    """Seconds of one call, the first apart."""
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - start)
    return sorted(seconds[1:])[repeats // 2]


def measure(data: TrainingData, size: dict[str, int]) -> Figures:
    """Seconds of a full gradient, of a step of a minibatch, and of the posterior's statistics."""
    device = data.device
    model = start_model(size["points"], size["columns"], device)
    minibatches = data.minibatches(size["batch"], 0)
    step = iter(range(10**9))

    def all_rows() -> None:
        model.zero_grad()
        backward(model, data.chunks(size["points"]), exact)

    def minibatch() -> None:
        model.zero_grad()
        backward(model, [minibatches.batch(next(step))], exact)

    settings = {solver: FitSettings(solver=solver) for solver in ("whitened", "qr")}
    repeats = {"whitened": 3, "qr": 3 if device.type == "cpu" else 1}
    with prepared():
        figures = {
            "gradient of all rows": median(all_rows, device, 3),
            "step of a minibatch": median(minibatch, device, 30),
        }
        for solver, name in (("whitened", "Gram"), ("qr", "square root")):
            work = partial(statistics_of, model, data, settings[solver])
            figures[f"statistics, {name}"] = median(work, device, repeats[solver])
    minibatches.close()
    return figures


def one_of(rank: int, count: int, port: int, size: dict[str, int], queue: Any) -> None:
    """What each process does: it has its share of the rows."""
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    limit = timedelta(seconds=300)
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=count, timeout=limit)
    x, y = table(size["rows"], size["columns"])
    own = slice(rank * len(x) // count, (rank + 1) * len(x) // count)
    with joined_processes() as processes:
        rows = StreamedRows.open(
            open_source(x[own], y[own]), held_out_share=0.0, processes=processes
        )
        figures = measure(rows, size)
        if processes is not None:
            figures["message of statistics"] = message(processes, size["points"] ** 2)
    if rank == 0:
        queue.put(figures)
    dist.destroy_process_group()


def message(processes: Processes, numbers: int) -> float:
    tensor = torch.zeros(numbers, dtype=torch.float64)
    return median(lambda: processes.sum([tensor]), torch.device("cpu"), 20)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def over_processes(size: dict[str, int]) -> dict[str, Figures]:
    results = {}
    for count in (1, 2):
        context = mp.get_context("spawn")
        queue = context.SimpleQueue()
        mp.spawn(  # type: ignore[attr-defined]
            one_of, (count, free_port(), size, queue), nprocs=count
        )
        results[f"{count} process{'es'[: 2 * (count > 1)]}"] = queue.get()
    return results


def from_host(size: dict[str, int]) -> dict[str, Figures]:
    device = torch.device("cuda")
    x, y = table(size["rows"], size["columns"])
    streamed = StreamedRows.open(open_source(x, y), held_out_share=0.0, device=device)
    results = {"host memory": measure(streamed, size)}
    data = Data(torch.from_numpy(x).to(device), torch.from_numpy(y)[:, None].to(device))
    results["GPU memory"] = measure(InMemoryRows.whole(data), size)
    return results


def show(results: dict[str, Figures], size: dict[str, int]) -> None:
    names = list(results)
    print(f"\n{size['rows']:,} × {size['columns']} rows, {size['points']} points")
    print(f"{'seconds':24}" + "".join(f"{name:>16}" for name in names) + f"{'ratio':>10}")
    for what in results[names[0]]:
        times = [results[name][what] for name in names]
        ratio = f"{times[0] / times[1]:10.2f}" if len(times) > 1 else ""
        print(f"{what:24}" + "".join(f"{value:16.4f}" for value in times) + ratio)
    for what in ("gradient of all rows", "statistics, Gram"):
        rates = [size["rows"] / results[name][what] for name in names]
        print(f"{what:24}" + "".join(f"{rate:>12,.0f}/s" + "  " for rate in rates) + " rows")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--rows", type=int, help="fewer than the usual")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args()
    print_versions(arguments.device)
    size = dict(CPU if arguments.device == "cpu" else CUDA)
    if arguments.rows is not None:
        size["rows"] = arguments.rows
    results = over_processes(size) if arguments.device == "cpu" else from_host(size)
    show(results, size)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"size": size, "seconds": results}, indent=1))


if __name__ == "__main__":
    main()
