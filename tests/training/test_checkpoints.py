"""A fit that is killed and started again gives the same model, to the last bit."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from gpytorch.kernels import MaternKernel
from sklearn.base import clone

from softki import (
    CheckpointWarning,
    Event,
    Fit,
    InvalidInputError,
    InvalidTypeError,
    NumericalError,
    SoftKI,
    SoftKIRegressor,
    TrainingWarning,
    fit,
    fit_rows,
    load,
)
from softki.cli.app import run as command_line
from softki.files import container as sealed
from softki.kernels.stationary import Matern32
from softki.objective.hutchinson import Hutchinson
from softki.streaming import StreamedRows, open_source
from softki.training import checkpoints
from softki.training.checkpoint_state import resume_training, training_state
from softki.training.checkpoints import fit_fingerprint
from softki.training.data import InMemoryRows
from softki.training.documents import State
from softki.training.initialization import new_report
from softki.training.trainer import Trainer
from softki.validation.inputs import checked_data

from killed_fits import CASES, SETTINGS, Server, result_of, rows

SMALL = replace(SETTINGS, steps=24)


class KilledError(Exception):
    """In the place of SIGKILL, where the process is that of the tests."""


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """As in the processes that are killed; such small fits are no quicker with more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture(scope="module")
def parquet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "arm.parquet"
    write_parquet(path, *rows(1200))
    return path


def write_parquet(path: Path, X: np.ndarray, y: np.ndarray) -> None:
    table = pa.table({f"angle{i}": X[:, i] for i in range(X.shape[1])} | {"reach": y})
    pq.write_table(table, path, row_group_size=100)


@pytest.fixture
def run(server: Server, parquet: Path, tmp_path: Path) -> Callable[..., int]:
    """Fit in a process of its own; how it ended."""

    number = itertools.count()

    def run(case: str, kind: str, *arguments: Any) -> int:
        job = {"case": case, "kind": kind, "arguments": arguments, "data": str(parquet)}
        job["out"], job["number"] = str(tmp_path / "result.json"), next(number)
        job["processes"] = 2 if case == "two processes" else 1
        job["folder"] = None if kind == "undisturbed" else str(tmp_path / "checkpoints")
        pid = server.begin(job)
        if kind == "time":
            time.sleep(arguments[0])
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return server.end()

    return run


