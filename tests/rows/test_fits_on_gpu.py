"""Estimators with device="gpu": the same optimum, posterior and statistics. JAX's CPU stands for a GPU."""

import logging
import pickle

import numpy as np
import pytest
from sklearn.base import clone

jax = pytest.importorskip("jax")

from tests.slow import quick_among  # noqa: E402

import posteriori as po  # noqa: E402
from posteriori.rows import dlpack  # noqa: E402
from posteriori.rows import gpu as device  # noqa: E402


@pytest.fixture(autouse=True)
def cpu_as_gpu(monkeypatch):
    monkeypatch.setattr(dlpack, "first_gpu", lambda: jax.devices("cpu")[0])
    monkeypatch.setattr(dlpack, "on_gpu", lambda X: isinstance(X, jax.Array))


def data(n=3001, D=6, K=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D)) * np.logspace(-1, 1, D) + 0.5
    logits = (X / np.logspace(-1, 1, D)) @ rng.normal(size=(D, K))
    return X, (logits + rng.gumbel(size=(n, K))).argmax(axis=1)


def put(*arrays):
    with jax.enable_x64(True):
        return jax.device_put(arrays)


X, Y = data()
WEIGHTS = np.random.default_rng(1).uniform(0.0, 2.0, len(Y))
SOFT = 0.9 * np.eye(4)[Y] + 0.025

TARGETS = {
    "labels": (Y, None),
    "weighted": (Y, WEIGHTS),
    "soft": (SOFT, None),
    "soft and weighted": (SOFT, WEIGHTS),
}


def near(a, b, tol):
    assert np.abs(a - b).max() <= tol * np.abs(b).max()


@quick_among(("target", "intercept"), [("labels", True), ("soft and weighted", False)], TARGETS, [True, False])
def test_softmax_regression_has_the_same_optimum(target, intercept):
    y, c = TARGETS[target]
    host = po.SoftmaxRegression(tol=1e-14, fit_intercept=intercept).fit(X, y, sample_weight=c)
    model = po.SoftmaxRegression(tol=1e-14, fit_intercept=intercept, device="gpu").fit(X, y, sample_weight=c)
    near(model.coef_, host.coef_, 1e-6)
    near(model.intercept_, host.intercept_, 1e-6) if intercept else None
    assert abs(model.solution_.objective / host.solution_.objective - 1.0) < 1e-12
    assert model.solution_.status is po.Status.CONVERGED
    assert type(model.coef_) is np.ndarray
    np.testing.assert_allclose(model.predict_proba(X), host.predict_proba(X), atol=1e-6)
    np.testing.assert_allclose(model.predict_log_proba(X), host.predict_log_proba(X), atol=1e-5)
    assert (model.predict(X) == host.predict(X)).all()


@pytest.mark.slow
def test_many_rows_start_from_samples_on_the_gpu():
    X, y = data(30_000, 5, 3)
    host, model = (po.SoftmaxRegression(tol=1e-14, device=where).fit(X, y) for where in ("cpu", "gpu"))
    near(model.coef_, host.coef_, 1e-6)
    assert abs(model.solution_.objective / host.solution_.objective - 1.0) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize(
    "model", [po.SoftmaxRegression(), po.BayesianSoftmaxRegression(1.0, approximation="laplace")], ids=str
)
def test_a_fit_to_many_rows_is_one_call_after_the_moments(model, monkeypatch):
    calls = []
    sum_over = device.GpuBlocks.map_sum

    def map_sum(self, kernel, *params, **options):
        calls.append((kernel.__name__, self.n_rows))
        return sum_over(self, kernel, *params, **options)

    monkeypatch.setattr(device.GpuBlocks, "map_sum", map_sum)
    X, y = data(80_000, 20, 8)
    solution = model.set_params(device="gpu").fit(X, y).solution_
    assert calls[0] == ("observed_moments", 80_000)
    assert len(calls) <= 6  # the others belong to the certificate at the end, and to the posterior
    assert solution.status is po.Status.CONVERGED
    assert solution.gap <= 1e-8 * solution.objective
    assert 3 < solution.n_iter < 15
    assert solution.n_passes < 25
    assert np.all(np.diff([entry.objective for entry in solution.trace]) <= 1e-6)


