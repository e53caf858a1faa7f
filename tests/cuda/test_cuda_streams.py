"""Rows that are streamed to a GPU, and processes that share one."""

from __future__ import annotations

import socket
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from softki import FitSettings, SoftKIRegressor, fit, fit_rows
from softki.data import robot_arm
from softki.estimator import rows as user_rows
from softki.streaming import StreamedRows, blocks, open_source
from softki.streaming.streamed_rows import Chunks

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")

F64 = torch.float64
X, Y = robot_arm(6000)
CUTS = {1: [0, 6000], 2: [0, 1500, 6000]}


def batches() -> list[tuple[np.ndarray, np.ndarray]]:
    return [(X[k : k + 900], Y[k : k + 900]) for k in range(0, len(X), 900)]


@pytest.mark.parametrize("solver", ["qr", "whitened"])
def test_the_same_rows_give_the_same_fit(solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all rows in each step; what differs is the order of sums."""
    monkeypatch.setattr(blocks, "_BLOCK_ROWS", 700)
    data = StreamedRows.open(open_source(batches()), held_out_share=0.0, dtype=F64, device="cuda")
    x = data.standardizer.x.transform(torch.from_numpy(X).cuda())
    y = data.standardizer.y.transform(torch.from_numpy(Y)[:, None].cuda())
    settings = FitSettings(
        points=48, steps=12, dtype=F64, batch_size=None, held_out=0.0, solver=solver
    )
    in_memory = fit(x, y, settings=settings)
    begun = fit(x, y, settings=FitSettings(points=48, steps=0, dtype=F64, held_out=0.0)).model
    streamed = fit_rows(data, settings=settings, model=begun)
    assert streamed.report.device.startswith("cuda")
    for name, value in in_memory.model.state_dict().items():
        other = streamed.model.state_dict()[name]
        torch.testing.assert_close(other, value, rtol=1e-6, atol=1e-6, msg=name)
    for ours, theirs in zip(
        streamed.posterior.predict(x[::7]), in_memory.posterior.predict(x[::7]), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_rows_on_a_device_are_those_here(dtype: torch.dtype) -> None:
    """Chunks and minibatches, which a GPU standardises itself, but for rounding."""
    here, there = (
        StreamedRows.open(open_source(X, Y, np.abs(X[:, 0]) + 1), dtype=dtype, device=device)
        for device in ("cpu", "cuda")
    )
    pairs = list(zip(Chunks(here, 700), Chunks(there, 700), strict=True))
    ours, theirs = here.minibatches(500, seed=0), there.minibatches(500, seed=0)
    pairs += [(ours.batch(step), theirs.batch(step)) for step in range(25)]
    for expected, found in pairs:
        for one, other in zip(expected, found, strict=True):
            assert one is not None
            assert other is not None
            rounding = 2 * torch.finfo(dtype).eps
            torch.testing.assert_close(other.cpu(), one, rtol=rounding, atol=0)


def test_minibatches_of_a_stream_learn_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_rows, "IN_MEMORY_BYTES", 0)
    parameters = {"points": 64, "steps": 100, "batch_size": 512, "device": "cuda"}
    streamed = SoftKIRegressor(**parameters, random_state=0).fit(batches())
    in_memory = SoftKIRegressor(**parameters, random_state=0).fit(X, Y)
    assert streamed.fit_report_.is_streamed
    assert streamed.fit_report_.backend == "Triton kernels in a CUDA graph"
    new_x, new_y = robot_arm(2000, seed=1)
    errors = [np.std(new_y - model.predict(new_x)) for model in (streamed, in_memory)]
    assert errors[0] < 1.2 * errors[1]


@pytest.mark.parametrize("solver", ["qr", "whitened"])
def test_two_processes_on_one_gpu_fit_as_one(solver: str, tmp_path: Path) -> None:
    """They talk over gloo, as NCCL wants a GPU for each."""
    for count in (1, 2):
        arguments = (count, _free_port(), solver, str(tmp_path / f"{count}.npz"))
        mp.spawn(_fit_own_rows, arguments, nprocs=count)
    one, two = (np.load(tmp_path / f"{count}.npz") for count in (1, 2))
    for name in one.files:
        np.testing.assert_allclose(two[name], one[name], rtol=1e-6, atol=1e-6, err_msg=name)


def _fit_own_rows(rank: int, count: int, port: int, solver: str, file: str) -> None:
    address = f"tcp://127.0.0.1:{port}"
    limit = timedelta(seconds=120)
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=count, timeout=limit)
    own = slice(*CUTS[count][rank : rank + 2])
    model = SoftKIRegressor(
        points=32,
        steps=10,
        batch_size=None,
        dtype="float64",
        held_out=0.1,
        solver=solver,
        device="cuda",
        random_state=0,
    ).fit([(X[own], Y[own])])
    assert model.fit_report_.processes == count
    assert model.fit_report_.device.startswith("cuda")
    mean, std = model.predict(X[:200], return_std=True)
    if rank == 0:
        np.savez(file, mean=mean, std=std, points=model.fit_.model.points.detach().cpu().numpy())
    dist.destroy_process_group()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
