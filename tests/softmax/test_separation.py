"""Without a prior, separated classes have no finite optimum: this is said, and what is returned is usable."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris

from posteriori import BayesianSoftmaxRegression, ConvergenceWarning, SeparationWarning, SoftmaxRegression, Status
from posteriori.softmax.certificate import SeparatedClasses

rng = np.random.default_rng(0)
NOISE = rng.normal(size=(60, 2))
SIDE = np.repeat([-1.0, 1.0], 30)
THREE = np.repeat([0, 1, 2], 20)
ANGLE = 2 * np.pi * THREE / 3

IRIS = load_iris(as_frame=True)

# (features, labels, the pairs of classes that are separated)
CASES = {
    "two classes": (np.column_stack([NOISE, SIDE * (1 + rng.random(60))]), (SIDE > 0).astype(int), {(0, 1)}),
    "two classes, one feature": ((SIDE * (1 + rng.random(60)))[:, None], (SIDE > 0).astype(int), {(0, 1)}),
    "three classes": (
        np.column_stack([5 * np.cos(ANGLE), 5 * np.sin(ANGLE)]) + 0.3 * NOISE,
        THREE,
        {(0, 1), (0, 2), (1, 2)},
    ),
    "three classes in a row": ((10 * THREE + rng.random(60))[:, None], THREE, {(0, 1), (0, 2), (1, 2)}),
    # at zero both classes occur, elsewhere only one
    "quasi-complete": (
        np.column_stack([NOISE[:, 0], np.where(np.arange(60) % 3 == 0, 0.0, SIDE)]),
        (SIDE > 0).astype(int),
        {(0, 1)},
    ),
    "a class with a mark of its own": (np.column_stack([NOISE, THREE == 2]), THREE % 2 + 2 * (THREE == 2), None),
    "one of three": (IRIS.data.to_numpy(), IRIS.target.to_numpy(), {(0, 1), (0, 2)}),
}
SOLVERS = ["auto", "newton", "lbfgs"]


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(("X", "y", "pairs"), CASES.values(), ids=CASES.keys())
def test_separation_is_reported(X, y, pairs, solver):
    model = SoftmaxRegression(alpha=0.0, solver=solver)
    with pytest.warns(SeparationWarning, match=r"^Classes \d and \d.* are separated") as caught:
        model.fit(X, y)
    assert len(caught) == 1
    assert issubclass(SeparationWarning, ConvergenceWarning)
    assert model.solution_.status is Status.SEPARATED
    assert not model.solution_.converged
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.intercept_).all()
    assert np.isfinite(model.predict_proba(X)).all()
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0, atol=1e-12)
    if pairs is not None:
        assert set(model.solution_.separation.pairs) == pairs
    for i, j in model.solution_.separation.pairs:
        rows = np.isin(y, [i, j])
        contrast = model.coef_[j] - model.coef_[i], model.intercept_[j] - model.intercept_[i]
        side = np.sign(X[rows] @ contrast[0] + contrast[1])
        wrong = side * np.where(y[rows] == j, 1, -1) < 0
        assert wrong.mean() <= 0.2  # those at the very border of quasi-complete separation


@pytest.mark.parametrize(("X", "y", "pairs"), CASES.values(), ids=CASES.keys())
def test_the_direction_is_a_proof(X, y, pairs):
    """Along it no row's own class loses to another, and some row's gains."""
    model = SoftmaxRegression(alpha=0.0)
    with pytest.warns(SeparationWarning):
        model.fit(X, y)
    gain = np.column_stack([X, np.ones(len(X))]) @ model.solution_.separation.direction.T
    margin = gain[np.arange(len(y)), y][:, None] - gain
    assert margin.max() > 0
    assert margin.min() >= -1e-5 * margin.max()


def test_the_message_names_classes_and_features():
    with pytest.warns(SeparationWarning) as caught:
        SoftmaxRegression(alpha=0.0).fit(IRIS.data, IRIS.target_names[IRIS.target])
    message = str(caught[0].message)
    assert "setosa and v" in message
    assert any(name in message for name in IRIS.data.columns)
    assert "alpha > 0" in message


@pytest.mark.parametrize(
    ("n_pairs", "said"),
    [(1, "a and b are"), (2, "a and b (and 1 more pair) are"), (3, "a and b (and 2 more pairs) are")],
)
def test_the_message_counts_the_other_pairs(n_pairs, said):
    apart = SeparatedClasses(
        np.array([[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0]]), [(0, 1), (0, 2), (1, 2)][:n_pairs], np.ones(1)
    )
    assert said in apart.sentence(np.array(["a", "b", "c"]), None)


def test_the_message_names_the_culprit():
    table = pd.DataFrame(NOISE, columns=["noise", "more noise"]).assign(culprit=SIDE)
    with pytest.warns(SeparationWarning, match=r"Classes no and yes are separated.* led by culprit"):
        SoftmaxRegression(alpha=0.0).fit(table, np.where(SIDE > 0, "yes", "no"))


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("strength", [0.0, 1.0, 3.0])
def test_overlapping_classes_are_not_reported(strength, K, solver):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(300, 3))
    y = (strength * X @ rng.normal(size=(3, K)) + rng.gumbel(size=(300, K))).argmax(axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = SoftmaxRegression(alpha=0.0, solver=solver).fit(X, y)
    assert model.solution_.status is Status.CONVERGED
    assert model.solution_.separation is None
    np.testing.assert_allclose((model.predict_proba(X) - np.eye(K)[y]).T @ X, 0.0, atol=0.03)


def test_a_single_row_on_the_wrong_side_makes_the_optimum_finite():
    X = (SIDE * (1 + np.arange(60) % 7))[:, None]
    y = (SIDE > 0).astype(int)
    y[3] = 1 - y[3]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = SoftmaxRegression(alpha=0.0).fit(X, y)
    assert model.solution_.status is Status.CONVERGED


@pytest.mark.parametrize(("X", "y", "pairs"), CASES.values(), ids=CASES.keys())
def test_a_prior_makes_the_optimum_finite(X, y, pairs):
    model = SoftmaxRegression(alpha=1e-3).fit(X, y)
    assert model.solution_.status is Status.CONVERGED
    residual = np.eye(y.max() + 1)[y] - model.predict_proba(X)
    np.testing.assert_allclose(1e-3 * model.coef_, residual.T @ X, atol=1e-4)


def test_a_class_without_rows_is_named_and_not_a_feature():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), np.arange(60) % 3
    with pytest.warns(SeparationWarning, match=r"No row is of class 3, so the likelihood.*penalize_intercept=True"):
        SoftmaxRegression(alpha=0, classes=[0, 1, 2, 3]).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SoftmaxRegression(penalize_intercept=True, classes=[0, 1, 2, 3]).fit(X, y)
    with pytest.warns(SeparationWarning, match=r"No row is of class 3.*prior='evidence', or a number"):
        BayesianSoftmaxRegression("flat", classes=[0, 1, 2, 3]).fit(X, y)
