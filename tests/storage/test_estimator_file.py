"""A loaded estimator is the saved one, to the bit; a file that is not whole is never loaded."""

from __future__ import annotations

import copy
import json
import math
import os
import pickle
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gpytorch
import numpy as np
import pandas as pd
import pytest
import safetensors
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression

import softki
from softki import FitSettings, InvalidInputError, InvalidTypeError, SoftKIRegressor
from softki.files.container import FORMAT_VERSION, seal, unseal
from softki.kernels.stationary import RBF, Matern32, Matern52, RationalQuadratic, StationaryKernel
from softki.objective.hutchinson import Hutchinson
from softki.storage import load, read_metadata, save

N, D = 211, 3  # a number of rows that no shape of the model has


def table(n: int = N, seed: int = 0, targets: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    g = np.random.default_rng(seed)
    x = g.normal(size=(n, D)) * [1.0, 50.0, 1e-3] + [0.0, 1e4, 5.0]
    s = (x - [0.0, 1e4, 5.0]) / [1.0, 50.0, 1e-3]
    y = 100 * np.sin(2 * s[:, 0]) + 20 * s[:, 1] + g.normal(size=n)
    return x, y if targets is None else np.stack([y * 10**k for k in range(targets)], 1)


def fitted(targets: int | None = None, noise: bool = False, **parameters: Any) -> SoftKIRegressor:
    quick = {"points": 16, "steps": 20, "held_out": 0.1, "random_state": 0, "device": "cpu"}
    x, y = table(targets=targets)
    known = np.random.default_rng(1).uniform(0.5, 2, N) if noise else None
    return SoftKIRegressor(**(quick | parameters)).fit(x, y, known)


def own_kernel() -> StationaryKernel:
    kernel = Matern52(D, lengthscale=0.7, outputscale=2.0, max_lengthscale=3.0)
    kernel.log_outputscale.requires_grad_(False)
    return kernel


class Cauchy(StationaryKernel):
    """A kernel of the user's own."""

    def correlation(self, r: torch.Tensor) -> torch.Tensor:
        return 1 / (1 + r.square())


def gpytorch_kernel() -> gpytorch.kernels.Kernel:
    return gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=D))


@pytest.fixture(scope="module")
def model() -> SoftKIRegressor:
    return fitted()


@pytest.fixture(scope="module")
def foreign() -> SoftKIRegressor:
    return fitted(kernel=gpytorch_kernel())


