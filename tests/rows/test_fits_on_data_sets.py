"""Fits of rows that are read from data sets: answers as in memory, clear errors when rows cannot be had."""

import os
import threading
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from sklearn.pipeline import Pipeline

import posteriori as po
from posteriori.exceptions import ConvergenceWarning
from posteriori.rows import arrow as streamed
from posteriori.rows import pieces

K, D, N = 3, 4, 1000
NAMES = [f"x{d}" for d in range(D)]


def table(seed=0, n=N):
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, D))
    X = Z * [1.0, 30.0, 0.1, 2.0] + [0.0, 5.0, -1.0, 0.0]
    F = Z @ np.random.default_rng(3).normal(size=(D, K)) + rng.gumbel(size=(n, K))
    kinds = pa.array(["ash", "birch", "cedar"]).take(pa.array(F.argmax(axis=1)))
    columns = {name: X[:, d] for d, name in enumerate(NAMES)}
    return pa.table({**columns, "kind": kinds, "w": rng.uniform(0.1, 3.0, n)})


TABLE = table()


@pytest.fixture(autouse=True)
def nothing_is_held(monkeypatch):
    """Rows are read again in every pass, in small batches, even where they would fit."""
    monkeypatch.setattr(streamed, "_HELD_BYTES", 0)
    monkeypatch.setattr(streamed, "_BLOCK_BYTES", 8 * 128 * (D + K))
    monkeypatch.setattr(streamed, "_LEAST_ROWS", 1)


def write_parquet(folder):
    for i in range(3):
        part = TABLE.slice(i * 334, 334)
        pq.write_table(part, folder / f"part-{i}.parquet", row_group_size=100)
    return ds.dataset(folder)


