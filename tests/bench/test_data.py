from __future__ import annotations

import hashlib
import logging
import re
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from softki.bench import datasets
from softki.bench.datasets import fetch, is_available, load
from softki.bench.download import DownloadError, download
from softki.bench.molecules import flat_coordinates, inverse_distances
from softki.bench.registry import REGISTRY, select
from softki.exceptions import InvalidInputError

CONTENT = np.random.default_rng(0).bytes(3_000_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class TestRegistry:
    def test_names_and_groups_are_selected_in_order_and_once(self) -> None:
        names = [dataset.name for dataset in select("slice, alkanes,c14,uci")]
        assert names[:4] == ["slice", "c10", "c14", "c15"]
        assert len(names) == len(set(names)) == 3 + 12

    def test_a_mistaken_name_is_corrected(self) -> None:
        with pytest.raises(InvalidInputError, match="did you mean 'aspirin'"):
            select("pol,asprin")

    def test_columns_of_molecules_count_atoms(self) -> None:
        for dataset in select("md22,rmd17,alkanes"):
            atoms = dataset.columns // 3
            inverse = REGISTRY[f"{dataset.name}/inverse"]
            assert (dataset.features, inverse.features) == ("coordinates", "inverse")
            assert inverse.columns == atoms * (atoms - 1) // 2
            assert (inverse.file, inverse.url) == (dataset.file, dataset.url)
            assert inverse in select(f"{dataset.group}/inverse")

    def test_numbers_are_the_papers(self) -> None:
        """Training rows, 90% of all, and columns; AT-AT has 60 atoms, whatever the paper says."""
        paper = {"3droad": (391_386, 3), "houseelectric": (1_844_352, 11), "buzz": (524_925, 77)}
        paper |= {"song": (270_000, 90), "slice": (48_150, 385), "ac-ala3-nhme": (76_598, 126)}
        paper |= {"dha": (62_777, 168), "stachyose": (24_544, 261), "at-at": (18_000, 180)}
        paper |= {"at-at-cg-cg": (9_137, 354), "dw-nanotube": (4_528, 1110), "ricker": (3_000, 2)}
        for name, figures in paper.items():
            assert (REGISTRY[name].rows * 9 // 10, REGISTRY[name].columns) == figures, name

    def test_numbers_are_those_of_the_files(self, data_folder: Path) -> None:
        here = [d for d in select("small,pol,bike,alkanes,aspirin") if is_available(d, data_folder)]
        assert here, "SOFTKI_DATA names a folder without data sets"
        for dataset in here:
            table = load(dataset, data_folder)
            assert table.X.shape[1] == dataset.columns
            assert len(table.y) == dataset.rows or dataset.group == "rmd17"

    def test_checksums_are_those_of_the_files(self, data_folder: Path) -> None:
        for dataset in select("uci,small"):
            path = data_folder / dataset.file
            if path.exists() and dataset.sha256 is not None:
                assert hashlib.sha256(path.read_bytes()).hexdigest() == dataset.sha256

    def test_the_target_of_houseelectric_is_a_logarithm(self, data_folder: Path) -> None:
        if not is_available("houseelectric", data_folder):
            pytest.skip("houseelectric is not here")
        table = load("houseelectric", data_folder)
        assert table.X.shape == (2_049_280, 11)
        assert -3 < table.y.min() < 0 < table.y.max() < 3  # 0.076 to 11.1 kW


class TestFolder:
    def test_the_variable_comes_first(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SOFTKI_DATA", "~/sets")
        assert datasets.data_folder() == Path.home() / "sets"

    @pytest.mark.parametrize(
        ("platform", "variable", "default"),
        [
            ("linux", "XDG_CACHE_HOME", ".cache"),
            ("darwin", None, "Library/Caches"),
            ("win32", "LOCALAPPDATA", "AppData/Local"),
        ],
    )
    def test_the_cache_is_the_systems(
        self, platform: str, variable: str | None, default: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("SOFTKI_DATA", "XDG_CACHE_HOME", "LOCALAPPDATA"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(sys, "platform", platform)
        assert datasets.data_folder() == Path.home() / default / "softki" / "data"
        if variable:
            monkeypatch.setenv(variable, "/cache")
            assert datasets.data_folder() == Path("/cache/softki/data")


ENERGY = REGISTRY["energy"]
NUMBERS = np.random.default_rng(1).standard_normal((20, ENERGY.columns + 1))


def write_csv(path: Path, table: np.ndarray = NUMBERS) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savetxt(path, table, delimiter=",")


class TestTables:
    @pytest.mark.parametrize("place", ["uci/energy.csv.gz", "energy.csv.gz", "energy/data.csv.gz"])
    def test_csv_in_the_published_layouts(self, place: str, tmp_path: Path) -> None:
        write_csv(tmp_path / place)
        table = load("energy", tmp_path)
        np.testing.assert_allclose(table.X, NUMBERS[:, :-1], rtol=1e-15)
        np.testing.assert_allclose(table.y, NUMBERS[:, -1], rtol=1e-15)
        assert table.X.dtype == table.y.dtype == np.float64
        assert table.name == "energy"

    def test_the_environment_names_the_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SOFTKI_DATA", str(tmp_path))
        assert not is_available("energy")
        write_csv(tmp_path / ENERGY.file)
        assert is_available("energy")
        assert len(load(ENERGY).y) == 20

    def test_no_more_rows_than_the_set_has(self, tmp_path: Path) -> None:
        write_csv(tmp_path / ENERGY.file)
        assert len(load(replace(ENERGY, rows=7), tmp_path).y) == 7

    def test_the_logarithm_of_the_power(self, tmp_path: Path) -> None:
        pa = pytest.importorskip("pyarrow")
        import pyarrow.parquet

        columns = {f"x{i}": np.arange(5, dtype=np.int16) + i for i in range(11)}
        power = np.linspace(0.5, 3, 5, dtype=np.float32)
        (tmp_path / "uci").mkdir()
        path = tmp_path / "uci" / "houseelectric.parquet"
        pyarrow.parquet.write_table(pa.table({**columns, "global_active_power": power}), path)
        parquet = load("houseelectric", tmp_path)
        np.testing.assert_allclose(parquet.y, np.log(power.astype(np.float64)), rtol=1e-15)
        np.testing.assert_array_equal(parquet.X[:, 3], np.arange(5) + 3)

        table = np.column_stack([parquet.X, parquet.y]).astype(np.float32)
        np.savez(path.with_suffix(".npz"), table=table)
        path.unlink()
        saved = load("houseelectric", tmp_path)
        np.testing.assert_array_equal(saved.X, parquet.X)
        np.testing.assert_allclose(saved.y, parquet.y, rtol=1e-6)

        path.with_suffix(".npz").unlink()
        write_csv(tmp_path / "houseelectric" / "data.csv.gz", table)
        np.testing.assert_allclose(load("houseelectric", tmp_path).y, parquet.y, rtol=1e-6)

    def test_a_missing_file_says_what_to_do(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidInputError) as error:
            load("pol", tmp_path)
        for part in (str(tmp_path / "uci" / "pol.csv.gz"), "SOFTKI_DATA", "--download"):
            assert part in str(error.value)
        with pytest.raises(InvalidInputError, match=re.escape(REGISTRY["toluene"].source)):
            load("toluene", tmp_path, download=True)  # it has no address

    def test_a_wrong_file_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / ENERGY.file
        write_csv(path, NUMBERS[:, 1:])
        with pytest.raises(InvalidInputError, match="8 columns besides the target"):
            load("energy", tmp_path)
        write_csv(path, np.where(NUMBERS > 1.5, np.nan, NUMBERS))
        with pytest.raises(InvalidInputError, match="missing or infinite"):
            load("energy", tmp_path)
        whole = path.read_bytes()
        for broken in (whole[:-50], b"a,b\n", whole[:40] + bytes(40) + whole[80:]):
            path.write_bytes(broken)
            with pytest.raises(InvalidInputError, match=re.escape(str(path))):
                load("energy", tmp_path)

    def test_synthetic_sets_need_no_file(self, tmp_path: Path) -> None:
        for name in ("ricker", "robot_arm"):
            table = load(name, tmp_path)
            assert table.X.shape == (REGISTRY[name].rows, REGISTRY[name].columns)
        for dataset in select("synthetic"):
            small = load(replace(dataset, rows=10), tmp_path)
            assert small.X.shape == (10, dataset.columns)


class TestMolecules:
    POSITIONS = np.random.default_rng(2).standard_normal((7, 5, 3)).astype(np.float32)

    def test_inverse_distances_are_those_of_a_plain_loop(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        expected = [
            [
                1
                / sum((float(a) - float(b)) ** 2 for a, b in zip(frame[i], frame[j], strict=True))
                ** 0.5
                for i in range(5)
                for j in range(i + 1, 5)
            ]
            for frame in self.POSITIONS
        ]
        np.testing.assert_allclose(inverse_distances(self.POSITIONS), expected, rtol=1e-13)
        monkeypatch.setattr("softki.bench.molecules._AT_ONCE", 90)  # chunks of 3 frames
        np.testing.assert_allclose(inverse_distances(self.POSITIONS), expected, rtol=1e-13)

    def test_inverse_distances_do_not_see_rotation_and_shift(self) -> None:
        turn, _ = np.linalg.qr(np.random.default_rng(3).standard_normal((3, 3)))
        positions = self.POSITIONS.astype(np.float64)
        moved = positions @ turn + np.array([1.0, -2.0, 3.0])
        np.testing.assert_allclose(inverse_distances(moved), inverse_distances(positions))
        assert np.abs(flat_coordinates(moved) - flat_coordinates(positions)).min() > 0

    def test_atoms_in_one_place_are_named(self) -> None:
        positions = self.POSITIONS.copy()
        positions[4, 3] = positions[4, 1]
        with pytest.raises(InvalidInputError, match="atoms 1 and 3 of frame 4"):
            inverse_distances(positions)

    def test_positions_must_be_positions(self) -> None:
        for features in (flat_coordinates, inverse_distances):
            with pytest.raises(InvalidInputError, match=r"\(n, atoms, 3\)"):
                features(np.zeros((3, 9)))

    @pytest.mark.parametrize("place", ["molecules/rmd17_ethanol.npz", "rmd17_ethanol.npz"])
    @pytest.mark.parametrize("names", [("R", "E", "F", "z"), ("coords", "energies", "forces", "q")])
    def test_published_layouts(
        self, place: str, names: tuple[str, str, str, str], tmp_path: Path
    ) -> None:
        positions = np.random.default_rng(4).standard_normal((6, 9, 3))
        energy = np.linspace(-5e5, -4e5, 6)
        arrays = dict(zip(names, (positions, energy, positions, np.arange(9)), strict=True))
        path = tmp_path / place
        path.parent.mkdir(exist_ok=True)
        np.savez(path, **arrays)
        flat, inverse = load("ethanol", tmp_path), load("ethanol/inverse", tmp_path)
        np.testing.assert_array_equal(flat.X, positions.reshape(6, 27))
        np.testing.assert_array_equal(inverse.X, inverse_distances(positions))
        np.testing.assert_array_equal(flat.y, energy)
        np.testing.assert_array_equal(inverse.y, energy)

    def test_md22_has_energies_in_a_column(self, tmp_path: Path) -> None:
        positions = np.random.default_rng(5).standard_normal((4, 60, 3))
        np.savez(tmp_path / "md22_AT-AT.npz", R=positions, E=np.arange(4.0)[:, None])
        flat, inverse = load("at-at", tmp_path), load("at-at/inverse", tmp_path)
        assert flat.X.shape == (4, 180)
        np.testing.assert_array_equal(inverse.X, inverse_distances(positions))
        for table in (flat, inverse):
            np.testing.assert_array_equal(table.y, np.arange(4.0))

    def test_missing_arrays_are_named(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "rmd17_ethanol.npz", R=np.zeros((1, 9, 3)))
        with pytest.raises(InvalidInputError, match="E or energies, and has R"):
            load("ethanol", tmp_path)


@dataclass
class Server:
    """What the server does, and what it was asked."""

    url: str
    content: bytes = CONTENT
    takes_ranges: bool = True
    breaks_after: int | None = None
    ranges: list[str | None] = field(default_factory=list)


@pytest.fixture
def server() -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            state.ranges.append(wanted)
            if self.path != "/file":
                self.send_error(404)
                return
            start = 0
            if wanted is not None and state.takes_ranges:
                start = int(wanted.removeprefix("bytes=").removesuffix("-"))
                if start >= len(state.content):
                    self.send_error(416)
                    return
            body = state.content[start:]
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: state.breaks_after])

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        state = Server(f"http://127.0.0.1:{http.server_port}/file")
        thread = Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield state
        http.shutdown()
        thread.join()


class TestDownload:
    def test_the_file_arrives_whole(self, server: Server, tmp_path: Path) -> None:
        target, calls = tmp_path / "new" / "folder" / "file", []
        download(server.url, target, SHA256, lambda *call: calls.append(call))
        assert target.read_bytes() == CONTENT
        assert [path.name for path in target.parent.iterdir()] == ["file"]
        assert calls[-1] == (len(CONTENT), len(CONTENT))
        assert calls == sorted(calls)

    def test_what_is_not_verified_is_logged(
        self, server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.INFO, logger="softki.bench.download"):
            download(server.url, tmp_path / "file")
        assert SHA256 in caplog.text

    @pytest.mark.parametrize("takes_ranges", [True, False])
    def test_a_broken_transfer_goes_on(
        self, takes_ranges: bool, server: Server, tmp_path: Path
    ) -> None:
        target, part = tmp_path / "file", tmp_path / "file.part"
        server.takes_ranges, server.breaks_after = takes_ranges, 1_234_567
        with pytest.raises(DownloadError, match="run again to go on"):
            download(server.url, target, SHA256)
        assert not target.exists()
        assert part.read_bytes() == CONTENT[:1_234_567]

        server.breaks_after, calls = None, []
        download(server.url, target, SHA256, lambda *call: calls.append(call))
        assert server.ranges == [None, "bytes=1234567-"]
        assert target.read_bytes() == CONTENT
        assert not part.exists()
        assert (calls[0][0] > 1_234_567) == takes_ranges
        assert calls[-1] == (len(CONTENT), len(CONTENT))

    def test_a_part_that_cannot_be_resumed_starts_again(
        self, server: Server, tmp_path: Path
    ) -> None:
        (tmp_path / "file.part").write_bytes(CONTENT + b"more")
        download(server.url, tmp_path / "file", SHA256)
        assert (tmp_path / "file").read_bytes() == CONTENT

    def test_another_file_is_not_kept(self, server: Server, tmp_path: Path) -> None:
        target = tmp_path / "file"
        target.write_bytes(b"older")
        server.content = b"<html>moved</html>"
        with pytest.raises(DownloadError) as error:
            download(server.url, target, SHA256)
        assert SHA256 in str(error.value)
        assert hashlib.sha256(server.content).hexdigest() in str(error.value)
        assert target.read_bytes() == b"older"
        assert list(tmp_path.iterdir()) == [target]

    def test_there_is_no_such_file(self, server: Server, tmp_path: Path) -> None:
        with pytest.raises(DownloadError, match="404"):
            download(server.url + "s", tmp_path / "file")
        assert list(tmp_path.iterdir()) == []

    def test_there_is_no_network(self, tmp_path: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))  # bound, and not listening: connections are refused
            url = f"http://127.0.0.1:{free.getsockname()[1]}/file"
            with pytest.raises(DownloadError, match="network connection"):
                download(url, tmp_path / "file")

    def test_a_folder_that_cannot_be_made(self, server: Server, tmp_path: Path) -> None:
        (tmp_path / "taken").write_text("a file")
        with pytest.raises(InvalidInputError, match="cannot make the folder"):
            download(server.url, tmp_path / "taken" / "file")

    def test_a_data_set_is_downloaded_once(self, server: Server, tmp_path: Path) -> None:
        write_csv(tmp_path / "published.csv.gz")
        server.content = (tmp_path / "published.csv.gz").read_bytes()
        digest = hashlib.sha256(server.content).hexdigest()
        dataset, folder = replace(ENERGY, url=server.url, sha256=digest), tmp_path / "sets"
        with pytest.raises(InvalidInputError, match="no data for energy"):
            load(dataset, folder)
        table = load(dataset, folder, download=True)
        np.testing.assert_allclose(table.y, NUMBERS[:, -1], rtol=1e-15)
        assert fetch(dataset, folder) == folder / ENERGY.file
        assert server.ranges == [None]
