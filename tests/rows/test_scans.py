"""How often the rows of a data set are read: once to predict, as often as needed to fit, never to refuse."""

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import posteriori as po
from posteriori.rows import arrow, streams
from posteriori.rows.engines import read_in_memory
from posteriori.tables.encoder import TableEncoder

N, D = 300, 3
MODELS = {
    "softmax": po.SoftmaxRegression,
    "bayes": po.BayesianSoftmaxRegression,
    "gaussian": lambda: po.GaussianClassifier("full", estimate="mle"),
    "gaussian, tied": lambda: po.GaussianClassifier("tied", estimate="map"),
}


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D))
    kind = np.array(["a", "b", "c"])[(X @ rng.normal(size=(D, 3)) + rng.gumbel(size=(N, 3))).argmax(axis=1)]
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    pq.write_table(pa.table({f"x{d}": X[:, d] for d in range(D)} | {"kind": kind}), path, row_group_size=50)
    return ds.dataset(path)


@pytest.fixture
def scans(monkeypatch):
    """The columns of every scan, in their order."""
    found = []
    for name in ("batches", "shuffled"):
        real = getattr(streams.DatasetStream, name)
        monkeypatch.setattr(
            streams.DatasetStream,
            name,
            lambda self, columns, *args, real=real: found.append(columns) or real(self, columns, *args),
        )
    return found


@pytest.mark.parametrize("name", MODELS)
def test_a_prediction_reads_every_row_once(name, rows, scans):
    model = MODELS[name]().fit(rows.to_table(), "kind")
    expected = model.predict_proba(rows.to_table())
    assert scans == []
    np.testing.assert_allclose(model.predict_proba(rows), expected, atol=1e-12)
    assert scans == [["x0", "x1", "x2"]]


def test_other_predictions_read_every_row_once_too(rows, scans):
    model = po.BayesianSoftmaxRegression().fit(rows.to_table(), "kind")
    for method in (model.predict, model.predict_log_proba, model.predict_interval, model.uncertainty):
        scans.clear()
        method(rows)
        assert len(scans) == 1, method.__name__


def test_a_pipeline_encodes_while_it_reads_once(rows, scans):
    from sklearn.pipeline import make_pipeline

    model = make_pipeline(TableEncoder(), po.BayesianSoftmaxRegression()).fit(rows.to_table(), "kind")
    model.predict_proba(rows)
    assert len(scans) == 1


@pytest.mark.parametrize("name", MODELS)
def test_a_fit_to_few_rows_reads_labels_once_and_rows_once(name, rows, scans):
    model = MODELS[name]().fit(rows, "kind")
    assert scans == [["kind"], ["x0", "x1", "x2", "kind"]]
    expected = MODELS[name]().fit(rows.to_table(), "kind")
    np.testing.assert_allclose(model.predict_proba(rows), expected.predict_proba(rows), atol=1e-7)


def test_a_fit_to_many_rows_reads_as_often_as_it_says(rows, scans, monkeypatch):
    monkeypatch.setattr(arrow, "_HELD_BYTES", 0)
    model = po.GaussianClassifier("tied").fit(rows, "kind")
    assert len(scans) == 1 + model.solution_.n_passes == 3, "labels, statistics, and some rows to judge priors by"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: po.BayesianSoftmaxRegression(label_noise=0.1), "label_noise.* needs its rows in memory"),
        (lambda: po.BayesianSoftmaxRegression(label_noise="estimate"), "label_noise.* needs its rows in memory"),
        (po.GPClassifier, "GPClassifier needs its rows in memory"),
        (lambda: po.CalibratedClassifier(po.SoftmaxRegression()), "CalibratedClassifier.* needs its rows in memory"),
        (lambda: po.SoftmaxRegression(device="gpu"), "device='gpu' needs all rows in memory at once"),
    ],
)
def test_refusals_come_before_reading(make, said, rows, scans):
    with pytest.raises(ValueError, match=said):
        make().fit(rows, "kind")
    assert scans == []


def test_one_pass_over_rows_is_refused_before_reading(rows, scans):
    with pytest.raises(ValueError, match="partial_fit, which goes over rows once, needs its rows in memory"):
        po.SoftmaxRegression().partial_fit(rows, "kind", classes=["a", "b", "c"])
    model = po.SoftmaxRegression().fit(rows.to_table(), "kind")
    with pytest.raises(ValueError, match="A Gaussian process needs its rows in memory"):
        read_in_memory(model, rows, who="A Gaussian process")
    assert scans == []
