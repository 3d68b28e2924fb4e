"""Weights and columns that are named, through classifiers around classifiers."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold

from posteriori import CalibratedClassifier, ConformalClassifier, SoftmaxRegression, UtilityClassifier

X, Y = load_iris(return_X_y=True)
NAMES = [f"x{d}" for d in range(4)]
ORDER = np.random.default_rng(0).permutation(len(Y))


class TwoHalves:
    """Folds that cut repeated rows together: rows n and n + N are the same."""

    def split(self, X, y=None, groups=None):
        rows = np.arange(len(X))
        first = rows % len(Y) < len(Y) // 2
        return iter([(rows[first], rows[~first]), (rows[~first], rows[first])])

    def get_n_splits(self, *_):
        return 2


@pytest.mark.parametrize("method", ["temperature", "vector", "dirichlet", "isotonic"])
def test_a_weight_of_two_is_a_row_twice(method):
    rows, y = X[ORDER], Y[ORDER]
    options = {"method": method, "cv": TwoHalves()}
    weighted = CalibratedClassifier(SoftmaxRegression(), **options).fit(rows, y, sample_weight=np.full(len(y), 2.0))
    twice = CalibratedClassifier(SoftmaxRegression(), **options).fit(np.vstack([rows, rows]), np.append(y, y))
    np.testing.assert_allclose(weighted.predict_proba(X), twice.predict_proba(X), atol=1e-5)


def test_weights_reach_the_estimator_of_a_conformal_classifier():
    weights = np.random.default_rng(1).uniform(0.1, 5.0, len(Y))
    model = ConformalClassifier(LogisticRegression(max_iter=1000)).fit(X, Y, sample_weight=weights)
    plain = ConformalClassifier(LogisticRegression(max_iter=1000)).fit(X, Y)
    train, held = model._split(Y, 0)
    assert len(held) == model.n_calibration_
    expected = LogisticRegression(max_iter=1000).fit(X[train], Y[train], weights[train])
    np.testing.assert_allclose(model.predict_proba(X), expected.predict_proba(X))
    assert np.abs(model.predict_proba(X) - plain.predict_proba(X)).max() > 1e-3


@pytest.mark.parametrize("table", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize(
    "model",
    [
        CalibratedClassifier(SoftmaxRegression(), cv=KFold(3, shuffle=True, random_state=0)),
        ConformalClassifier(SoftmaxRegression()),
        UtilityClassifier(SoftmaxRegression()),
    ],
    ids=lambda model: type(model).__name__,
)
def test_the_target_may_be_a_column_of_the_table(table, model):
    frame = table({**{name: X[:, d] for d, name in enumerate(NAMES)}, "species": Y})
    features = table({name: X[:, d] for d, name in enumerate(NAMES)})
    found = model.fit(frame, "species").predict_proba(features)
    np.testing.assert_array_equal(model.predict_proba(frame), found)  # there it is ignored
    assert list(model.feature_names_in_) == NAMES
    np.testing.assert_allclose(found, model.fit(features, Y).predict_proba(features), atol=1e-9)