def write_partitioned(folder):
    half = pa.array((np.arange(N) >= N // 2).astype(np.int8))
    ds.write_dataset(
        TABLE.append_column("half", half),
        folder,
        format="parquet",
        partitioning=["half"],
        existing_data_behavior="error",
    )
    return ds.dataset(folder)  # the partition's column is not asked for


def write_ipc(folder):
    ds.write_dataset(TABLE, folder, format="feather", max_rows_per_file=300, max_rows_per_group=100)
    return ds.dataset(folder, format="feather")


def write_csv(folder):
    ds.write_dataset(TABLE, folder, format="csv", max_rows_per_file=400, max_rows_per_group=100)
    return ds.dataset(folder, format="csv")


WRITERS = {
    "parquet": write_parquet,
    "partitioned": write_partitioned,
    "ipc": write_ipc,
    "csv": write_csv,
    "memory": lambda folder: ds.dataset(TABLE),
}
ESTIMATORS = {
    "mle": po.SoftmaxRegression(alpha=0.0, tol=1e-14),
    "map": po.SoftmaxRegression(tol=1e-14),
    "lbfgs": po.SoftmaxRegression(solver="lbfgs", tol=1e-14),
    "balanced": po.SoftmaxRegression(tol=1e-14, class_weight="balanced"),
    "evidence": po.BayesianSoftmaxRegression(tol=1e-14),
    "laplace": po.BayesianSoftmaxRegression(prior=1.0, approximation="laplace", tol=1e-14),
    "kronecker": po.BayesianSoftmaxRegression(prior=1.0, posterior="kronecker", tol=1e-14),
    "flat": po.BayesianSoftmaxRegression(prior="flat", tol=1e-14),
    "jeffreys": po.BayesianSoftmaxRegression(prior="jeffreys", tol=1e-14),
    "gaussian": po.GaussianClassifier(),
    "tied": po.GaussianClassifier("tied", estimate="mle"),
}
FAST_WEIGHTS = (("float16", "map"), ("float32", "tied"), ("uint8", "tied"))


def features(given):
    return given.select([*NAMES, "kind"])


def new(name):
    made = ESTIMATORS[name]
    return type(made)(**made.get_params(deep=False))


def assert_same(streamed_model, held):
    if hasattr(held, "coef_"):
        scale = np.abs(held.coef_).max()
        np.testing.assert_allclose(streamed_model.coef_, held.coef_, rtol=0, atol=1e-6 * scale)
        assert streamed_model.solution_.objective == pytest.approx(held.solution_.objective, rel=1e-12)
    if getattr(held, "log_evidence_", None) is not None:
        assert streamed_model.log_evidence_ == pytest.approx(held.log_evidence_, rel=1e-6)
    if hasattr(held, "covariance_"):
        size = np.abs(held.covariance_).max()
        np.testing.assert_allclose(streamed_model.covariance_, held.covariance_, rtol=0, atol=1e-6 * size)
    if hasattr(held, "means_"):
        np.testing.assert_allclose(streamed_model.means_, held.means_, rtol=1e-10)
        np.testing.assert_allclose(streamed_model.covariances_, held.covariances_, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "weight"),
    [
        pytest.param(name, weight, marks=() if (i + j) % 2 and name != "gaussian" else pytest.mark.slow)
        for i, name in enumerate(ESTIMATORS)
        for j, weight in enumerate([None, "w"])
    ],
)
def test_the_answer_is_that_of_rows_in_memory(name, weight, tmp_path):
    dataset = write_parquet(tmp_path)
    chosen = features(TABLE) if weight is None else TABLE
    columns = chosen.column_names
    held = new(name).fit(chosen, "kind", sample_weight=weight)
    found = new(name).fit(projected(dataset, columns), "kind", sample_weight=weight)
    assert_same(found, held)
    np.testing.assert_array_equal(found.classes_, held.classes_)
    assert found.n_features_in_ == D
    assert list(found.feature_names_in_) == NAMES
    P = held.predict_proba(chosen)
    np.testing.assert_allclose(found.predict_proba(projected(dataset, columns)), P, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(found.predict(projected(dataset, columns)), held.predict(chosen))
    assert found.score(projected(dataset, columns), "kind") == held.score(chosen, "kind")


def projected(dataset, columns):
    return dataset.replace_schema(pa.schema([dataset.schema.field(name) for name in columns]))


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_every_kind_of_data_set(write, tmp_path):
    dataset = projected(write(tmp_path), [*NAMES, "kind"])
    held = po.SoftmaxRegression(tol=1e-14).fit(features(TABLE), "kind")
    assert_same(po.SoftmaxRegression(tol=1e-14).fit(dataset, "kind"), held)


def test_a_data_set_itself_is_taken_with_all_its_columns(tmp_path):
    pq.write_table(features(TABLE), tmp_path / "t.parquet")
    model = po.SoftmaxRegression().fit(ds.dataset(tmp_path), "kind")
    assert list(model.feature_names_in_) == NAMES
    assert model.solution_.n_passes > 3


def test_a_filtered_data_set(tmp_path):
    write_parquet(tmp_path)
    filtered = projected(ds.dataset(tmp_path), [*NAMES, "kind"]).filter(ds.field("x0") > 0)
    held = po.SoftmaxRegression(tol=1e-14).fit(filtered.to_table(), "kind")
    assert_same(po.SoftmaxRegression(tol=1e-14).fit(filtered, "kind"), held)


@pytest.mark.slow
def test_stochastic_gradients_of_a_filtered_data_set(tmp_path):
    write_parquet(tmp_path)
    filtered = projected(ds.dataset(tmp_path), [*NAMES, "kind"]).filter(ds.field("x0") > 0)
    held = po.SoftmaxRegression(tol=1e-14).fit(filtered.to_table(), "kind")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = po.SoftmaxRegression(solver="sgd").fit(filtered, "kind")
    assert found.solution_.objective < held.solution_.objective * 1.01


@pytest.mark.parametrize(
    ("rows", "n_jobs"),
    [
        pytest.param(rows, n_jobs, marks=() if (rows, n_jobs) in ((1000, 2), (5000, 1)) else pytest.mark.slow)
        for rows in (1, 7, 1000, 5000)
        for n_jobs in (1, 2)
    ],
)
def test_any_size_of_batches_and_number_of_threads(rows, n_jobs, monkeypatch):
    monkeypatch.setattr(streamed, "_BLOCK_BYTES", 8 * rows * (D + K))
    held = po.BayesianSoftmaxRegression(tol=1e-14).fit(features(TABLE), "kind")
    assert_same(po.BayesianSoftmaxRegression(tol=1e-14, n_jobs=n_jobs).fit(ds.dataset(features(TABLE)), "kind"), held)


def test_threads_do_not_change_a_bit():
    one, two = (po.SoftmaxRegression(n_jobs=n).fit(ds.dataset(features(TABLE)), "kind") for n in (1, 2))
    np.testing.assert_array_equal(one.coef_, two.coef_)


def test_passes_of_a_gaussian_classifier_are_counted():
    one = po.GaussianClassifier("full", estimate="mle").fit(ds.dataset(features(TABLE)), "kind")
    assert one.solution_.n_passes == 1
    assert po.GaussianClassifier("tied").fit(ds.dataset(features(TABLE)), "kind").solution_.n_passes == 2


def test_few_rows_are_held_in_memory(monkeypatch):
    monkeypatch.setattr(streamed, "_HELD_BYTES", 1 << 20)
    model = po.SoftmaxRegression(tol=1e-14).fit(ds.dataset(features(TABLE)), "kind")
    assert_same(model, po.SoftmaxRegression(tol=1e-14).fit(features(TABLE), "kind"))


def test_marginal_effects_know_the_number_of_rows():
    model = po.BayesianSoftmaxRegression().fit(features(TABLE), "kind")
    held, found = (model.marginal_effects(rows) for rows in (features(TABLE), ds.dataset(features(TABLE))))
    np.testing.assert_allclose(found["mean"], held["mean"], rtol=1e-9)


def test_columns_far_from_the_origin_and_of_many_types():
    rng = np.random.default_rng(1)
    n = 400
    z = rng.normal(size=n)
    given = pa.table(
        {
            "year": pa.array((2000 + 3 * z).astype(np.int16)),
            "far": pa.array(1e9 + z),
            "member": pa.array(rng.random(n) < 0.4),
            "small": pa.array(z.astype(np.float32) * 1e-3),
            "kind": pa.array(np.where(z + rng.logistic(size=n) > 0, "a", "b")).dictionary_encode(),
        }
    )
    held = po.SoftmaxRegression(tol=1e-14).fit(given, "kind")
    found = po.SoftmaxRegression(tol=1e-14).fit(ds.dataset(given), "kind")
    np.testing.assert_allclose(found.predict_proba(ds.dataset(given)), held.predict_proba(given), rtol=0, atol=1e-7)
    assert found.solution_.objective == pytest.approx(held.solution_.objective, rel=1e-12)


def test_stochastic_gradients_come_close():
    model = po.SoftmaxRegression(solver=po.StochasticGradient(epochs=30), random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(ds.dataset(features(TABLE)), "kind")
    best = po.SoftmaxRegression(tol=1e-12).fit(features(TABLE), "kind").solution_.objective
    assert model.solution_.objective < best * (1 + 1e-3)


def test_missing_values_are_left_out_by_diagonal_gaussians():
    x0 = TABLE["x0"].to_pylist()
    x0[3] = None
    given = features(TABLE).set_column(0, "x0", pa.array(x0))
    held = po.GaussianClassifier("diagonal").fit(given, "kind")
    assert_same(po.GaussianClassifier("diagonal").fit(ds.dataset(given), "kind"), held)


# What cannot be fitted


def with_column(name, values):
    given = features(TABLE)
    return given.set_column(given.column_names.index(name), name, pa.array(values))


def test_a_missing_value_is_named_with_its_row():
    values = TABLE["x2"].to_pylist()
    values[700] = None
    with pytest.raises(ValueError, match=r"NaN, first in column 'x2', row 700"):
        po.SoftmaxRegression().fit(ds.dataset(with_column("x2", values)), "kind")


@pytest.mark.parametrize(
    ("given", "options", "said"),
    [
        (features(TABLE), {"y": "species"}, "'species' is not a column"),
        (features(TABLE), {"y": TABLE["kind"].to_numpy()}, "must be the name of one of its columns, got ndarray"),
        (features(TABLE), {"y": "kind", "sample_weight": np.ones(N)}, "sample_weight must be the name"),
        (TABLE.append_column("t", TABLE["kind"]), {"y": "kind"}, "Column 't' of X has dtype string"),
        (with_column("kind", [None, *TABLE["kind"].to_pylist()[1:]]), {"y": "kind"}, "1 missing labels among 1000"),
        (with_column("kind", ["ash"] * N), {"y": "kind"}, "one class only"),
        (with_column("kind", np.linspace(0, 1, N)), {"y": "kind"}, "continuous"),
        (features(TABLE).slice(0, 0), {"y": "kind"}, "0 sample"),
        (features(TABLE).select(["kind"]), {"y": "kind"}, "pass at least one feature"),
    ],
    ids=["no column", "array", "weights", "text", "missing", "one class", "continuous", "no rows", "no features"],
)
def test_what_cannot_be_fitted_is_said(given, options, said):
    model = po.SoftmaxRegression()
    with pytest.raises(ValueError, match=said):
        model.fit(ds.dataset(given), **options)
    assert not hasattr(model, "classes_")


def test_weights_must_be_weights():
    given = TABLE.set_column(5, "w", pa.array(np.where(np.arange(N) == 9, -1.0, 1.0)))
    with pytest.raises(ValueError, match=r"'w' holds the weight -1\.0"):
        po.SoftmaxRegression().fit(ds.dataset(given), "kind", sample_weight="w")
    given = TABLE.set_column(5, "w", pa.array(np.zeros(N)))
    with pytest.raises(ValueError, match="Every row has weight zero"):
        po.SoftmaxRegression().fit(ds.dataset(given), "kind", sample_weight="w")


def test_a_declared_class_without_rows_keeps_its_place():
    model = po.SoftmaxRegression(classes=["cedar", "ash", "birch", "yew"]).fit(ds.dataset(features(TABLE)), "kind")
    assert model.classes_.tolist() == ["ash", "birch", "cedar", "yew"]
    assert model.predict_proba(ds.dataset(features(TABLE))).shape == (N, 4)
    with pytest.raises(ValueError, match="not among the declared classes"):
        po.SoftmaxRegression(classes=["ash", "birch"]).fit(ds.dataset(features(TABLE)), "kind")


def test_readers_can_be_read_only_once():
    with pytest.raises(TypeError, match="can be read only once"):
        po.SoftmaxRegression().fit(features(TABLE).to_reader(), "kind")
    with pytest.raises(TypeError, match="predict_to takes readers"):
        po.SoftmaxRegression().fit(features(TABLE), "kind").predict(features(TABLE).to_reader())


def test_other_columns_at_prediction_are_refused():
    model = po.SoftmaxRegression().fit(ds.dataset(features(TABLE)), "kind")
    with pytest.raises(ValueError, match="now missing"):
        model.predict(ds.dataset(features(TABLE).drop_columns(["x1"])))


def test_what_needs_rows_in_memory_says_so():
    with pytest.raises(ValueError, match="GPClassifier needs its rows in memory"):
        po.GPClassifier().fit(ds.dataset(features(TABLE)), "kind")
    with pytest.raises(ValueError, match="partial_fit"):
        po.SoftmaxRegression().partial_fit(ds.dataset(features(TABLE)), "kind")
    for wrapper in (po.CalibratedClassifier, po.ConformalClassifier):
        with pytest.raises(ValueError, match=f"{wrapper.__name__}.* needs its rows in memory"):
            wrapper(po.SoftmaxRegression()).fit(ds.dataset(features(TABLE)), "kind")
    with pytest.raises(ValueError, match="label_noise"):
        po.BayesianSoftmaxRegression(label_noise=0.1).fit(ds.dataset(features(TABLE)), "kind")


# What goes wrong while rows are read


def after_passes(monkeypatch, count, action):
    """Do something to the files once so many passes have begun."""
    real, lock, passes = streamed.StreamBlocks._batches, threading.Lock(), [0]

    def batches(self, *args, **options):
        with lock:
            passes[0] += 1
            if passes[0] == count:
                action()
        return real(self, *args, **options)

    monkeypatch.setattr(streamed.StreamBlocks, "_batches", batches)


def cut_short(path):
    size = os.path.getsize(path)
    with open(path, "r+b") as file:
        file.truncate(size // 2)


def written_anew(path):
    pq.write_table(features(table(seed=5, n=334)), path, row_group_size=100)


@pytest.mark.parametrize("name", ["map", "evidence", "gaussian"])
@pytest.mark.parametrize("fault", [os.remove, cut_short, written_anew], ids=["removed", "cut short", "written anew"])
def test_files_that_change_in_the_middle_of_a_fit(fault, name, tmp_path, monkeypatch):
    for i in range(3):
        pq.write_table(features(TABLE).slice(i * 334, 334), tmp_path / f"part-{i}.parquet", row_group_size=100)
    dataset = ds.dataset(tmp_path)
    after_passes(monkeypatch, 2, lambda: fault(tmp_path / "part-1.parquet"))
    model = new(name)
    with pytest.raises((OSError, ValueError), match=r"could not be read|have changed during the fit"):
        model.fit(dataset, "kind")
    assert not hasattr(model, "classes_")


def test_a_file_that_is_cut_short_from_the_start(tmp_path):
    dataset = write_parquet(tmp_path)
    cut_short(tmp_path / "part-2.parquet")
    with pytest.raises(OSError, match="could not be read"):
        po.SoftmaxRegression().fit(dataset, "kind")


# Weights, labels and names as they may come


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        pytest.param(dtype, name, marks=() if (dtype, name) in FAST_WEIGHTS else pytest.mark.slow)
        for dtype in ("float16", "float32", "uint8")
        for name in ("map", "gaussian", "tied")
    ],
)
def test_weights_count_with_all_digits_however_they_are_stored(dtype, name):
    weights = np.random.default_rng(2).integers(0, 200, N).astype(dtype)
    given = features(TABLE).append_column("w", pa.array(weights))
    held = new(name).fit(given, "kind", sample_weight="w")
    assert_same(new(name).fit(ds.dataset(given), "kind", sample_weight="w"), held)


@pytest.mark.parametrize("options", [{"sample_weight": "w"}, {}], ids=["weights", "class weights"])
def test_random_rows_have_weight(options, monkeypatch):
    """Rows of no weight are drawn nowhere: those that judge are the same as in memory."""
    given = features(TABLE)
    if options:
        given = given.append_column("w", pa.array((np.arange(N) % 7 == 0) * 1.0))
    factors = None if options else {"ash": 0.0}
    held = po.BayesianSoftmaxRegression(tol=1e-14, class_weight=factors).fit(given, "kind", **options)
    found = po.BayesianSoftmaxRegression(tol=1e-14, class_weight=factors).fit(ds.dataset(given), "kind", **options)
    assert found.solution_.scores == pytest.approx(held.solution_.scores, rel=1e-9)
    if options:
        assert_same(
            po.GaussianClassifier("tied").fit(ds.dataset(given), "kind", **options),
            po.GaussianClassifier("tied").fit(given, "kind", **options),
        )


@pytest.mark.parametrize("labels", [pa.string_view(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_labels_of_any_text_type(labels):
    kinds = TABLE["kind"].combine_chunks()
    given = features(TABLE).set_column(
        4, "kind", kinds.dictionary_encode() if pa.types.is_dictionary(labels) else kinds.cast(labels)
    )
    assert_same(
        po.SoftmaxRegression(tol=1e-14).fit(ds.dataset(given), "kind"),
        po.SoftmaxRegression(tol=1e-14).fit(features(TABLE), "kind"),
    )


def test_small_floats_as_labels():
    codes = TABLE["kind"].combine_chunks().dictionary_encode().indices.to_numpy().astype(np.float16)
    given = features(TABLE).set_column(4, "kind", pa.array(codes))
    assert po.SoftmaxRegression().fit(ds.dataset(given), "kind").classes_.tolist() == [0.0, 1.0, 2.0]


def test_labels_may_be_weights_too():
    codes = 1 + TABLE["kind"].combine_chunks().dictionary_encode().indices.to_numpy()
    given = features(TABLE).set_column(4, "kind", pa.array(codes))
    held = po.SoftmaxRegression(tol=1e-14).fit(given, "kind", sample_weight="kind")
    assert_same(po.SoftmaxRegression(tol=1e-14).fit(ds.dataset(given), "kind", sample_weight="kind"), held)


def test_too_many_labels_are_no_classes_however_they_are_cut(monkeypatch):
    monkeypatch.setattr(pieces, "_MOST_LABELS", 50)
    monkeypatch.setattr(streamed, "_MOST_ROWS", 40)
    given = features(TABLE).set_column(4, "kind", pa.array(np.arange(N)))
    with pytest.raises(ValueError, match="more than 50 different values"):
        po.SoftmaxRegression().fit(ds.dataset(given), "kind")


@pytest.mark.parametrize(
    ("column", "values", "options", "said"),
    [
        ("kind", [["a"]] * N, {}, "labels must be single values"),
        ("w", ["heavy"] * N, {"sample_weight": "w"}, "Column 'w' of X has dtype string"),
    ],
)
def test_columns_of_a_wrong_type_are_named(column, values, options, said):
    given = TABLE.drop_columns([column]).append_column(column, pa.array(values))
    with pytest.raises(ValueError, match=said):
        po.SoftmaxRegression().fit(ds.dataset(given), "kind", **options)


def test_infinite_values_are_named_without_a_warning():
    values = TABLE["x1"].to_numpy().copy()
    values[[3, 500, 501]] = [np.inf, -np.inf, np.inf]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=r"infinity, first in column 'x1', row 3"):
            po.SoftmaxRegression(n_jobs=2).fit(ds.dataset(with_column("x1", values)), "kind")


def test_a_pipeline_says_that_a_file_is_cut_short(tmp_path):
    dataset = write_parquet(tmp_path)
    cut_short(tmp_path / "part-2.parquet")
    with pytest.raises(OSError, match="could not be read"):
        Pipeline([("encode", po.TableEncoder()), ("fit", po.SoftmaxRegression())]).fit(dataset, "kind")


@pytest.mark.slow
def test_weak_signals_choose_the_same_prior(monkeypatch):
    """Where coefficients hardly matter the evidence is flat, and a start from other rows must not show."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60_000, 3)), rng.integers(0, 3, 60_000)
    given = pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": y})
    monkeypatch.setattr(streamed, "_SAMPLE_BYTES", 8 * 4 * 3000)
    held, found = (po.BayesianSoftmaxRegression(tol=1e-14).fit(rows, "y") for rows in (given, ds.dataset(given)))
    np.testing.assert_allclose(found.coef_, held.coef_, rtol=0, atol=1e-6 * np.abs(held.coef_).max())
