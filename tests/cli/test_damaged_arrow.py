"""Damaged Arrow files, whose offsets and lengths lead anywhere: an error, and nothing written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pytest

from softki import SoftKIRegressor
from softki.cli.app import run
from softki.data.encoding import TableEncoder
from softki.exceptions import InvalidInputError
from softki.validation.tables import as_tensor

# Changes one bit after the other; prints how often a change was an error, and how often not.
_FLIPS = """
import sys
from pathlib import Path
from softki.cli.app import run
from softki.data.file_sets import FileSet
from softki.exceptions import InvalidInputError
data = Path("flipped.arrow")
def flip(whole, bit):
    content = bytearray(whole)
    content[bit // 8] ^= 1 << bit % 8
    Path("new").write_bytes(content)
    Path("new").replace(data)
def read():
    try:
        for batch in FileSet.of([data]).read():
            batch.to_pylist()
    except InvalidInputError as error:
        assert str(error).startswith("flipped.arrow: "), error
        assert "has no rows" in str(error) or "write it anew" in str(error), error
        return True
    return False
for kind in sys.argv[1:]:
    whole, errors = Path(kind).read_bytes(), 0
    bits = range(0, 8 * len(whole), 5)
    for bit in bits:
        flip(whole, bit)
        errors += read()
    for bit in bits[::60]:
        flip(whole, bit)
        code = run(["predict", "m.softki", str(data), "--keep", "id", "-o", "out.csv", "-q"])
        assert code in (0, 1), code
        assert code == 0 or not Path("out.csv").exists()
        Path("out.csv").unlink(missing_ok=True)
    print(errors, len(bits))
data.unlink()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model of one column."""
    folder = tmp_path_factory.mktemp("damaged")
    x = np.linspace(0, 1, 50)
    model = SoftKIRegressor(points=4, steps=2, random_state=0)
    model.fit(pa.table({"x": x}), x).save(folder / "m.softki")
    return folder


def table(rows: int) -> pa.Table:
    return pa.table({"x": np.arange(float(rows)), "id": [f"{row:03}" for row in range(rows)]})


def test_a_changed_bit_is_an_error_or_another_value(folder: Path) -> None:
    kinds = {"file.arrow": pa.ipc.new_file, "stream.arrow": pa.ipc.new_stream}
    for name, open_writer in kinds.items():
        with open(folder / name, "wb") as file, open_writer(file, table(6).schema) as writer:
            writer.write_table(table(6), max_chunksize=3)
    before = {path.name for path in folder.iterdir()}
    done = subprocess.run(
        [sys.executable, "-c", _FLIPS, *kinds],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for line in done.stdout.splitlines():
        errors, changes = map(int, line.split())
        assert changes > 1000
        assert 0.2 * changes < errors < 0.9 * changes
    assert len(done.stdout.splitlines()) == len(kinds)
    assert {path.name for path in folder.iterdir()} == before


def test_text_that_claims_more_bytes_than_there_are_is_not_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beyond the 300 bytes of the column lies the memory of the process."""
    pa.feather.write_feather(table(100), str(folder / "leak.feather"), compression="uncompressed")
    content = (folder / "leak.feather").read_bytes()
    offsets = np.arange(0, 301, 3, dtype=np.int32)
    assert content.count(offsets.tobytes()) == 1
    longer = offsets.copy()
    longer[-1] = 3000
    (folder / "leak.feather").write_bytes(content.replace(offsets.tobytes(), longer.tobytes()))
    before = sorted(folder.iterdir())
    monkeypatch.chdir(folder)
    assert run(["predict", "m.softki", "leak.feather", "--keep", "id", "-o", "o.csv"]) == 1
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("error: leak.feather: cannot be read: ")
    assert error.endswith("the file is damaged or incomplete: write it anew\n")
    assert sorted(folder.iterdir()) == before
    in_memory = pa.feather.read_table(str(folder / "leak.feather"), memory_map=False)
    for take in (TableEncoder.of, as_tensor):
        with pytest.raises(InvalidInputError, match=r"the Arrow table is damaged: .* offsets"):
            take(in_memory)
