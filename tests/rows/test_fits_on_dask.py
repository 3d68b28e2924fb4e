"""Fits on Dask collections: the answers of the same rows in memory, whoever computes them and whoever dies."""

import gc
import os
import signal
import time

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from tests.slow import quick_among

import posteriori as po
from posteriori.exceptions import ColumnWarning

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")

N, D, K = 900, 5, 3
NAMES = [f"x{d}" for d in range(D)]


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(scope="module")
def cluster():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
        ) as workers,
        distributed.Client(workers, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D)) * [1.0, 5.0, 0.2, 1.0, 1.0] + [0.0, 100.0, 0.0, 0.0, 0.0]
    X[:, 3] = np.round(X[:, 3])
    W = rng.normal(size=(K, D)) / X.std(axis=0)
    y = ((X - X.mean(axis=0)) @ W.T + rng.gumbel(size=(N, K))).argmax(axis=1)
    weight = rng.uniform(0.2, 2.0, N) * (rng.random(N) < 0.9)
    return pd.DataFrame(X, columns=NAMES).assign(kind=np.array(["ant", "bee", "cat"])[y], weight=weight)


def assert_same(model, expected, table, dask_table):
    """The same optimum and predictions as in memory."""
    if hasattr(model, "coef_"):
        largest = np.abs(expected.coef_).max()
        np.testing.assert_allclose(model.coef_, expected.coef_, rtol=0, atol=1e-6 * largest)
        np.testing.assert_allclose(model.intercept_, expected.intercept_, rtol=1e-6, atol=1e-6 * largest)
        assert model.solution_.status == expected.solution_.status
    if hasattr(model, "log_evidence_"):
        assert model.log_evidence_ == pytest.approx(expected.log_evidence_, rel=1e-6)
    if hasattr(model, "covariance_"):
        largest = np.abs(expected.covariance_).max()
        np.testing.assert_allclose(model.covariance_, expected.covariance_, rtol=0, atol=1e-6 * largest)
    assert list(model.classes_) == list(expected.classes_)
    assert list(model.feature_names_in_) == NAMES
    for predict in ("predict_proba", "predict_log_proba", "decision_function"):
        rows = getattr(model, predict)(dask_table)
        np.testing.assert_allclose(rows, getattr(expected, predict)(table), rtol=1e-6, atol=1e-9)
    assert list(model.predict(dask_table)) == list(expected.predict(table))
    assert model.score(dask_table, "kind", "weight") == pytest.approx(expected.score(table, "kind", "weight"))


MODELS = {
    "map": po.SoftmaxRegression(tol=1e-14),
    "mle": po.SoftmaxRegression(alpha=0.0, tol=1e-14),
    "balanced": po.SoftmaxRegression(tol=1e-14, class_weight="balanced"),
    "lbfgs": po.SoftmaxRegression(tol=1e-14, solver="lbfgs"),
    "bayes": po.BayesianSoftmaxRegression(tol=1e-14),
    "laplace": po.BayesianSoftmaxRegression(1.0, approximation="laplace", tol=1e-14),
    "gauss": po.GaussianClassifier(),
    "tied": po.GaussianClassifier("tied", estimate="map", prior="evidence"),
}
QUICK = ["map", "balanced", "bayes", "tied"]


@quick_among(("name", "n_partitions"), [(name, 3) for name in QUICK], MODELS, [1, 2, 3])
def test_a_data_frame_gives_the_answers_of_its_rows_in_memory(name, n_partitions, table):
    dask_table = dd.from_pandas(table, npartitions=n_partitions)
    expected = clone(MODELS[name]).fit(table, "kind", sample_weight="weight")
    model = clone(MODELS[name]).fit(dask_table, "kind", sample_weight="weight")
    assert_same(model, expected, table, dask_table)
    if isinstance(model, po.SoftmaxRegression):
        assert model.solution_.objective == pytest.approx(expected.solution_.objective, rel=1e-12)