@pytest.mark.slow
def test_where_one_call_does_not_arrive_the_host_goes_on():
    X, _ = data(30_000, 5, 3)
    Z = X[np.abs(X[:, :2] - 0.5).min(axis=1) > 0.02]
    y = (Z[:, 0] > 0.5) * 2 + (Z[:, 1] > 0.5)
    with pytest.warns(po.SeparationWarning):
        model = po.SoftmaxRegression(alpha=0.0, device="gpu").fit(Z, y)
    assert model.solution_.status is po.Status.SEPARATED
    assert model.score(Z, y) == 1.0


@pytest.mark.slow
def test_iterations_are_limited_on_a_gpu_too():
    X, y = data(30_000, 5, 3)
    with pytest.warns(po.ConvergenceWarning):
        model = po.SoftmaxRegression(max_iter=2, device="gpu").fit(X, y)
    assert model.solution_.status is po.Status.ITERATION_LIMIT
    assert model.solution_.n_iter == 2
    best = po.SoftmaxRegression(device="gpu").fit(X, y).solution_
    assert best.objective < model.solution_.objective < best.trace[1].objective


@pytest.mark.parametrize(
    "solver",
    ["newton", *(pytest.param(each, marks=pytest.mark.slow) for each in ("lbfgs", po.Newton(exact=True), "gd", "sgd"))],
    ids=str,
)
def test_every_solver(solver):
    options = {"tol": 1e-10, "solver": solver, "random_state": 0}
    if solver in ("gd", "sgd"):
        options |= {"tol": 1e-2, "max_iter": 300}
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    host = po.SoftmaxRegression(**options).fit(Z, Y)
    model = po.SoftmaxRegression(**options, device="gpu").fit(Z, Y)
    assert abs(model.solution_.objective / host.solution_.objective - 1.0) < 1e-8


def test_rows_and_labels_on_the_device_need_no_argument():
    rows, labels = put(X, Y + 3)
    model = po.SoftmaxRegression(tol=1e-14).fit(rows, labels)
    assert model.classes_.tolist() == [3, 4, 5, 6]
    near(model.coef_, po.SoftmaxRegression(tol=1e-14).fit(X, Y).coef_, 1e-6)
    assert (model.predict(rows) == model.predict(X)).all()
    assert model.score(rows, labels) == model.score(X, Y + 3)
    assert type(model.predict_proba(rows)) is np.ndarray
    on_host = clone(model).set_params(device="cpu").fit(rows, labels)
    near(on_host.coef_, model.coef_, 1e-6)


def test_float32_rows_give_float64_results():
    (rows,) = put(X.astype(np.float32))
    model = po.SoftmaxRegression(tol=1e-14).fit(rows, Y)
    assert model.coef_.dtype == np.float64
    near(model.coef_, po.SoftmaxRegression(tol=1e-14).fit(X.astype(np.float32), Y).coef_, 1e-6)


def test_tables_keep_their_names():
    import pandas as pd

    table = pd.DataFrame(X, columns=list("abcdef")).assign(y=Y)
    model = po.SoftmaxRegression(tol=1e-14, device="gpu").fit(table, "y")
    assert model.feature_names_in_.tolist() == list("abcdef")
    near(model.coef_, po.SoftmaxRegression(tol=1e-14).fit(X, Y).coef_, 1e-6)
    assert model.predict_proba(table).shape == (len(Y), 4)


def test_columns_far_from_the_origin():
    far = X + 1e6
    host, model = (po.SoftmaxRegression(tol=1e-14, device=where).fit(far, Y) for where in (None, "gpu"))
    near(model.coef_, host.coef_, 1e-6)


@pytest.mark.filterwarnings("ignore::posteriori.SeparationWarning")
@pytest.mark.slow
def test_separation_is_found():
    rows = np.array([[0.0], [1.0], [2.0], [3.0]])
    model = po.SoftmaxRegression(alpha=0.0, device="gpu").fit(rows, [0, 0, 1, 1])
    assert model.solution_.status is po.Status.SEPARATED


