"""Classifiers compared on rows held out: values by hand, every container, weights, names and mistakes."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import load_iris
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

import posteriori as po

X, CODES = load_iris(return_X_y=True)
Y = np.array(["setosa", "versicolor", "virginica"])[CODES]
NAMES = ["a", "b", "c", "d"]
CV = StratifiedKFold(3, shuffle=True, random_state=4)
MODELS = {"naive": GaussianNB(), "prior": DummyClassifier(strategy="prior")}


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Fits are so small that threads would wait for each other."""
    with threadpool_limits(1):
        yield


def losses(model, weights=None):
    """-log p of each row by scikit-learn's own cross-validation."""
    params = None if weights is None else {"sample_weight": weights}
    P = cross_val_predict(model, X, Y, cv=CV, method="predict_proba", params=params)
    return -np.log(P[np.arange(len(Y)), CODES])


def test_losses_differences_and_errors_are_those_of_cross_validation():
    found = po.compare(MODELS, X, Y, cv=CV)
    naive, prior = losses(GaussianNB()), losses(MODELS["prior"])
    np.testing.assert_array_equal(np.sort(found.rows), np.arange(150))
    np.testing.assert_allclose(found.losses["naive"], naive[found.rows], rtol=1e-12)
    first, second = found.models
    assert (first.name, second.name) == ("naive", "prior") == (found.best, "prior")
    assert first.log_loss == pytest.approx(naive.mean(), rel=1e-12)
    assert first.log_loss_error == pytest.approx(naive.std(ddof=1) / np.sqrt(150), rel=1e-12)
    assert first.difference == first.difference_error == 0.0
    apart = prior - naive
    assert second.difference == pytest.approx(apart.mean(), rel=1e-12)
    assert second.difference_error == pytest.approx(apart.std(ddof=1) / np.sqrt(150), rel=1e-12)
    assert found.difference("prior", "naive") == pytest.approx((second.difference, second.difference_error))
    P = cross_val_predict(GaussianNB(), X, Y, cv=CV, method="predict_proba")
    assert first.accuracy == pytest.approx((P.argmax(axis=1) == CODES).mean())
    assert first.brier == pytest.approx(((P - np.eye(3)[CODES]) ** 2).sum(axis=1).mean(), rel=1e-12)
    assert min(first.seconds, second.seconds) > 0.0


def test_weights_count_in_fits_and_scores():
    weights = np.random.default_rng(0).uniform(0.2, 3.0, 150)
    found = po.compare({"naive": GaussianNB()}, X, Y, sample_weight=weights, cv=CV)
    each = losses(GaussianNB(), weights)
    mean = np.average(each, weights=weights)
    assert found.models[0].log_loss == pytest.approx(mean, rel=1e-12)
    error = np.sqrt(150 / 149 * (weights**2 @ (each - mean) ** 2)) / weights.sum()
    assert found.models[0].log_loss_error == pytest.approx(error, rel=1e-12)
    pipeline = make_pipeline(StandardScaler(), GaussianNB())
    assert po.compare([pipeline], X, Y, sample_weight=weights, cv=CV).models[0].log_loss == pytest.approx(mean)


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.table])
def test_tables_with_the_target_and_the_weights_in_them(kind):
    columns = {name: X[:, d] for d, name in enumerate(NAMES)}
    weights = np.where(CODES == 0, 2.0, 1.0)
    table = kind(columns | {"kind": Y, "w": weights})
    models = [GaussianNB(), po.SoftmaxRegression()]
    found = po.compare(models, table, "kind", sample_weight="w", cv=3, random_state=1)
    expected = po.compare(models, X, Y, sample_weight=weights, cv=3, random_state=1)
    assert [m.name for m in found.models] == [m.name for m in expected.models]
    np.testing.assert_allclose([m.log_loss for m in found.models], [m.log_loss for m in expected.models], rtol=1e-9)


def test_sparse_rows():
    model = LogisticRegression(solver="newton-cholesky")
    found = po.compare([model], csr_array(X), Y, cv=CV)
    assert found.models[0].log_loss == pytest.approx(losses(model).mean(), rel=1e-6)


def test_models_of_a_list_are_called_by_their_classes():
    pipeline = make_pipeline(StandardScaler(), GaussianNB())
    found = po.compare([GaussianNB(), GaussianNB(var_smoothing=1.0), pipeline, MODELS["prior"]], X, Y, cv=2)
    assert set(found.losses) == {"GaussianNB", "GaussianNB 2", "GaussianNB 3", "DummyClassifier"}


def test_a_class_that_a_fold_cannot_learn_costs_what_no_knowledge_would():
    labels = Y.copy()
    labels[0] = "rare"
    found = po.compare({"prior": MODELS["prior"]}, X, labels, cv=5)
    assert found.losses["prior"][found.rows == 0] == pytest.approx(np.log(4.0))
    assert np.isfinite(found.models[0].brier)


def test_the_same_seed_gives_the_same_folds():
    first, again, other = (po.compare(MODELS, X, Y, cv=3, random_state=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.rows, again.rows)
    assert first.models[0].log_loss == again.models[0].log_loss != other.models[0].log_loss


def test_views():
    found = po.compare(MODELS, X, Y, cv=CV)
    frame = found.to_frame()
    assert [*frame.index] == ["naive", "prior"]
    assert frame.loc["prior", "difference"] == found.models[1].difference
    assert repr(found).startswith("Comparison(log-loss of 150 rows held out: naive 0.")


def test_mistakes_are_named():
    with pytest.raises(TypeError, match="'svm' has no fit or no predict_proba"):
        po.compare({"svm": LinearSVC()}, X, Y)
    with pytest.raises(TypeError, match="models is a GaussianNB: pass a list"):
        po.compare(GaussianNB(), X, Y)
    with pytest.raises(ValueError, match="models is empty"):
        po.compare([], X, Y)
    with pytest.raises(ValueError, match="cv"):
        po.compare(MODELS, X, Y, cv=1)
    with pytest.raises(ValueError, match="y='kind' is not a column"):
        po.compare(MODELS, pd.DataFrame(X, columns=NAMES), "kind")