@pytest.mark.parametrize(
    "name", ["map", "tied", *(pytest.param(name, marks=pytest.mark.slow) for name in ("laplace", "gauss"))]
)
def test_an_array_gives_the_answers_of_its_rows_in_memory(name, table):
    X, y, c = table[NAMES].to_numpy(), table["kind"].to_numpy(), table["weight"].to_numpy()
    expected = clone(MODELS[name]).fit(X, y, sample_weight=c)
    dask_X, dask_y, dask_c = da.from_array(X, chunks=(400, 2)), da.from_array(y, chunks=300), da.from_array(c, chunks=N)
    model = clone(MODELS[name]).fit(dask_X, dask_y, sample_weight=dask_c)
    largest = np.abs(expected.predict_log_proba(X)).max()
    np.testing.assert_allclose(model.predict_log_proba(dask_X), expected.predict_log_proba(X), atol=1e-9 * largest)
    assert model.score(dask_X, dask_y) == expected.score(X, y)
    assert not hasattr(model, "feature_names_in_")


def test_gaussian_statistics_merge_exactly(table):
    whole = po.GaussianClassifier("full", estimate="mle").fit(table.drop(columns="weight"), "kind")
    parts = dd.from_pandas(table.drop(columns="weight"), npartitions=3)
    model = po.GaussianClassifier("full", estimate="mle").fit(parts, "kind")
    np.testing.assert_allclose(model.means_, whole.means_, rtol=1e-12)
    np.testing.assert_allclose(model.covariances_, whole.covariances_, rtol=1e-10, atol=1e-12)


def test_other_questions_are_answered_too(table):
    dask_table = dd.from_pandas(table, npartitions=3)
    model = po.BayesianSoftmaxRegression().fit(table, "kind", sample_weight="weight")
    for ours, theirs in zip(model.predict_interval(dask_table), model.predict_interval(table), strict=True):
        np.testing.assert_allclose(ours, theirs)
    np.testing.assert_allclose(model.uncertainty(dask_table).total, model.uncertainty(table).total)
    pd.testing.assert_frame_equal(model.marginal_effects(dask_table), model.marginal_effects(table))


def test_predictions_may_stay_on_the_workers(table):
    dask_table = dd.from_pandas(table, npartitions=3)
    model = po.SoftmaxRegression().fit(dask_table, "kind", sample_weight="weight")
    guesses = dask_table.map_partitions(lambda rows: pd.Series(model.predict(rows), rows.index), meta=("kind", object))
    assert list(guesses.compute()) == list(model.predict(table))


def test_stochastic_gradients_come_from_shuffled_partitions(table):
    by_class = table.sort_values("kind", ignore_index=True)
    best = po.SoftmaxRegression().fit(by_class, "kind", sample_weight="weight")
    model = po.SoftmaxRegression(solver="sgd", tol=1e-4, random_state=0)
    model.fit(dd.from_pandas(by_class, npartitions=3), "kind", sample_weight="weight")
    assert model.solution_.objective == pytest.approx(best.solution_.objective, rel=1e-3)


def test_features_of_very_different_size_and_place(table):
    far = table.assign(x0=table["x0"] * 1e-9 + 1.0, x1=table["x1"] * 1e6)
    expected = po.SoftmaxRegression(tol=1e-12).fit(far, "kind")
    model = po.SoftmaxRegression(tol=1e-12).fit(dd.from_pandas(far, npartitions=3), "kind")
    np.testing.assert_allclose(model.predict_proba(far), expected.predict_proba(far), atol=1e-6)


def test_empty_partitions_and_classes_without_rows(table):
    dask_table = dd.from_pandas(table, npartitions=3)
    model = po.SoftmaxRegression(classes=["ant", "bee", "cat", "dog"], penalize_intercept=True)
    expected = clone(model).fit(table[table["x0"] < 0], "kind")
    model.fit(dask_table[dask_table["x0"] < 0], "kind")
    np.testing.assert_allclose(model.predict_proba(table), expected.predict_proba(table), atol=1e-6)
    emptied = dask_table[dask_table["x0"] > table["x0"].iloc[600:].max()]
    assert model.predict_proba(emptied).shape == (int((table["x0"] > table["x0"].iloc[600:].max()).sum()), 4)
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        model.predict(dask_table[dask_table["x0"] > 1e9])