def read(tmp_path: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((tmp_path / "result.json").read_text())
    (tmp_path / "result.json").unlink()
    return result


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("case", CASES)
def test_a_killed_fit_goes_on_to_the_same_bits(
    case: str, run: Callable[..., int], tmp_path: Path
) -> None:
    assert run(case, "undisturbed") == 0
    expected = read(tmp_path)
    chance = random.Random(case)
    moments = [
        ("step", chance.randint(5, 11)),
        ("write", chance.randint(1, 3), chance.choice(["half", "after"])),
        ("step", chance.randint(5, 8)),
        ("write", chance.randint(1, 2), "half"),
    ]
    ends = [run(case, *moment) for moment in moments]
    assert ends[:3] == 3 * [-signal.SIGKILL]  # a cross-validation may be done by then
    assert ends[3] in (0, -signal.SIGKILL)
    assert ends[3] == 0 or names(tmp_path / "checkpoints")
    assert run(case, "none") == 0
    assert read(tmp_path) == expected
    assert names(tmp_path / "checkpoints") == []


def test_killed_at_random_times_and_while_it_finishes(
    run: Callable[..., int], tmp_path: Path
) -> None:
    assert run("several", "undisturbed") == 0
    expected, chance = read(tmp_path), random.Random(0)
    for _ in range(4):
        run("several", "time", chance.uniform(0.05, 0.5))
    (tmp_path / "result.json").unlink(missing_ok=True)
    run("several", "finish")
    assert len(names(tmp_path / "checkpoints")) == 1
    assert run("several", "none") == 0
    assert read(tmp_path) == expected


def test_an_estimator_without_a_seed_goes_on_with_the_one_it_had(
    run: Callable[..., int], tmp_path: Path
) -> None:
    assert run("estimator", "write", 5, "after") == -signal.SIGKILL
    seed = checkpoints.saved_seed(tmp_path / "checkpoints")
    assert run("estimator", "none") == 0
    assert seed is not None
    assert read(tmp_path)["report"]["steps"] == "60"


def test_several_processes_go_on_from_what_the_first_has_saved(
    run: Callable[..., int], tmp_path: Path
) -> None:
    """Where one is killed, the other ends with an error, and both start again."""
    assert run("two processes", "undisturbed") == 0
    expected = read(tmp_path)
    assert run("two processes", "step", 20) == -signal.SIGKILL
    assert len(names(tmp_path / "checkpoints")) == 2
    assert run("two processes", "none") == 0
    assert read(tmp_path) == expected
    assert names(tmp_path / "checkpoints") == []


def left(folder: Path, steps: int = 13, **options: Any) -> None:
    """A fit that ends after so many steps, as if it were killed."""

    def count(event: Event) -> None:
        if event.step == steps:
            raise KilledError

    options = {"settings": SMALL, "checkpoint": folder, **options}
    with pytest.raises(KilledError):
        fit(*rows(), callbacks=[count], **options)


def steps_of(folder: Path, **options: Any) -> list[int]:
    """The steps that the same call does."""
    steps: list[int] = []
    options = {"settings": SMALL, "checkpoint": folder, **options}
    fit(*rows(), callbacks=[lambda event: steps.append(event.step)], **options)
    return steps


def same(one: Fit, other: Fit) -> bool:
    return result_of(one) == result_of(other)


def test_the_same_call_goes_on_where_it_was(tmp_path: Path) -> None:
    left(tmp_path)
    assert steps_of(tmp_path) == list(range(13, 25))
    assert names(tmp_path) == []
    assert steps_of(tmp_path) == list(range(1, 25))  # it was done, and starts anew


def test_a_checkpoint_is_no_model(tmp_path: Path) -> None:
    left(tmp_path)
    with pytest.raises(InvalidInputError, match="is a checkpoint of a fit that was not done"):
        load(next(tmp_path.iterdir()))


def test_no_more_than_two_are_kept(tmp_path: Path) -> None:
    seen: list[int] = []
    fit(
        *rows(),
        settings=SMALL,
        checkpoint=tmp_path,
        callbacks=[lambda event: seen.append(len(names(tmp_path)))],
    )
    assert seen[:4] == [0, 1, 2, 2]
    assert max(seen) == 2


def damage(path: Path, how: str) -> None:
    data = path.read_bytes()
    middle = len(data) // 2
    changed = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
    path.write_bytes({"cut": data[:middle], "changed": changed, "empty": b""}[how])


@pytest.mark.parametrize("how", ["cut", "changed", "empty"])
def test_a_damaged_file_is_passed_over(how: str, tmp_path: Path) -> None:
    left(tmp_path)
    newest = sorted(tmp_path.iterdir())[-1]
    damage(newest, how)
    with pytest.warns(CheckpointWarning, match=newest.name) as caught:
        steps = steps_of(tmp_path)
    assert steps == list(range(12, 25))
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_a_damaged_file_does_not_push_out_a_good_one(tmp_path: Path) -> None:
    left(tmp_path)
    damage(sorted(tmp_path.iterdir())[-1], "cut")
    with pytest.warns(CheckpointWarning):
        left(tmp_path, steps=13)
    assert names(tmp_path) == ["checkpoint-00000011.softki", "checkpoint-00000013.softki"]
    assert steps_of(tmp_path) == list(range(13, 25))


def test_a_file_that_cannot_be_read_yet_is_an_error_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left(tmp_path)
    monkeypatch.setattr(sealed, "FORMAT_VERSION", 0)  # of an older softki
    before = names(tmp_path)
    with pytest.raises(InvalidInputError, match="install a newer one"):
        steps_of(tmp_path)
    assert names(tmp_path) == before


def test_a_file_that_cannot_be_removed_does_not_lose_the_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left(tmp_path)
    usual = Path.unlink

    def unlink(path: Path, missing_ok: bool = False) -> None:
        if path.name.startswith("checkpoint-"):
            raise PermissionError(13, "Permission denied")
        usual(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink)
    with pytest.warns(CheckpointWarning, match="could not be removed: Permission denied"):
        steps_of(tmp_path)


def test_checkpoints_may_be_kept_until_the_result_is_written(tmp_path: Path) -> None:
    left(tmp_path)
    with suppress(KilledError), checkpoints.kept_until_the_end():
        steps_of(tmp_path)
        raise KilledError
    assert len(names(tmp_path)) == 2
    with checkpoints.kept_until_the_end():
        assert steps_of(tmp_path) == []  # all were done
        assert len(names(tmp_path)) == 2
    assert names(tmp_path) == []


def test_where_all_are_damaged_the_fit_starts_anew(tmp_path: Path) -> None:
    left(tmp_path)
    for path in tmp_path.iterdir():
        damage(path, "cut")
    with pytest.warns(CheckpointWarning, match="starts anew") as caught:
        assert steps_of(tmp_path) == list(range(1, 25))
    assert len(caught) == 2
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"settings": replace(SMALL, steps=40)}, "steps: 24, not 40"),
        ({"settings": replace(SMALL, seed=4)}, "seed: 3, not 4"),
        ({"settings": replace(SMALL, dtype=torch.float64)}, "dtype: float32, not float64"),
        ({"settings": [SMALL, SMALL]}, "1 settings to choose from, not 2"),
        ({"settings": replace(SMALL, objective=Hutchinson())}, "another objective"),
        ({"settings": replace(SMALL, kernel=MaternKernel(1.5))}, "another kernel"),
        ({"noise_variance": np.ones(500)}, "known noise: False, not True"),
        ({"model": SoftKI(torch.randn(8, 8), Matern32(8))}, "another model to start from"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_another_fit_is_refused(changed: dict[str, Any], message: str, tmp_path: Path) -> None:
    left(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(InvalidInputError, match=r"another fit.*another folder, or delete") as error:
        steps_of(tmp_path, **changed)
    assert message in str(error.value)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_other_rows_are_refused(tmp_path: Path) -> None:
    left(tmp_path)
    X, y = rows()
    changed = X.copy()
    changed[77, 3] += 1e-3
    for some, message in [
        ((X[:400], y[:400]), "rows: 500, not 400"),
        ((X[:, :5], y), "columns: 8, not 5"),
        ((X, np.stack([y, y], 1)), "targets: 1, not 2"),
        ((changed, y), "other values in the rows"),
        ((X, y[::-1].copy()), "other values in the rows"),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            fit(*some, settings=SMALL, checkpoint=tmp_path)


def test_files_are_known_by_what_is_in_them(tmp_path: Path) -> None:
    """A copy of them will do, wherever it is; one other number will not."""
    X, y = rows()
    write_parquet(tmp_path / "one.parquet", X, y)
    write_parquet(tmp_path / "copy.parquet", X, y)
    X = X.copy()
    X[400, 2] += 1e-3
    write_parquet(tmp_path / "other.parquet", X, y)

    def identity(name: str) -> dict[str, Any]:
        source = open_source(tmp_path / f"{name}.parquet", "reach")
        return fit_fingerprint([SMALL], StreamedRows.open(source, SMALL.seed), None)

    assert identity("one") == identity("copy") != identity("other")


def test_streamed_rows_are_not_those_in_memory(tmp_path: Path) -> None:
    left(tmp_path)
    streamed = StreamedRows.open(open_source(*rows()), SMALL.seed)
    with pytest.raises(InvalidInputError, match="streamed: False, not True"):
        fit_rows(streamed, settings=SMALL, checkpoint=tmp_path)


def test_identities_do_not_depend_on_the_process() -> None:
    """Objects that are described by where they are in memory."""
    data = InMemoryRows.whole(checked_data(*rows(), None, torch.float32, None))

    def identity() -> dict[str, Any]:
        generator = torch.Generator().manual_seed(0)
        objective = Hutchinson(generator=generator)
        settings = replace(SMALL, objective=objective, kernel=MaternKernel(1.5), points=np.int64(8))
        return fit_fingerprint([settings], data, None)

    assert identity() == identity() == json.loads(json.dumps(identity()))


@pytest.mark.parametrize("place", ["a file", "below a file", "no permission"])
def test_a_folder_that_cannot_be_written_to_is_an_error_before_training(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("mine")
    folder = {"a file": tmp_path / "file", "below a file": tmp_path / "file" / "folder"}.get(
        place, tmp_path / "folder"
    )
    if place == "no permission":  # which root always has

        def refuse(dir: Path) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(checkpoints.tempfile, "TemporaryFile", refuse)
    for fails in (
        lambda: steps_of(folder),
        lambda: SoftKIRegressor(checkpoint=folder).fit(*rows()),
    ):
        with pytest.raises(InvalidInputError, match=f"cannot write checkpoints to {folder}"):
            fails()
    assert (tmp_path / "file").read_text() == "mine"


def test_what_is_no_folder_is_an_error() -> None:
    with pytest.raises(InvalidTypeError, match="checkpoint must be the name of a folder, got int"):
        fit(*rows(), settings=SMALL, checkpoint=3)  # type: ignore[arg-type]


def test_a_full_disk_does_not_end_the_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = fit(*rows(), settings=SMALL)

    def full(path: Path, data: bytes) -> None:
        raise InvalidInputError(f"cannot write {path}: No space left on device")

    monkeypatch.setattr(checkpoints, "write_atomically", full)
    with pytest.warns(CheckpointWarning, match="goes on.*No space left") as caught:
        result = fit(*rows(), settings=SMALL, checkpoint=tmp_path)
    assert caught[0].filename == __file__
    assert same(result, expected)


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / ".softki-0123456789abcdef.tmp").write_text("of a process that was killed")
    left(tmp_path)
    steps_of(tmp_path)
    assert names(tmp_path) == ["notes.txt"]


def test_an_interrupted_fit_is_a_result_and_may_go_on(tmp_path: Path) -> None:
    def interrupt(event: Event) -> None:
        if event.step == 13:
            raise KeyboardInterrupt

    expected = fit(*rows(), settings=SMALL)
    with pytest.warns(TrainingWarning, match="interrupted"):
        early = fit(*rows(), settings=SMALL, callbacks=[interrupt], checkpoint=tmp_path)
    assert early.report.stopped == "interrupted"
    assert early.report.steps == 13
    assert same(fit(*rows(), settings=SMALL, checkpoint=tmp_path), expected)
    assert names(tmp_path) == []


def test_a_killed_cross_validation_starts_anew(tmp_path: Path) -> None:
    X, y = rows(90)
    settings, count = replace(SMALL, folds=3), 0
    expected = fit(X, y, settings=settings)

    def killed(event: Event) -> None:
        nonlocal count
        count += 1
        if count == 40:
            raise KilledError

    with pytest.raises(KilledError):
        fit(X, y, settings=settings, callbacks=[killed], checkpoint=tmp_path)
    assert names(tmp_path) == []
    assert same(fit(X, y, settings=settings, checkpoint=tmp_path), expected)


def test_skipped_steps_in_a_row_are_counted_on(tmp_path: Path) -> None:
    """The fit gives up after as many as it would have."""

    def objective(*arguments: Any) -> Any:
        raise NumericalError("no gradient")

    settings = replace(SMALL, objective=objective)
    left(tmp_path, steps=4, settings=settings)
    with pytest.warns(TrainingWarning, match="5 steps in a row were skipped: no gradient"):
        assert steps_of(tmp_path, settings=settings) == [4, 5]


def test_times_and_counts_go_on(tmp_path: Path) -> None:
    """The report is that of the whole fit."""
    seconds: list[float] = []

    def slow(event: Event) -> None:
        time.sleep(0.02)
        seconds.append(0.02)
        if event.step == 13 and len(seconds) == 13:
            raise KilledError

    with pytest.raises(KilledError):
        fit(*rows(), settings=SMALL, callbacks=[slow], checkpoint=tmp_path)
    report = fit(*rows(), settings=SMALL, callbacks=[slow], checkpoint=tmp_path).report
    assert report.seconds["training"] > 24 * 0.02
    assert [figures.step for figures in report.history] == list(range(1, 25))


def test_a_gpytorch_kernel_and_a_model_of_the_users(tmp_path: Path) -> None:
    settings = replace(SMALL, kernel=MaternKernel(1.5, ard_num_dims=8))
    expected = fit(*rows(), settings=settings)
    left(tmp_path, settings=settings)
    assert same(fit(*rows(), settings=settings, checkpoint=tmp_path), expected)

    def model() -> SoftKI:
        return SoftKI(torch.tensor(rows()[0][:10]), Matern32(8), temperature=1.0)

    expected = fit(*rows(), settings=SMALL, model=model())
    left(tmp_path, model=model())
    again = model()
    result = fit(*rows(), settings=SMALL, model=again, checkpoint=tmp_path)
    assert same(result, expected)
    assert result.model is again


def test_the_moments_of_adam_come_back(tmp_path: Path) -> None:
    """With the groups that the optimizer has; a learning rate in a tensor is not lost."""

    def trainer() -> Trainer:
        data = InMemoryRows.whole(checked_data(*rows(60), None, torch.float32, "cpu"))
        model = SoftKI(torch.randn(5, data.dimension).double(), Matern32(data.dimension))
        return Trainer(model, data, SMALL, new_report(model, data, SMALL, {}))

    before, after = trainer(), trainer()
    before.step(1)
    kept = checkpoints.CheckpointFolder(tmp_path, {})
    kept.save(lambda: training_state(before))
    found = checkpoints.CheckpointFolder(tmp_path, {}).found
    assert found is not None
    resume_training(after, found)
    one, other = before.optimizer, after.optimizer
    for one_group, other_group in zip(one.param_groups, other.param_groups, strict=True):
        assert other_group["peak"] == one_group["peak"]
        for a, b in zip(one_group["params"], other_group["params"], strict=True):
            assert a is not b
            for key, value in one.state[a].items():
                assert torch.equal(value, other.state[b][key])
                assert value.dtype == other.state[b][key].dtype


class TestEstimator:
    def test_goes_on_and_keeps_the_folder_to_itself(self, tmp_path: Path) -> None:
        X, y = rows(1200)
        options = {"points": 12, "steps": 50, "random_state": 0}
        expected = SoftKIRegressor(**options).fit(X, y)
        model = SoftKIRegressor(**options, checkpoint=tmp_path / "fit")
        assert clone(model).get_params() == model.get_params()
        model.fit(X, y)
        assert (model.predict(X) == expected.predict(X)).all()
        assert names(tmp_path / "fit") == []
        model.save(tmp_path / "model.softki")
        assert load(tmp_path / "model.softki").checkpoint is None


def test_the_command_line_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_parquet(tmp_path / "arm.parquet", *rows(1200))
    command = ["fit", str(tmp_path / "arm.parquet"), "--target", "reach", "--points", "12"]
    command += ["--steps", "50", "--checkpoint", str(tmp_path / "fit")]
    command += ["-o", str(tmp_path / "model.softki")]
    save, count = checkpoints.CheckpointFolder.save, 0

    def killed(self: Any, make: Callable[[], State]) -> None:
        nonlocal count
        save(self, make)
        count += 1
        if count == 5:
            raise KilledError

    monkeypatch.setattr(checkpoints.CheckpointFolder, "save", killed)
    assert command_line([*command, "--quiet"]) != 0
    assert len(names(tmp_path / "fit")) == 2
    assert not (tmp_path / "model.softki").exists()
    assert command_line([*command, "--quiet"]) == 0
    assert count == 17
    assert names(tmp_path / "fit") == []
    assert load(tmp_path / "model.softki").fit_report_.steps == 50
    assert (
        command_line([*command[:-4], "--checkpoint", str(tmp_path / "arm.parquet"), *command[-2:]])
        == 2
    )
    assert "cannot write checkpoints to" in capsys.readouterr().err