def test_partial_fit_reads_rows_on_the_host():
    host, model = po.SoftmaxRegression(), po.SoftmaxRegression(device="gpu")
    rows, labels = put(X[:50], Y[:50])
    for _ in range(2):
        host.partial_fit(X[:50], Y[:50], classes=range(4))
        model.partial_fit(rows, labels, classes=range(4))
    assert (host.coef_ == model.coef_).all()


@pytest.mark.filterwarnings("ignore::posteriori.SeparationWarning")
@pytest.mark.parametrize(
    "options",
    [
        {"prior": "evidence", "approximation": "laplace"},
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in (
                {"prior": 1.0, "approximation": "laplace", "posterior": "full"},
                {"prior": "flat"},
                {"prior": "jeffreys"},
                {"prior": 1.0, "approximation": "variational"},
                {"prior": 1.0, "posterior": "kronecker"},
                {"prior": 1.0, "posterior": "diagonal"},
                {"prior": "ard", "approximation": "laplace"},
                {},
            )
        ),
    ],
    ids=str,
)
def test_the_posterior_is_the_same(options):
    few, y = X[:400], Y[:400]
    host, model = (
        po.BayesianSoftmaxRegression(**options, tol=1e-14, device=where).fit(few, y) for where in (None, "gpu")
    )
    near(model.coef_, host.coef_, 1e-6)
    near(model.covariance_, host.covariance_, 1e-6)
    if host.log_evidence_ is not None:
        assert abs(model.log_evidence_ / host.log_evidence_ - 1.0) < 1e-6
    np.testing.assert_allclose(model.predict_proba(few), host.predict_proba(few), atol=1e-6)


@pytest.mark.slow
def test_robust_errors():
    few, y, groups = X[:400], np.random.default_rng(0).integers(0, 4, 400), np.arange(400) % 40
    host, model = (po.BayesianSoftmaxRegression("flat", device=where).fit(few, y) for where in (None, "gpu"))
    for errors in ({"errors": "HC0"}, {"errors": "cluster", "groups": groups}):
        ours, theirs = (each.summary("sum", X=few, y=y, **errors)["sd"] for each in (model, host))
        assert np.isfinite(ours).all()
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
        ours, theirs = (each.marginal_effects(few, y=y, **errors)["sd"] for each in (model, host))
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.slow
def test_laplace_at_its_mode():
    options = {"prior": 1.0, "approximation": "laplace", "posterior": "full", "tol": 1e-14}
    host, model = (po.BayesianSoftmaxRegression(**options, device=where).fit(X, Y) for where in (None, "gpu"))
    near(model.covariance_, host.covariance_, 1e-6)
    assert abs(model.log_evidence_ / host.log_evidence_ - 1.0) < 1e-6
    for end, expected in zip(model.predict_interval(X[:20]), host.predict_interval(X[:20]), strict=True):
        np.testing.assert_allclose(end, expected, atol=1e-6)


@pytest.mark.slow
def test_label_noise_of_labels_on_the_gpu():
    rows, labels = put(X[:500], Y[:500])
    options = {"prior": 1.0, "label_noise": 0.05}
    model = po.BayesianSoftmaxRegression(**options).fit(rows, labels)
    near(model.coef_, po.BayesianSoftmaxRegression(**options).fit(X[:500], Y[:500]).coef_, 1e-3)


@quick_among(
    ("covariance", "target"),
    [("full", "labels"), ("tied", "soft and weighted")],
    ["full", "tied", "diagonal", "spherical", "auto"],
    TARGETS,
)
def test_gaussian_statistics_are_the_same(covariance, target):
    y, c = TARGETS[target]
    host = po.GaussianClassifier(covariance, estimate="mle").fit(X, y, sample_weight=c)
    model = po.GaussianClassifier(covariance, estimate="mle", device="gpu").fit(X, y, sample_weight=c)
    near(model.means_, host.means_, 1e-11)
    near(model.covariances_, host.covariances_, 1e-11)
    near(model.class_count_, host.class_count_, 1e-12)
    np.testing.assert_allclose(model.predict_proba(X), host.predict_proba(X), atol=1e-9)


