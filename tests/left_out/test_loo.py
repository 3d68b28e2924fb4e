"""Rows left out by formulas, against fits without them."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from tests.slow import quick_first

import posteriori as po
from posteriori.left_out.result import surprise

IRIS, WINE = load_iris(return_X_y=True), load_wine(return_X_y=True)
SOME = np.arange(0, 150, 3)


def small(data=IRIS, rows=SOME):
    return data[0][rows], data[1][rows]


def brute(model, X, y, groups=None, c=None):
    """log p of every row's label by a fit without the row's group."""
    groups = np.arange(len(y)) if groups is None else groups
    out = np.empty(len(y))
    for group in np.unique(groups):
        away = groups == group
        options = {} if c is None else {"sample_weight": c[~away]}
        fitted = clone(model).fit(X[~away], y[~away], **options)
        log_p = fitted.predict_log_proba(X[away])
        out[away] = log_p[np.arange(away.sum()), np.searchsorted(fitted.classes_, y[away])]
    return out


MODELS = {
    "softmax": po.SoftmaxRegression(1.0),
    "gaussian": po.GaussianClassifier("tied", prior="evidence"),
    "laplace": po.BayesianSoftmaxRegression(1.0, approximation="laplace", predictive="quasi"),
    "mode": po.BayesianSoftmaxRegression(1.0, approximation="laplace", predictive="plugin"),
    "variational": po.BayesianSoftmaxRegression(1.0, approximation="variational", predictive="quasi"),
    "importance": po.BayesianSoftmaxRegression(1.0, approximation="importance"),
    "evidence": po.BayesianSoftmaxRegression(),
    "maximum likelihood": po.GaussianClassifier("full", estimate="mle"),
    "diagonal": po.GaussianClassifier("diagonal"),
    "process": po.GPClassifier(),
}


@pytest.mark.parametrize("name", quick_first(MODELS, 4))
def test_the_total_is_that_of_fits_without_each_row(name):
    """Within 1 % or half a standard error, whichever is larger, with unreliable rows fitted again."""
    X, y = IRIS if name == "evidence" else small()  # of few rows, each has a say in which posterior predicts
    left = clone(MODELS[name]).fit(X, y).loo(exact="unreliable")
    total = brute(MODELS[name], X, y).sum()
    assert abs(left.total - total) <= max(0.01 * abs(total), 0.5 * left.log_loss_error * len(y))
    assert left.log_loss == pytest.approx(-left.total / len(y))
    assert left.n_unreliable == 0


@pytest.mark.parametrize("name", ["softmax", "laplace", "mode"])
def test_a_newton_step_is_nearly_exact_under_a_strong_prior(name):
    X, y = small()
    model = clone(MODELS[name]).fit(X, y)
    np.testing.assert_allclose(-model.loo(groups=None).losses, brute(MODELS[name], X, y), atol=0.02)


def test_gaussian_classes_are_exact_where_nothing_is_chosen():
    X, y = small()
    prior = po.NormalInverseWishartPrior(mean=X.mean(axis=0), kappa=0.5, nu=8.0, scale=np.eye(4))
    model = po.GaussianClassifier("full", prior=prior)
    np.testing.assert_allclose(-model.fit(X, y).loo().losses, brute(model, X, y), rtol=1e-9)


@pytest.mark.parametrize("name", quick_first({key: MODELS[key] for key in ("softmax", "gaussian", "mode")}, 3))
def test_all_probabilities_sum_to_one_and_exact_all_is_brute_force(name):
    X, y = small()
    model = clone(MODELS[name]).fit(X, y)
    np.testing.assert_allclose(np.exp(model.loo().log_proba).sum(axis=1), 1.0, atol=1e-8)
    exact = model.loo(exact="all", groups=None)
    np.testing.assert_allclose(-exact.losses, brute(MODELS[name], X, y), atol=1e-6)
    assert exact.refitted.all()


@pytest.mark.parametrize("name", ["softmax", "mode", "gaussian"])
def test_copies_leave_together(name):
    """Rows that occur twice are left out as if they occurred once with twice the weight."""
    X, y = small(WINE, np.arange(0, 178, 4))
    twice = np.repeat(np.arange(len(y)), 2)
    model = clone(MODELS[name]).fit(X[twice], y[twice])
    left = model.loo()
    assert left.copied
    assert left.n_twins == len(twice)
    assert left.n_groups == len(y)
    weighted = clone(MODELS[name]).fit(X, y, sample_weight=np.full(len(y), 2.0)).loo()
    np.testing.assert_allclose(left.losses[::2], weighted.losses, atol=1e-5)
    assert model.loo(groups=None).log_loss < left.log_loss  # a row whose twin is still there is easy


def test_genuine_repeats_leave_alone():
    """Rows of few kinds, whose labels are drawn one by one, are each evidence of their own."""
    rng = np.random.default_rng(0)
    X = rng.integers(2, size=(300, 2)).astype(float)
    y = (rng.random(300) < 0.2 + 0.6 * X[:, 0]).astype(int)
    left = po.SoftmaxRegression(1.0).fit(X, y).loo()
    assert left.n_twins == 300
    assert not left.copied
    assert left.n_groups == 300
    together = po.SoftmaxRegression(1.0).fit(X, y).loo(groups="twins")
    assert together.n_groups == 8


def test_groups_of_rows_leave_together():
    X, y = small()
    groups = np.arange(len(y)) % 5
    model = po.SoftmaxRegression(1.0).fit(X, y)
    np.testing.assert_allclose(-model.loo(groups=groups).losses, brute(model, X, y, groups), atol=1e-6)


def test_weights_leave_with_their_row():
    X, y = small()
    c = np.random.default_rng(1).uniform(0.2, 3.0, len(y))
    model = po.SoftmaxRegression(1.0)
    left = clone(model).fit(X, y, sample_weight=c).loo()
    np.testing.assert_allclose(-left.losses, brute(model, X, y, c=c), atol=0.05)
    assert left.log_loss == pytest.approx(c @ left.losses / c.sum())


def test_soft_labels():
    X, y = small()
    Y = 0.8 * np.eye(3)[y] + 0.2 / 3
    model = po.SoftmaxRegression(1.0)
    left = clone(model).fit(X, Y).loo()
    for n in (0, 20, 40):
        others = np.arange(len(y)) != n
        log_p = clone(model).fit(X[others], Y[others]).predict_log_proba(X[[n]])[0]
        assert left.losses[n] == pytest.approx(-Y[n] @ log_p, abs=5e-3)


@pytest.mark.parametrize("name", ["softmax", "mode", "gaussian"])
def test_rows_of_no_weight_are_predicted_as_new_ones(name):
    X, y = small()
    c = np.ones(len(y))
    c[[3, 30]] = 0.0
    model = clone(MODELS[name]).fit(X, y, sample_weight=c)
    np.testing.assert_allclose(model.loo().log_proba[[3, 30]], model.predict_log_proba(X[[3, 30]]), atol=1e-8)


def test_a_table_that_names_its_labels():
    import pandas as pd

    X, y = small()
    table = pd.DataFrame(X, columns=list("abcd")).assign(label=np.array(["x", "y", "z"])[y])
    left = po.SoftmaxRegression(1.0).fit(table, "label").loo()
    np.testing.assert_allclose(left.losses, po.SoftmaxRegression(1.0).fit(X, y).loo().losses)
    assert left.to_frame()["label"].tolist() == table["label"].tolist()


def test_rows_are_needed_again_after_storage_and_in_another_process(tmp_path):
    X, y = small()
    model = po.SoftmaxRegression(1.0).fit(X, y)
    expected = model.loo().losses
    po.save(model, tmp_path / "model")
    for other in (po.load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        with pytest.raises(ValueError, match=r"Pass them again: loo\(X, y\)"):
            other.loo()
        np.testing.assert_allclose(other.loo(X, y).losses, expected)


@pytest.mark.parametrize("name", ["softmax", "mode", "gaussian"])
def test_other_rows_are_refused(name):
    X, y = small()
    model = clone(MODELS[name]).fit(X, y)
    with pytest.raises(ValueError, match="not the rows of the fit"):
        model.loo(X[::-1][:-1], y[:-1])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"exact": "some"}, "exact='some' is unknown"),
        ({"groups": "families"}, "groups is 'families'"),
        ({"groups": [1, 2]}, "groups is an array of shape"),
        ({"X": IRIS[0]}, "needs the labels too"),
    ],
)
def test_wrong_arguments_are_named(options, words):
    X, y = small()
    with pytest.raises(ValueError, match=words):
        po.SoftmaxRegression(1.0).fit(X, y).loo(**options)


def test_a_data_set_on_disk():
    import pyarrow as pa
    import pyarrow.dataset as ds

    X, y = small()
    rows = ds.dataset(pa.table({**{f"x{d}": X[:, d] for d in range(4)}, "label": y}))
    model = po.SoftmaxRegression(1.0).fit(rows, "label")
    with pytest.raises(ValueError, match="Pass them again"):
        model.loo()
    left = model.loo(rows, "label")
    np.testing.assert_allclose(left.losses, po.SoftmaxRegression(1.0).fit(X, y).loo(groups=None).losses, atol=1e-6)
    assert left.n_twins is None


def noisy(n=60):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    return X, (X[:, 0] + rng.normal(size=n) > 0).astype(int)


@pytest.mark.filterwarnings("ignore::posteriori.ConvergenceWarning")
def test_a_process_of_copies():
    X, y = noisy()
    twice = np.tile(np.arange(len(y)), 2)
    one, two = po.GPClassifier(max_iter=3).fit(X, y), po.GPClassifier(max_iter=3).fit(X[twice], y[twice])
    assert two.solution_.n_copies == len(y)
    np.testing.assert_allclose(two.loo().losses[: len(y)], one.loo().losses, atol=0.02)
    assert two.loo(groups=None).log_loss < two.loo().log_loss


@pytest.mark.slow
def test_a_process_seen_through_inducing_inputs(monkeypatch):
    X, y = load_iris(return_X_y=True)
    whole = po.GPClassifier(max_iter=5).fit(X, y)
    monkeypatch.setattr("posteriori.gp.inference._MOST_OPERATIONS", 1.0)
    seen = po.GPClassifier(max_iter=5).fit(X, y)
    assert seen.loo().log_loss == pytest.approx(whole.loo().log_loss, abs=0.03)


@pytest.mark.parametrize("name", ["softmax", "mode"])
def test_no_rows_are_kept_in_files_or_in_other_processes(name):
    X, y = small()
    model = clone(MODELS[name]).fit(X, y)
    assert X.tobytes()[:200] not in pickle.dumps(model)
    assert X.tobytes()[:200] in pickle.dumps(vars(model)["_rows"].given)


def test_a_classifier_that_decides_has_the_left_out_rows_of_its_estimator():
    X, y = small()
    model = po.UtilityClassifier(po.SoftmaxRegression(1.0)).fit(X, y)
    np.testing.assert_array_equal(model.loo(groups=None).losses, model.estimator_.loo(groups=None).losses)


@pytest.mark.parametrize("kind", ["csr_matrix", "coo_matrix", "dia_array", "list"])
def test_rows_of_any_kind_can_be_fitted_again(kind):
    """Not all of them can be indexed."""
    X, y = small()
    given = X.tolist() if kind == "list" else getattr(sp, kind)(X)
    left = po.SoftmaxRegression(0.01).fit(given, y.tolist() if kind == "list" else y).loo(exact="unreliable")
    assert left.refitted.any()
    np.testing.assert_allclose(
        left.losses, po.SoftmaxRegression(0.01).fit(X, y).loo(exact="unreliable").losses, atol=1e-6
    )


def test_surprise_is_zero_in_the_mean_where_labels_are_drawn_as_stated():
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(3), 4)
    loss = -np.log(P)
    mean = (P * (loss - (P * loss).sum(axis=1, keepdims=True))).sum(axis=1)
    np.testing.assert_allclose(mean, 0.0, atol=1e-12)
    for k in range(3):
        expected = np.maximum(loss[:, k] - (P * loss).sum(axis=1), 0.0)
        np.testing.assert_allclose(surprise(np.log(P), np.tile(np.eye(3)[k], (4, 1))), expected)


def test_rows_that_surprise_a_process_are_fitted_again():
    X, y = IRIS
    left = po.GPClassifier(max_iter=3).fit(X, y).loo(groups=None)
    assert {83, 133} <= set(np.flatnonzero(left.unreliable))
    assert left.n_unreliable < 8


def test_what_a_result_says():
    X, y = small()
    left = po.SoftmaxRegression(0.01).fit(X, y).loo()
    assert repr(left).startswith(
        f"LeftOut(log-loss {left.log_loss:.4f} +- {left.log_loss_error:.4f} of 50 rows left out"
    )
    assert left.n_unreliable > 0
    assert f"not to be trusted for {left.n_unreliable}: see loo(exact='unreliable')" in repr(left)
    assert left.accuracy == np.mean(left.log_proba.argmax(axis=1) == y)
