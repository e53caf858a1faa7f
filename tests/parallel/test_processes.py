"""Fits in 2 and 3 processes: the same as in one, and none waits for another for ever."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch

from softki import load
from softki.estimator import rows
from softki.parallel.groups import joined_processes
from softki.parallel.processes import Processes
from softki.statistics import Features, GramStatistics, SquareRootStatistics

import several_processes

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("processes")
    columns = {f"angle{k}": several_processes.X[:, k] for k in range(8)}
    table = pa.table({**columns, "reach": several_processes.Y})
    pq.write_table(table, folder / "arm.parquet", row_group_size=500)
    pa.csv.write_csv(table, folder / "arm.csv")
    return folder


@pytest.fixture(scope="module")
def alone(folder: Path) -> dict[str, several_processes.Figures]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOFTKI_TEST_FOLDER", str(folder))
        # Processes share rows of any number, which one process would read into memory.
        patch.setattr(rows, "IN_MEMORY_BYTES", 0)
        figures = {name: make(folder) for name, make in several_processes.FIGURES.items()}
    torch.set_num_threads(threads)
    return figures


def start(folder: Path, size: int) -> list[subprocess.Popen[str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    group = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(size),
        "SOFTKI_TEST_FOLDER": str(folder),
    }
    return [
        subprocess.Popen(
            [sys.executable, several_processes.__file__],
            env=ENVIRONMENT | group | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]


@pytest.mark.parametrize("size", [2, 3])
def test_a_fit_in_several_processes_is_that_in_one(
    size: int, folder: Path, alone: dict[str, several_processes.Figures]
) -> None:
    running = start(folder, size)
    outputs = [process.communicate(timeout=200)[0] for process in running]
    codes = [process.returncode for process in running]
    assert codes == [0] * (size - 1) + [17], "\n".join(outputs)
    assert all(output.endswith("done") for output in outputs[:-1]), outputs
    for name, expected in alone.items():
        found = np.load(folder / f"{name}-{size}.npz")
        assert set(found) == set(expected)
        np.testing.assert_array_equal(found["held out"], expected["held out"])
        if name == "minibatches":  # of other rows
            assert found["rmse"] == pytest.approx(expected["rmse"], rel=0.1)
            continue
        for key, value in expected.items():
            np.testing.assert_allclose(found[key], value, rtol=1e-8, atol=1e-10, err_msg=key)


def test_of_three_processes_the_first_has_no_held_out_rows(
    alone: dict[str, several_processes.Figures],
) -> None:
    assert alone["table"]["held out"].min() >= several_processes.CUTS[3][1]


def torchrun(
    folder: Path, command: list[str], output: str, restarts: int = 0
) -> subprocess.CompletedProcess[str]:
    run = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    fit = ["fit", "arm.parquet", "--target", "reach", "--points", "24", "--steps", "24"]
    more = ["--batch-size", "200", "--checkpoint", "saved", "-o", output, "--json"]
    done = subprocess.run(
        [sys.executable, *run, "--max-restarts", str(restarts), *command, *fit, *more],
        env=ENVIRONMENT,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_torchrun_fits_and_goes_on_where_a_process_has_died(folder: Path) -> None:
    done = torchrun(folder, ["-m", "softki"], "m.softki")
    assert done.stdout.count('"model": "m.softki"') == 1  # one process shows what there is
    model = load(folder / "m.softki")
    assert model.fit_report_.processes == 2
    assert "2 processes" in str(model.fit_report_)
    assert model.fit_report_.rows == several_processes.N
    again = torchrun(folder, [several_processes.__file__], "n.softki", restarts=1)
    assert again.stdout.count('"model": "n.softki"') == 1
    assert "killed in step 12" in again.stderr
    resumed = load(folder / "n.softki")
    assert [f.step for f in resumed.fit_report_.history] == list(range(1, 25))
    for name, value in model.fit_.model.state_dict().items():
        torch.testing.assert_close(resumed.fit_.model.state_dict()[name], value)
    assert not list((folder / "saved").iterdir())


def features(rows: int, known: bool) -> Features:
    weights = torch.rand(rows, 5, dtype=torch.float64)
    scale = torch.rand(rows, dtype=torch.float64) + 0.5 if known else None
    return Features(weights, torch.randn(rows, 2, dtype=torch.float64), scale)


@pytest.mark.parametrize("form", [GramStatistics, SquareRootStatistics])
def test_statistics_of_no_rows_add_nothing(form: type[GramStatistics]) -> None:
    some, none = features(30, known=True), features(0, known=True)
    whole, alone = form.from_blocks([some, none]), form.from_block(some)
    torch.testing.assert_close(whole.gram, alone.gram)
    torch.testing.assert_close(whole.cross, alone.cross)
    assert (whole.count, whole.log_noise) == (30, alone.log_noise)
    assert form.from_block(none).gram.count_nonzero() == 0


def test_a_process_alone_is_no_group() -> None:
    with joined_processes() as processes:
        assert processes is None


def test_shares_of_processes_are_all() -> None:
    parts = [Processes(rank, 4).share_of(10) for rank in range(4)]
    assert [k for part in parts for k in range(10)[part]] == list(range(10))