def test_bad_rows_are_named_and_nothing_is_fitted(table):
    bad = table.copy()
    bad.loc[750, "x2"] = np.nan
    parts = dd.from_pandas(bad, npartitions=3)
    for model in (po.SoftmaxRegression(), po.BayesianSoftmaxRegression(), po.GaussianClassifier("full")):
        with pytest.raises(ValueError, match=r"NaN, first in column 'x2', row 150 .* within partition 2"):
            model.fit(parts, "kind", sample_weight="weight")
        assert not hasattr(model, "classes_")
    model = po.SoftmaxRegression().fit(table, "kind", sample_weight="weight")
    with pytest.raises(ValueError, match="column 'x2', row 150"):
        model.predict_proba(parts)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(parts[["x0", "x1"]])
    with pytest.raises(ValueError, match="TableEncoder"):
        po.SoftmaxRegression().fit(parts.assign(text="a"), "kind")
    with pytest.raises(ValueError, match="needs its rows in memory"):
        po.SoftmaxRegression().partial_fit(parts, "kind")


def test_an_interrupted_fit_keeps_its_best_state(table, monkeypatch):
    from posteriori.rows import dask_graph

    passes = []

    def interrupted(graph, keys, run=dask_graph.run_graph):
        passes.append(1)
        if len(passes) == 5:
            raise KeyboardInterrupt
        return run(graph, keys)

    monkeypatch.setattr(dask_graph, "run_graph", interrupted)
    model = po.SoftmaxRegression(solver="lbfgs")
    with pytest.raises(KeyboardInterrupt):
        model.fit(dd.from_pandas(table, npartitions=2), "kind", sample_weight="weight")
    assert model.solution_.status.name == "INTERRUPTED"
    assert np.isfinite(model.coef_).all()


# Tables of any kind


@pytest.fixture(scope="module")
def messy(table):
    rng = np.random.default_rng(1)
    island = rng.choice(["Biscoe", "Dream", "Torgersen"], N, p=[0.6, 0.395, 0.005])
    day = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 500, N), unit="D")
    messy = table[["x0", "x1", "kind", "weight"]].assign(island=island, day=day, number=np.arange(N))
    messy.loc[rng.random(N) < 0.1, "x1"] = np.nan
    messy["island"] = messy["island"].where(rng.random(N) < 0.95)
    return messy


@pytest.mark.parametrize("n_partitions", [1, 3])
def test_a_table_is_encoded_on_the_workers_as_in_memory(messy, n_partitions):
    dask_table = dd.from_pandas(messy, npartitions=n_partitions)
    expected = po.TableEncoder(carry=["weight"]).fit(messy, "kind")
    encoder = po.TableEncoder(carry=["weight"]).fit(dask_table, "kind")
    assert list(encoder.feature_names_in_) == list(expected.feature_names_in_)
    columns = ["kind", "missing", "values", "becomes", "dropped"]
    pd.testing.assert_frame_equal(encoder.describe()[columns], expected.describe()[columns])
    encoded = encoder.transform(dask_table)
    assert isinstance(encoded, dd.DataFrame)
    assert list(encoded.dtypes) == list(encoded.compute().dtypes)
    whole = expected.transform(messy)
    assert list(encoded.columns) == list(whole.columns)
    pd.testing.assert_frame_equal(encoded.compute(), whole, check_dtype=False, rtol=1e-12)
    pd.testing.assert_frame_equal(encoder.transform(messy), whole, rtol=1e-12)


@pytest.mark.parametrize("name", ["map", *(pytest.param(name, marks=pytest.mark.slow) for name in ("bayes", "gauss"))])
def test_a_pipeline_is_fitted_to_a_messy_table(name, messy):
    pipeline = Pipeline([("encode", po.TableEncoder(carry=["weight"])), ("model", clone(MODELS[name]))])
    expected = clone(pipeline).fit(messy, "kind", model__sample_weight="weight")
    dask_table = dd.from_pandas(messy, npartitions=3)
    model = clone(pipeline).fit(dask_table, "kind", model__sample_weight="weight")
    np.testing.assert_allclose(model.predict_proba(dask_table), expected.predict_proba(messy), atol=1e-7)
    assert model.score(dask_table, "kind") == pytest.approx(expected.score(messy, "kind"))
    assert list(model.predict(dask_table.drop(columns=["kind", "weight"]))) == list(expected.predict(messy))