@pytest.fixture(scope="module")
def good(model: SoftKIRegressor, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("good") / "model.softki"
    save(model, path)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.softki"


def round_trip(model: SoftKIRegressor, path: Path) -> SoftKIRegressor:
    save(model, path)
    return load(path, device="cpu")


def results(model: SoftKIRegressor) -> dict[str, Any]:
    """Everything that an estimator says."""
    x, _ = table(70, seed=2)
    mean, std = model.predict(x, return_std=True)
    return {
        "mean": mean,
        "std": std,
        "std of f": model.predict(x, return_std=True, of="f")[1],
        "covariance": model.predict(x, return_cov=True)[1],
        "quantiles": model.predict_quantiles(x),
        "draws": model.sample_y(x, 3, random_state=5),
        "functions": model.sample_functions(2, random_state=6)(x),
        "gradient": model.predict_gradient(x),
        "log p": model.log_marginal_likelihood(),
        "tensor": model.predict(torch.tensor(x, dtype=torch.float32)).numpy(),
        "relevance": model.feature_relevance_,
        "report": replace(model.fit_report_, seconds={}),
    }


def assert_same(left: SoftKIRegressor, right: SoftKIRegressor) -> None:
    expected, got = results(left), results(right)
    for name, value in expected.items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(got[name], value, err_msg=name)
        else:
            assert got[name] == value, name


CASES: dict[str, Callable[[], SoftKIRegressor]] = {
    "default": fitted,
    "folds": lambda: fitted(held_out="auto"),
    "whitened": lambda: fitted(solver="whitened"),
    "cholesky": lambda: fitted(solver="cholesky"),
    "targets": lambda: fitted(targets=3),
    "one column of y": lambda: fitted(targets=1),
    "noise": lambda: fitted(noise=True),
    "float64": lambda: fitted(dtype="float64", batch_size=None, held_out=0.0),
    "rq": lambda: fitted(kernel="rq"),
    "own kernel": lambda: fitted(kernel=own_kernel()),
    "kernel of the user's": lambda: fitted(kernel=Cauchy(D)),
    "gpytorch": lambda: fitted(kernel=gpytorch_kernel()),
    "hutchinson": lambda: fitted(objective=Hutchinson(probes=4)),
}


@pytest.mark.parametrize("case", CASES)
def test_a_loaded_model_is_the_saved_one_and_goes_on_like_it(case: str, path: Path) -> None:
    model = CASES[case]()
    loaded = round_trip(model, path)
    assert_same(model, loaded)
    assert vars(model).keys() == vars(loaded).keys()
    targets = None if model.single_target_ else len(model.y_standardizer_.scale)
    rows = table(40, seed=3, targets=targets)
    noise = np.linspace(1, 2, 40) if case == "noise" else None
    assert_same(model.partial_fit(*rows, noise), loaded.partial_fit(*rows, noise))
    assert_same(model, round_trip(loaded, path))


def test_fewer_rows_than_points_and_targets(path: Path) -> None:
    """The factor of the statistics is then not square."""
    x, y = table(targets=6)
    model = SoftKIRegressor(points=16, steps=20, random_state=0, held_out=0.0, device="cpu")
    model.fit(x[:5], y[:5])
    assert_same(model, round_trip(model, path))


@pytest.mark.parametrize("temperature", ["one", "none"])
def test_other_temperatures(model: SoftKIRegressor, path: Path, temperature: Any) -> None:
    x, y = table()
    other = copy.copy(model)
    other.fit_ = softki.fit(
        model.x_standardizer_.transform(torch.tensor(x)),
        model.y_standardizer_.transform(torch.tensor(y)[:, None]),
        settings=FitSettings(points=16, steps=10, temperature=temperature),
    )
    assert_same(other, round_trip(other, path))


def test_all_of_the_state_is_kept(model: SoftKIRegressor, path: Path) -> None:
    loaded = round_trip(model, path)
    assert loaded.get_params() == model.get_params()
    assert vars(loaded.fit_.settings) == vars(model.fit_.settings)
    assert vars(loaded.fit_.report) == vars(model.fit_.report)
    assert type(loaded.fit_.report.fallbacks) is type(model.fit_.report.fallbacks)
    assert loaded.n_features_in_ == D
    assert not hasattr(loaded, "feature_names_in_")
    assert len(loaded.fit_.held_out) == 0
    before, after = model.fit_.model.state_dict(), loaded.fit_.model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert all(p.requires_grad for p in loaded.fit_.model.parameters())
    for part in ("posterior", "statistics"):
        expected, got = vars(getattr(model.fit_, part)), vars(getattr(loaded.fit_, part))
        assert expected.keys() == got.keys()
        for name, value in expected.items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(value, got[name])
                assert value.stride() == got[name].stride()
                assert not got[name].requires_grad
            else:
                assert value == got[name]


def test_a_clone_of_a_loaded_model_fits_like_one_of_the_saved(path: Path) -> None:
    model = fitted(kernel=own_kernel())
    first, second = clone(model), clone(round_trip(model, path))
    assert first.kernel.max_lengthscale == second.kernel.max_lengthscale
    assert not second.kernel.log_outputscale.requires_grad
    assert_same(first.fit(*table()), second.fit(*table()))


@pytest.mark.parametrize("kind", [RBF, Matern32, RationalQuadratic])
def test_a_kernel_that_is_a_parameter_is_kept_as_it_was_given(
    kind: type[StationaryKernel], path: Path
) -> None:
    given_kernel = kind(D, max_lengthscale=0.9, lengthscale=0.5)
    kept = round_trip(fitted(kernel=given_kernel), path).kernel
    assert type(kept) is kind
    assert kept.max_lengthscale == 0.9
    for name, value in given_kernel.state_dict().items():
        assert torch.equal(kept.state_dict()[name], value)


def test_column_names_are_kept(path: Path) -> None:
    x, y = table()
    frame = pd.DataFrame(x, columns=["länge", 'a "b"', "☃"])
    model = SoftKIRegressor(points=16, steps=5, random_state=0, device="cpu").fit(frame, y)
    loaded = round_trip(model, path)
    np.testing.assert_array_equal(loaded.feature_names_in_, model.feature_names_in_)
    assert loaded.feature_names_in_.dtype == object
    assert read_metadata(path)["columns"] == list(frame.columns)
    np.testing.assert_array_equal(loaded.predict(frame), model.predict(frame))
    with pytest.raises(InvalidInputError, match="order"):
        loaded.predict(frame[frame.columns[::-1]])


def test_numbers_of_numpy_serve_as_parameters(path: Path) -> None:
    model = fitted(
        points=np.int64(8), steps=np.int32(20), learning_rate=np.float32(0.05), verbose=np.False_
    )
    assert round_trip(model, path).get_params() == model.get_params()


def test_a_device_becomes_its_name_and_a_generator_none(path: Path) -> None:
    for state in (np.random.RandomState(0), np.random):
        model = fitted(random_state=state, device=torch.device("cpu"))
        loaded = round_trip(model, path)
        assert loaded.random_state is None
        assert loaded.device == "cpu"
        assert_same(model, loaded)


def test_a_foreign_kernel_says_what_it_was_and_refuses_another_fit(
    foreign: SoftKIRegressor, path: Path
) -> None:
    loaded = round_trip(foreign, path)
    for kernel in (loaded.kernel, loaded.fit_.model.kernel, clone(loaded).kernel):
        assert "ScaleKernel" in repr(kernel)
    with pytest.raises(InvalidInputError, match=r"RBFKernel.* was not stored.*set_params"):
        clone(loaded).fit(*table())
    again = clone(loaded).set_params(kernel=gpytorch_kernel()).fit(*table())
    assert_same(again, foreign)


def test_an_objective_that_is_an_object_says_what_it_was_and_refuses_another_fit(
    path: Path,
) -> None:
    loaded = round_trip(fitted(objective=Hutchinson(probes=4)), path)
    assert "Hutchinson(probes=4" in repr(loaded.objective)
    with pytest.raises(InvalidInputError, match=r"Hutchinson.* was not stored.*set_params"):
        clone(loaded).fit(*table())
    assert "Hutchinson(probes=4" in repr(round_trip(loaded, path).objective)


def test_inference_mode_and_the_default_dtype_change_nothing(
    model: SoftKIRegressor, path: Path
) -> None:
    with torch.inference_mode():
        loaded = round_trip(model, path)
    assert_same(model, loaded)
    assert not any(p.is_inference() for p in loaded.fit_.model.parameters())
    torch.set_default_dtype(torch.float16)
    try:
        assert_same(model, round_trip(model, path))
    finally:
        torch.set_default_dtype(torch.float32)


# What is in the file.


def test_the_file_is_plain_safetensors_with_no_code_and_no_rows(
    foreign: SoftKIRegressor, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("pickle was used")

    save(foreign, path)
    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    monkeypatch.setattr(torch, "load", refuse)
    load(path, device="cpu")
    with safetensors.safe_open(path, "numpy") as file:
        shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
        metadata = file.metadata()
    assert N not in {size for shape in shapes.values() for size in shape}
    assert max(math.prod(shape) for shape in shapes.values()) == 17 * 17
    assert metadata["format"] == "softki"
    json.loads(metadata["document"])


def test_metadata_are_read_without_the_tensors(
    model: SoftKIRegressor, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = {"encoding": {"colour": ["red", "blau ä"]}, "target": "y", "none": None, "n": [1, 2.5]}
    save(model, path, extra)

    def refuse(*_: Any) -> None:
        raise AssertionError("tensors were read")

    monkeypatch.setattr(safetensors.torch, "load", refuse)
    metadata = read_metadata(path)
    assert metadata["extra"] == extra
    assert metadata["softki"] == softki.__version__
    assert metadata["columns"] is None
    assert metadata["n_features"] == D
    assert metadata["parameters"]["points"] == 16
    assert metadata["kernel"]["name"] == "matern32"
    assert metadata["statistics"] == {
        "form": "square root",
        "count": N,
        "log_noise": 0.0,
        "points": 16,
    }
    assert metadata["report"]["rows"] == N


def test_without_extra_it_is_empty(good: Path, path: Path) -> None:
    path.write_bytes(good.read_bytes())
    assert read_metadata(path)["extra"] == {}


@pytest.mark.parametrize(
    ("extra", "error"),
    [({"a": object()}, "JSON"), ({(1, 2): 3}, "JSON"), ([1], "mapping"), ("text", "mapping")],
)
def test_extra_that_is_not_json_is_refused(
    model: SoftKIRegressor, path: Path, extra: Any, error: str
) -> None:
    with pytest.raises(InvalidInputError, match=error):
        save(model, path, extra)
    assert not path.exists()


def test_more_than_a_header_can_hold_is_refused(
    model: SoftKIRegressor, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("softki.files.container._MAX_HEADER", 20_000)
    save(model, path)
    with pytest.raises(InvalidInputError, match="less in `extra`"):
        save(model, path, {"a": "b" * 20_000})
    assert read_metadata(path)["extra"] == {}


# Files that are not whole.


def assert_refused(path: Path, match: str | None = None) -> None:
    for read in (load, read_metadata):
        with pytest.raises(InvalidInputError, match=match) as caught:
            read(path)
        assert path.name in str(caught.value)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_no_byte_can_change_unnoticed(data: st.DataObject, good: Path, path: Path) -> None:
    place = data.draw(st.integers(0, len(good.read_bytes()) - 1))
    change = data.draw(st.integers(1, 255))
    damaged = bytearray(good.read_bytes())
    damaged[place] ^= change
    path.write_bytes(damaged)
    assert_refused(path)


def test_no_bit_of_the_beginning_can_change_unnoticed(good: Path, path: Path) -> None:
    """Here are the lengths, the format, its version and the checksum itself."""
    for place in range(250):
        damaged = bytearray(good.read_bytes())
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        assert_refused(path)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_file_cut_short_is_refused(data: st.DataObject, good: Path, path: Path) -> None:
    path.write_bytes(good.read_bytes()[: data.draw(st.integers(0, len(good.read_bytes()) - 1))])
    assert_refused(path)


def test_the_message_says_what_is_wrong(good: Path, path: Path) -> None:
    content = good.read_bytes()
    path.write_bytes(b"")
    assert_refused(path, "empty")
    for length in (100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        assert_refused(path, r"damaged.*cut short.*save the model again")
    path.write_bytes(content + b"\0")
    assert_refused(path, "damaged")


def with_length(header: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header


def test_a_file_of_another_kind_is_refused(path: Path) -> None:
    kinds = [
        b"\x89PNG\r\n\x1a\n" + bytes(100),
        b"a,b,c\n1,2,3\n" * 10,
        b"x",
        b"{}",
        pickle.dumps(np.zeros(10)),
        safetensors.torch.save({"a": torch.zeros(3)}),
        safetensors.torch.save({"a": torch.zeros(3)}, {"format": "pt", "version": "1"}),
        with_length(b"[]"),
        with_length(b'{"__metadata__": [1]}'),
        with_length(b'{"__metadata__":{"format":"softki","version":1}}'),
        (2**63).to_bytes(8, "little") + b'{"',
    ]
    for content in kinds:
        path.write_bytes(content)
        assert_refused(path, r"not a softki model.*model\.save")
    path.write_bytes(with_length(b'{"a":' + b"[" * 100_000))
    assert_refused(path, "damaged")


def test_a_newer_format_is_refused(
    model: SoftKIRegressor, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as later:
        later.setattr("softki.files.container.FORMAT_VERSION", FORMAT_VERSION + 1)
        save(model, path)
    assert_refused(path, r"version 2 of the format.*reads up to 1.*upgrade")


def test_a_document_that_cannot_be_understood_is_refused(good: Path, path: Path) -> None:
    """As when another version of softki knows kernels that this one does not."""
    path.write_bytes(good.read_bytes())
    sealed = unseal(path)
    kernel = sealed.document["kernel"] | {"name": "periodic"}
    for document in (
        sealed.document | {"kernel": kernel},
        {k: v for k, v in sealed.document.items() if k != "settings"},
        sealed.document | {"report": sealed.document["report"] | {"unheard": 1}},
    ):
        path.write_bytes(seal(document, sealed.tensors()))
        with pytest.raises(InvalidInputError, match=r"written by softki .* cannot read it"):
            load(path)


def test_a_class_that_is_not_known_is_refused(good: Path, path: Path) -> None:
    sealed = unseal(good)
    path.write_bytes(seal(sealed.document | {"class": "SoftKIOracle"}, sealed.tensors()))
    with pytest.raises(InvalidInputError, match=r"holds a SoftKIOracle, which is not known"):
        load(path)


def test_the_class_is_found_in_a_process_that_has_not_imported_it(good: Path) -> None:
    code = (
        "import sys; from softki.storage import load;"
        "assert 'softki.estimator' not in sys.modules;"
        f"print(type(load({str(good)!r})).__name__)"
    )
    child = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert child.stdout == "SoftKIRegressor\n"


def test_there_is_no_file(tmp_path: Path) -> None:
    for read in (load, read_metadata):
        with pytest.raises(FileNotFoundError, match=r"there is no file .*missing\.softki"):
            read(tmp_path / "missing.softki")
        with pytest.raises(InvalidInputError, match="is a folder"):
            read(tmp_path)
        with pytest.raises(InvalidTypeError, match="name of a file"):
            read(None)
    assert_refused(tmp_path / "missing.softki", "there is no file")


def test_a_device_that_is_not_there_is_refused(good: Path, path: Path) -> None:
    path.write_bytes(good.read_bytes())
    with pytest.raises(InvalidInputError, match="device"):
        load(path, device="abacus")


# Writing.


def test_what_cannot_be_saved_is_refused(path: Path) -> None:
    with pytest.raises(InvalidTypeError, match="LinearRegression"):
        save(LinearRegression(), path)
    with pytest.raises(NotFittedError):
        save(SoftKIRegressor(), path)
    assert not path.exists()


def test_places_that_cannot_be_written_to(model: SoftKIRegressor, tmp_path: Path) -> None:
    for place, reason in [
        (tmp_path, "is a folder"),
        (tmp_path / "no" / "model.softki", "no folder .*no"),
        (tmp_path / ("x" * 300), "x{300}"),
        (Path(os.devnull), "not an ordinary file"),
    ]:
        with pytest.raises(InvalidInputError, match=reason) as caught:
            save(model, place)
        assert str(place) in str(caught.value)
    with pytest.raises(InvalidTypeError, match="name of a file"):
        save(model, 3)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="name of a file"):
        save(model, f"{tmp_path}/a\0b")
    assert not list(tmp_path.iterdir())


def test_a_write_protected_file_is_left_alone(
    model: SoftKIRegressor, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_bytes(b"precious")
    path.chmod(0o444)
    if os.access(path, os.W_OK):  # the superuser may write everywhere
        monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(InvalidInputError, match="write-protected"):
        save(model, path)
    assert path.read_bytes() == b"precious"


def test_a_folder_without_permission_is_named(
    model: SoftKIRegressor, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied", "elsewhere")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(InvalidInputError, match=r"cannot write .*model\.softki: Permission denied"):
        save(model, path)
    with pytest.raises(InvalidInputError, match=r"cannot read .*model\.softki: Permission denied"):
        load(path)


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    model: SoftKIRegressor,
    good: Path,
    path: Path,
    step: str,
    error: BaseException,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path.write_bytes(good.read_bytes())

    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(os, step, fail)
    with pytest.raises((InvalidInputError, KeyboardInterrupt)):
        save(model, path, {"new": True})
    assert path.read_bytes() == good.read_bytes()
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="the system has no SIGKILL")
@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_killed_process_leaves_the_old_file(good: Path, path: Path, step: str) -> None:
    """The process is killed with everything written, but not yet in its place."""
    path.write_bytes(good.read_bytes())
    code = (
        "import os, signal; from softki.files.atomic import write_atomically;"
        f"os.{step} = lambda *_: os.kill(os.getpid(), signal.SIGKILL);"
        f"write_atomically({str(path)!r}, b'new')"
    )
    child = subprocess.run([sys.executable, "-c", code], check=False)
    assert child.returncode == -signal.SIGKILL
    assert path.read_bytes() == good.read_bytes()
    load(path)


def test_a_link_and_permissions_stay(model: SoftKIRegressor, path: Path) -> None:
    old = os.umask(0o027)
    try:
        save(model, path)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    path.chmod(0o604)
    link = path.with_name("link")
    link.symlink_to(path)
    save(model, link, {"by": "link"})
    assert link.is_symlink()
    assert read_metadata(path)["extra"] == {"by": "link"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o604


def test_text_is_a_path_and_the_ending_is_free(
    model: SoftKIRegressor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    save(model, "ä model")
    assert_same(model, load("ä model", device="cpu"))