@pytest.mark.parametrize("covariance", ["diagonal", pytest.param("auto", marks=pytest.mark.slow)])
def test_gaussian_with_missing_values_and_rows_on_the_gpu(covariance):
    holes = X.copy()
    holes[np.random.default_rng(0).random(X.shape) < 0.05] = np.nan
    rows, labels = put(holes, Y)
    options = {"estimate": "bayes" if covariance == "auto" else "mle"}
    host = po.GaussianClassifier(covariance, **options).fit(holes, Y)
    model = po.GaussianClassifier(covariance, **options).fit(rows, labels)
    near(model.means_, host.means_, 1e-9)
    assert model.solution_.structure == host.solution_.structure
    with pytest.raises(ValueError, match="X contains NaN"):
        po.GaussianClassifier("full").fit(rows, labels)


@pytest.mark.slow
def test_gaussian_partial_fit():
    whole = po.GaussianClassifier("tied", estimate="mle").fit(X, Y)
    parts = po.GaussianClassifier("tied", estimate="mle", device="gpu")
    parts.partial_fit(X[:1000], Y[:1000], classes=range(4)).partial_fit(X[1000:], Y[1000:])
    near(parts.covariances_, whole.covariances_, 1e-11)


# What goes wrong


@pytest.mark.parametrize("make", [po.SoftmaxRegression, po.BayesianSoftmaxRegression, po.GaussianClassifier])
def test_errors(make, monkeypatch):
    import scipy.sparse as sp

    with pytest.raises(ValueError, match="takes dense rows"):
        make(device="gpu").fit(sp.csr_array(X), Y)
    broken = X.copy()
    broken[3, 1] = np.nan
    with pytest.raises(ValueError, match="X contains NaN, first in column 1, row 3"):
        make(device="gpu", **({"covariance": "full"} if make is po.GaussianClassifier else {})).fit(broken, Y)
    with pytest.raises(ValueError, match="device='abacus' is not available: use None, 'cpu' or 'gpu'"):
        make(device="abacus").fit(X, Y)
    if jax.default_backend() == "cpu":
        monkeypatch.undo()
        with pytest.raises(ValueError, match="device='gpu' is not available: JAX has 'cpu' only"):
            make(device="gpu").fit(X, Y)


@pytest.mark.slow
def test_a_fitted_model_holds_no_array_of_a_gpu():
    rows, labels = put(X[:400], Y[:400])
    bayes = po.BayesianSoftmaxRegression(approximation="laplace")
    for model in (po.SoftmaxRegression(), bayes, po.GaussianClassifier("tied", estimate="mle")):
        assert b"jax" not in pickle.dumps(model.fit(rows, labels))


# Compilation


@pytest.fixture
def compiled(caplog):
    """Names of the functions that XLA compiles while something is done."""

    def names(work):
        caplog.clear()
        with jax.log_compiles(), caplog.at_level(logging.WARNING, logger="jax"):
            work()
        told = [record.getMessage() for record in caplog.records]
        return [message.split("(")[1].split(")")[0] for message in told if "XLA compilation of jit(" in message]

    return names


@pytest.mark.slow
def test_each_kernel_is_compiled_once_for_a_shape(compiled):
    X, y = data(21_000, 25, 5, seed=2)
    first = compiled(lambda: po.SoftmaxRegression(device="gpu").fit(X, y))
    assert first.count("_descent") == 1
    assert first.count("expected_moments") == 1
    assert first.count("hessian_product") == 1
    rows, labels = data(21_000, 25, 5, seed=3)
    assert compiled(lambda: po.SoftmaxRegression(alpha=0.5, device="gpu").fit(rows, labels)) == []
    options = {"prior": 1.0, "approximation": "laplace", "device": "gpu"}
    assert "pair_grams" in compiled(lambda: po.BayesianSoftmaxRegression(**options).fit(X, y))
    assert compiled(lambda: po.BayesianSoftmaxRegression(**options).fit(rows, labels)) == []


def test_jax_is_left_as_it_was():
    before = jax.config.jax_enable_x64, jax.config.jax_default_device
    po.SoftmaxRegression(device="gpu").fit(X, Y).predict(X)
    assert (jax.config.jax_enable_x64, jax.config.jax_default_device) == before