def test_empty_partitions_are_encoded(messy):
    dask_table = dd.from_pandas(messy, npartitions=3)
    late = dask_table[dask_table["number"] >= 700]
    encoder = po.TableEncoder().fit(late, "kind")
    whole = po.TableEncoder().fit_transform(messy[messy["number"] >= 700], "kind")
    pd.testing.assert_frame_equal(encoder.transform(late).compute(), whole, check_dtype=False, rtol=1e-12)
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        po.TableEncoder().fit(dask_table[dask_table["number"] < 0], "kind")


def test_partitions_that_cannot_be_encoded_together_are_named(messy):
    def joined(*parts):
        parts = [dask.delayed(part) for part in parts]
        return dd.from_delayed(parts, meta=messy.iloc[:0], verify_meta=False)

    with dask.config.set({"dataframe.convert-string": False}):
        text = messy.assign(x0=messy["x0"].astype(str))
        with pytest.raises(ValueError, match="Column 'x0' of X is of kind number in partition 0 and of kind category"):
            po.TableEncoder().fit(joined(messy, text), "kind")
        with pytest.raises(ValueError, match=r"Partitions 0 and 1 of X differ in their columns: \['day'\]"):
            po.TableEncoder().fit(joined(messy, messy.drop(columns="day")), "kind")
        infinite = messy.assign(x0=np.inf)
        with pytest.warns(ColumnWarning, match=f"Column 'x0': infinite numbers, in {len(messy)} rows, are taken as"):
            encoder = po.TableEncoder().fit(joined(messy, infinite), "kind")
        whole = po.TableEncoder().fit(pd.concat([messy, infinite]), "kind")
        pd.testing.assert_frame_equal(encoder.describe(), whole.describe())
    with pytest.raises(ValueError, match="y names the column 'species', and the columns of X are"):
        po.TableEncoder().fit(dd.from_pandas(messy, npartitions=2), "species")


# On a cluster


def tasks_left(client):
    """Tasks that the scheduler still knows of, once futures have had time to be let go."""
    for _ in range(50):
        gc.collect()
        left = client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))
        if not left:
            break
        time.sleep(0.1)
    return left


@pytest.mark.slow
@pytest.mark.parametrize("name", ["map", "bayes", "gauss"])
def test_a_cluster_gives_the_answers_of_memory_and_holds_nothing_afterwards(name, table, cluster):
    dask_table = dd.from_pandas(table, npartitions=3)
    expected = clone(MODELS[name]).fit(table, "kind", sample_weight="weight")
    with cluster.as_current(), dask.config.set(scheduler="distributed"):
        model = clone(MODELS[name]).fit(dask_table, "kind", sample_weight="weight")
        assert_same(model, expected, table, dask_table)
        with pytest.raises(ValueError, match="Partition 1 of X"):
            model.predict(dask_table.map_partitions(_spoilt, meta=dask_table._meta))
    assert tasks_left(cluster) == 0


def _spoilt(rows, partition_info=None):
    """One partition in which numbers are text."""
    return rows.assign(x0=rows["x0"].astype(str)) if partition_info and partition_info["number"] == 1 else rows


@pytest.mark.slow
def test_answers_do_not_depend_on_the_number_of_workers(table, cluster):
    dask_table = dd.from_pandas(table, npartitions=11)
    alone = po.SoftmaxRegression(tol=1e-14).fit(dask_table, "kind")
    with cluster.as_current(), dask.config.set(scheduler="distributed"):
        model = po.SoftmaxRegression(tol=1e-14).fit(dask_table, "kind")
    np.testing.assert_array_equal(model.coef_, alone.coef_)


