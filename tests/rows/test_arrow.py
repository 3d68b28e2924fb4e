"""Blocks that are read anew in every pass: what they hand out, and how much memory that takes."""

import subprocess
import sys
import textwrap

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from posteriori.rows import arrow as streamed
from posteriori.rows.arrow import read_stream_for_fit
from posteriori.rows.memory import MemoryBlocks
from posteriori.rows.pieces import numbers
from posteriori.rows.streams import DatasetStream
from posteriori.softmax import kernels
from posteriori.threads import run_stream

N, D, K = 230, 3, 2
rng = np.random.default_rng(0)
X = rng.normal(size=(N, D))
y = rng.integers(0, K, N)
TABLE = pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "w": rng.uniform(size=N), "y": y})


@pytest.fixture(params=[None, "w"])
def pair(request, monkeypatch):
    """The same rows streamed and in memory."""
    monkeypatch.setattr(streamed, "_BLOCK_BYTES", 0)
    monkeypatch.setattr(streamed, "_LEAST_ROWS", 17)
    monkeypatch.setattr(streamed, "_HELD_BYTES", 0)
    columns = ["a", "b", "c", "y"] + ([] if request.param is None else ["w"])
    features, target = read_stream_for_fit(
        DatasetStream(ds.dataset(TABLE.select(columns))), "y", request.param, None, None
    )
    c = None if request.param is None else TABLE["w"].to_numpy()
    return features.blocks(target, K, n_threads=2), MemoryBlocks(X, y, c, K)


def test_later_samples_come_from_the_first(pair):
    streams, _ = pair
    streams.sample(50, np.random.default_rng(0))
    before = streams.n_passes
    assert streams.sample(20, np.random.default_rng(0)).n_rows == 20
    assert streams.n_passes == before


def test_samples_are_of_bounded_size(pair, monkeypatch):
    monkeypatch.setattr(streamed, "_SAMPLE_BYTES", 8 * (D + 1) * 40)
    assert pair[0].sample(100, np.random.default_rng(0)).n_rows == 40


def test_labels_are_not_read_where_no_kernel_looks_at_them(pair, monkeypatch):
    streams, _ = pair
    asked = []
    real = DatasetStream.batches
    monkeypatch.setattr(
        DatasetStream, "batches", lambda self, columns, size: asked.append(columns) or real(self, columns, size)
    )
    streams.map_sum(kernels.expected_moments, np.zeros((K, D + 1)))
    streams.map_sum(kernels.residual_moments, np.zeros((K, D + 1)))
    assert ["y" in columns for columns in asked] == [False, True]


def test_numbers_of_any_type():
    columns = [
        pa.array([1, None, 3], pa.int8()),
        pa.array([True, None, False]),
        pa.array([1.5, 2.5, float("nan")], pa.float32()),
        pa.array([2**60, 1, 0], pa.uint64()),
        pa.array(["1.25", "2.50", None]).cast(pa.decimal128(5, 2)),
    ]
    expected = [[1, 1, 1.5, 2.0**60, 1.25], [np.nan, np.nan, 2.5, 1, 2.5], [3, 0, np.nan, 0, np.nan]]
    np.testing.assert_array_equal(numbers(columns), expected)
    shift, scale = np.arange(5.0), np.array([1.0, 2.0, 3.0, 0.5, 1.0])
    np.testing.assert_allclose(numbers(columns, shift, scale), (np.array(expected) - shift) * scale)


# Threads over a stream


@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_every_item_is_worked_on_once(n_threads):
    seen = {}
    run_stream(seen.__setitem__, iter("posteriori"), n_threads)
    assert seen == dict(enumerate("posteriori"))


@pytest.mark.parametrize("n_threads", [1, 2])
def test_errors_of_tasks_and_of_the_stream_come_out(n_threads):
    def fails(i, item):
        if i == 3:
            raise KeyError(item)

    with pytest.raises(KeyError, match="t"):
        run_stream(fails, iter("posteriori"), n_threads)

    def broken():
        yield 1
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        run_stream(lambda i, item: None, broken(), n_threads)


SCRIPT = """
    import sys
    import numpy as np, pyarrow as pa, pyarrow.dataset as ds, pyarrow.parquet as pq
    import posteriori as po
    from posteriori.cli.memory import peak_memory

    path, rng = sys.argv[1] + "/rows.parquet", np.random.default_rng(0)
    schema = pa.schema([*((f"x{d}", pa.float32()) for d in range(20)), ("y", pa.int8())])
    with pq.ParquetWriter(path, schema) as writer:
        for _ in range(30):
            X = rng.standard_normal((20, 100_000), dtype=np.float32)
            y = (X[0] + rng.logistic(size=100_000) > 0).astype(np.int8)
            writer.write_table(pa.table([*X, y], schema=schema))
    before = peak_memory()
    model = po.BayesianSoftmaxRegression(prior=1.0).fit(ds.dataset(path), "y")
    assert model.solution_.converged
    print(peak_memory() - before)
"""


@pytest.mark.slow
def test_memory_stays_bounded(tmp_path):
    """3 million rows of 20 columns are 480 MB as float64, and would be held twice in the coordinates of the fit."""
    script = textwrap.dedent(SCRIPT)
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert int(done.stdout.split()[-1]) < 650  # read ahead by pyarrow, on any number of cores; all rows would be 960