@pytest.mark.slow
def test_a_worker_that_dies_in_the_middle_of_a_fit_changes_nothing(table, cluster, monkeypatch):
    from posteriori.rows import dask_graph

    dask_table = dd.from_pandas(table, npartitions=4)
    alone = po.SoftmaxRegression(tol=1e-14).fit(dask_table, "kind")
    passes, held = [], {}

    def fatal(graph, keys, run=dask_graph.run_graph):
        passes.append(1)
        if len(passes) == 3:
            held.update(cluster.has_what())
            os.kill(next(iter(cluster.run(os.getpid).values())), signal.SIGKILL)
        return run(graph, keys)

    monkeypatch.setattr(dask_graph, "run_graph", fatal)
    with cluster.as_current(), dask.config.set(scheduler="distributed"):
        model = po.SoftmaxRegression(tol=1e-14).fit(dask_table, "kind")
    assert len(passes) > 3
    kept = {str(key) for keys in held.values() for key in keys}
    assert sum(key.startswith("read_partition") for key in kept) == 4
    np.testing.assert_array_equal(model.coef_, alone.coef_)


def test_labels_and_weights_are_told_apart_whatever_they_are_called(table):
    """A column named as the other argument is called, or both the same column."""
    frame = table.rename(columns={"weight": "y"})
    rows = dd.from_pandas(frame[[*NAMES, "y"]], npartitions=3)
    labels = dd.from_pandas(table["kind"], npartitions=3)
    expected = po.SoftmaxRegression(tol=1e-14).fit(table[NAMES], table["kind"], sample_weight=table["weight"])
    found = po.SoftmaxRegression(tol=1e-14).fit(rows, labels, sample_weight="y")
    assert found.classes_.tolist() == ["ant", "bee", "cat"]
    np.testing.assert_allclose(found.coef_, expected.coef_, rtol=0, atol=1e-6 * np.abs(expected.coef_).max())
    both = table[NAMES].assign(t=1 + np.searchsorted(["ant", "bee", "cat"], table["kind"]))
    held = po.SoftmaxRegression(tol=1e-14).fit(both, "t", sample_weight="t")
    found = po.SoftmaxRegression(tol=1e-14).fit(dd.from_pandas(both, npartitions=2), "t", sample_weight="t")
    np.testing.assert_allclose(found.coef_, held.coef_, rtol=0, atol=1e-6 * np.abs(held.coef_).max())


def test_labels_may_be_objects(table):
    given = table[[*NAMES, "kind"]].astype({"kind": object})
    rows = dd.from_pandas(given, npartitions=2)
    rows = rows.assign(kind=rows["kind"].map(str.upper, meta=("kind", object)))
    model = po.SoftmaxRegression().fit(rows, "kind")
    assert model.classes_.tolist() == ["ANT", "BEE", "CAT"]
    assert model.predict_proba(rows).shape == (N, K)
    with pytest.raises(ValueError, match=r"Column 'kind' of X has dtype .* must hold numbers"):
        po.SoftmaxRegression().fit(rows, rows["x0"] > 0)


@pytest.mark.parametrize("where", [0, N - 1], ids=["in the first partition", "in the last"])
def test_missing_labels_are_counted_in_whichever_partition_they_are(table, where):
    given = table[[*NAMES, "kind"]].copy()
    given.loc[where, "kind"] = None
    with pytest.raises(ValueError, match=f"'kind' has 1 missing labels among {N} rows"):
        po.SoftmaxRegression().fit(dd.from_pandas(given, npartitions=3), "kind")


def test_row_numbers_and_copies_of_the_target_are_found_over_partitions():
    rng = np.random.default_rng(0)
    y = rng.choice(["a", "b"], 400)
    X = pd.DataFrame({"row": np.arange(400), "n": rng.permutation(400) + 1, "z": rng.normal(size=400), "y": y})
    X = X.assign(copy=np.where(y == "a", 3, 5))
    with pytest.warns(ColumnWarning) as caught:
        encoder = po.TableEncoder().fit(dd.from_pandas(X, npartitions=5), "y")
    assert {warning.message.columns for warning in caught} == {("copy",), ("n",)}
    pd.testing.assert_frame_equal(encoder.describe(), po.TableEncoder().fit(X, "y").describe())
    assert encoder.get_feature_names_out().tolist() == ["z", "copy"]
