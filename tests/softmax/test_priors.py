"""Gaussian priors: what a user states, as a density of weights and intercepts, is what a fit gets in its own units."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from tests.slow import quick_first

from posteriori.rows.memory import MemoryBlocks
from posteriori.softmax.bayesian import BayesianSoftmaxRegression
from posteriori.softmax.coordinates import Coordinates
from posteriori.softmax.moments import ObservedMoments
from posteriori.softmax.precision import DiagonalPrecision, KroneckerPrecision, MatrixPrecision
from posteriori.softmax.priors import WEAK, GaussianPrior, PriorInCoordinates, RidgePenalty
from posteriori.softmax.searched import SearchedPrior

K, D = 3, 2
RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, D)) * [3.0, 0.2] + [5.0, -1.0]
MEAN, SD = X.mean(axis=0), X.std(axis=0)


def spd(size, seed=0):
    root = np.random.default_rng(seed).normal(size=(size, size + 2))
    return root @ root.T / size + 0.1 * np.eye(size)


def standard(sparse):
    """The coordinates of a fit with an intercept: centred and scaled, or scaled with a centre when sparse."""
    blocks = MemoryBlocks(sp.csr_array(X) if sparse else X, np.arange(30) % K, None, K)
    return Coordinates.standard(Coordinates(), ObservedMoments.of(blocks, K), SD, centred=not sparse)


DENSE, SPARSE = standard(False), standard(True)
WEIGHTS, WIDE = RNG.normal(size=(K, D)), RNG.normal(size=(K, D + 1))
FORMS = {
    "number": GaussianPrior(precision=0.7),
    "array": GaussianPrior(precision=RNG.uniform(0.3, 2.0, (K, D))),
    "matrix of the weights": GaussianPrior(precision=spd(K * D)),
    "matrix with intercepts": GaussianPrior(precision=spd(K * (D + 1), 1)),
    "factors of the weights": GaussianPrior(precision=(spd(K, 2), spd(D, 3))),
    "factors with intercepts": GaussianPrior(precision=(spd(K, 2), spd(D + 1, 3))),
}
MEANS = {"zero": 0.0, "number": 0.4, "weights": WEIGHTS, "weights and intercepts": WIDE}
forms = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
means = pytest.mark.parametrize("mean", MEANS.values(), ids=MEANS)


def stated(prior, theta, mean_row, sd=1.0):
    """(theta - m)^T R (theta - m) for W and b, written out from what the prior says.

    In data units (sd of one) the mean row is where the logits' own weak prior holds. Under autoscale `theta` are the
    parameters for centred and scaled columns, whose mean row is the origin.
    """
    W, b = theta[:, :D] * sd, theta[:, D] + (theta[:, :D] @ MEAN if mean_row is None else 0.0)
    row = np.zeros(D) if mean_row is None else mean_row
    given = np.asarray(prior.mean, dtype=float)
    W0 = given[:, :D] if given.ndim else np.full((K, D), given)
    b0 = given[:, D] if given.ndim and given.shape[1] > D else -W0 @ row  # the mean row's logits are expected at zero
    R = np.kron(*prior.precision) if isinstance(prior.precision, tuple) else np.asarray(prior.precision, dtype=float)
    if R.ndim == 2 and R.shape == (K * (D + 1), K * (D + 1)):
        v = np.c_[W - W0, b - b0].ravel()
        return v @ R @ v
    tau = WEAK if prior.intercept_precision is None else prior.intercept_precision
    logit = ((W - W0) @ row + b - b0) ** 2
    v = (W - W0).ravel()
    if R.shape == (K * D, K * D):
        return v @ R @ v + tau * logit.sum()
    return (R * (W - W0) ** 2).sum() + tau * logit.sum()


def as_fitted(prior, theta):
    """The same for parameters in a fit's own coordinates."""
    deviation = theta if prior.mean is None else theta - prior.mean
    return np.vdot(deviation, prior.precision.times(deviation))


def with_mean(form, mean, **changes):
    return clone(form).set_params(mean=mean, **changes)


# The same density in any coordinates


@forms
@means
@pytest.mark.parametrize("tau", quick_first([3.0, None]))
@pytest.mark.parametrize("coordinates", quick_first([SPARSE, DENSE]), ids=["sparse", "dense"])
def test_in_data_units(form, mean, tau, coordinates):
    prior = with_mean(form, mean, intercept_precision=tau)
    fitted = prior.in_coordinates(K, D, True, coordinates)
    for theta in np.random.default_rng(1).normal(size=(5, K, D + 1)) * 2:
        expected = stated(prior, theta, MEAN)
        assert as_fitted(fitted, coordinates.inward(theta)) == pytest.approx(expected, rel=1e-9)


@forms
@means
@pytest.mark.parametrize("tau", quick_first([3.0, None]))
@pytest.mark.parametrize("coordinates", quick_first([SPARSE, DENSE]), ids=["sparse", "dense"])
def test_autoscaled(form, mean, tau, coordinates):
    """Stated for centred and scaled columns: so it is the same whether the columns could be centred or not."""
    prior = with_mean(form, mean, intercept_precision=tau, autoscale=True)
    fitted = prior.in_coordinates(K, D, True, coordinates)
    for theta in np.random.default_rng(1).normal(size=(5, K, D + 1)) * 2:
        expected = stated(prior, theta, None, SD)
        assert as_fitted(fitted, coordinates.inward(theta)) == pytest.approx(expected, rel=1e-9)


@forms
@pytest.mark.parametrize("autoscale", [False, True])
def test_determinants_change_with_the_units_alone(form, autoscale):
    """log|R'| - log|R| = -2 K sum log scale = 2 K sum log sd for weights w = w' / sd, whatever the form."""
    prior = clone(form).set_params(autoscale=autoscale)
    raw = prior.in_coordinates(K, D, True, Coordinates(centre=np.append(MEAN, 1.0)))
    dense, sparse = (prior.in_coordinates(K, D, True, c).precision.log_det() for c in (DENSE, SPARSE))
    assert dense == pytest.approx(sparse, abs=1e-9)
    if not autoscale:
        assert dense == pytest.approx(raw.precision.log_det() - 2 * K * np.log(SD).sum(), abs=1e-9)
    basis = np.eye(K)
    assert dense == pytest.approx(
        np.linalg.slogdet(prior.in_coordinates(K, D, True, DENSE).precision.matrix(basis))[1], abs=1e-9
    )


@pytest.mark.parametrize("autoscale", [False, True])
def test_without_an_intercept(autoscale):
    scale = Coordinates(scale=np.array([2.0, 0.5]))
    theta = np.random.default_rng(1).normal(size=(K, D))
    units = np.ones(D) if not autoscale else 1 / scale.scale
    for precision in (0.7, FORMS["array"].precision, spd(K * D), (spd(K, 2), spd(D, 3))):
        for mean in (0.0, 0.4, WEIGHTS):
            prior = GaussianPrior(mean=mean, precision=precision, autoscale=autoscale)
            fitted = prior.in_coordinates(K, D, False, scale)
            v = theta * units - mean
            if isinstance(precision, tuple):
                expected = v.ravel() @ np.kron(*precision) @ v.ravel()
            elif np.ndim(precision) == 2 and len(precision) == K * D:
                expected = v.ravel() @ precision @ v.ravel()
            else:
                expected = (precision * v**2).sum()
            assert as_fitted(fitted, scale.inward(theta)) == pytest.approx(expected, rel=1e-10)


def test_in_coordinates_that_are_the_data():
    fitted = GaussianPrior(mean=0.4, precision=0.7).in_coordinates(K, D, True, Coordinates())
    np.testing.assert_array_equal(fitted.mean, np.c_[np.full((K, D), 0.4), np.zeros(K)])
    np.testing.assert_allclose(fitted.precision.diagonal, np.c_[np.full((K, D), 0.7), np.full(K, WEAK)])
    assert WEAK == pytest.approx(0.16)
    usual = GaussianPrior().in_coordinates(K, D, True, Coordinates())
    assert usual.mean is None
    np.testing.assert_array_equal(usual.precision.diagonal[:, :D], 1.0)


def test_autoscaled_priors_do_not_depend_on_units_or_origins():
    """Columns in other units and from another origin: standard coordinates move, the prior in them does not."""
    scale, shift = np.array([10.0, 0.01]), np.array([100.0, -7.0])
    moved = Coordinates(shift=shift + MEAN * scale, scale=1 / (SD * scale))
    prior = GaussianPrior(mean=WEIGHTS, precision=spd(K * D), autoscale=True)
    here, there = prior.in_coordinates(K, D, True, DENSE), prior.in_coordinates(K, D, True, moved)
    np.testing.assert_array_equal(here.mean, there.mean)
    np.testing.assert_array_equal(here.precision.matrix(np.eye(K)), there.precision.matrix(np.eye(K)))


def test_kinds():
    def kind(form, coordinates=DENSE):
        return type(FORMS[form].in_coordinates(K, D, True, coordinates).precision)

    assert kind("number") is kind("array") is DiagonalPrecision
    assert kind("matrix of the weights") is kind("matrix with intercepts") is MatrixPrecision
    assert kind("factors with intercepts") is KroneckerPrecision
    assert kind("factors of the weights") is MatrixPrecision


def test_exchangeable_priors():
    def alike(**params):
        return GaussianPrior(**params).in_coordinates(K, D, True, DENSE).exchangeable

    assert alike()
    assert alike(mean=0.5)
    assert alike(mean=np.tile([1.0, 2.0], (K, 1)))
    assert not alike(mean=WEIGHTS)
    assert not alike(precision=FORMS["array"].precision)
    assert alike(precision=np.tile([1.0, 2.0], (K, 1)))
    assert not PriorInCoordinates(None, MatrixPrecision(np.eye(K * D), (K, D))).exchangeable


# What cannot be a prior


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"mean": "large"}, ["mean", "'large'", "numbers"]),
        ({"mean": np.nan}, ["mean", "finite"]),
        ({"mean": np.zeros(D)}, ["mean", r"\(2,\)", r"\(3, 2\) or \(3, 3\)"]),
        ({"mean": np.zeros((K, D + 2))}, ["mean", r"\(3, 4\)", r"\(3, 2\) or \(3, 3\)"]),
        ({"mean": np.zeros((K + 1, D))}, ["mean", r"\(4, 2\)", r"\(3, 2\) or \(3, 3\)"]),
        ({"precision": "weak"}, ["precision", "'weak'", "numbers"]),
        ({"precision": 0.0}, ["precision", "0.0", "positive", "alpha=0", "jeffreys"]),
        ({"precision": -1.0}, ["precision", "-1.0", "positive"]),
        ({"precision": np.inf}, ["precision", "finite"]),
        ({"precision": np.eye(K, D)}, ["precision", "positive"]),
        ({"precision": np.ones(D)}, ["precision", r"\(2,\)", r"\(3, 2\)", r"\(6, 6\)", r"\(9, 9\)", "Kronecker"]),
        ({"precision": np.eye(5)}, ["precision", r"\(5, 5\)", r"\(6, 6\)", r"\(9, 9\)"]),
        ({"precision": np.eye(6) + np.eye(6, k=1)}, ["precision", "symmetric"]),
        ({"precision": np.diag([1.0] * 5 + [-1.0])}, ["precision", "positive definite"]),
        ({"precision": np.diag([1.0] * 8 + [0.0])}, ["precision", "positive definite"]),
        ({"precision": (np.eye(2), np.eye(2))}, ["Kronecker", r"\(2, 2\)", r"\(3, 3\) and \(2, 2\) or \(3, 3\)"]),
        ({"precision": (np.eye(3), np.eye(4))}, ["Kronecker", r"\(4, 4\)", r"\(3, 3\) and \(2, 2\) or \(3, 3\)"]),
        ({"precision": (-np.eye(3), np.eye(2))}, ["first factor", "positive definite"]),
        ({"precision": (np.eye(3), np.array([[1.0, 2.0], [0.0, 1.0]]))}, ["second factor", "symmetric"]),
        ({"precision": (np.eye(3), np.array([[1.0, 2.0], [2.0, 1.0]]))}, ["second factor", "positive definite"]),
        ({"precision": (np.eye(3),)}, ["precision|Kronecker"]),
        ({"precision": (np.eye(3), np.eye(2), np.eye(2))}, ["precision|Kronecker"]),
        ({"intercept_precision": 0.0}, ["intercept_precision", "0.0", "positive"]),
        ({"intercept_precision": -2}, ["intercept_precision", "-2", "positive"]),
        ({"intercept_precision": np.inf}, ["intercept_precision", "inf", "positive"]),
        ({"intercept_precision": np.nan}, ["intercept_precision", "nan", "positive"]),
        ({"intercept_precision": "weak"}, ["intercept_precision", "'weak'", "positive"]),
    ],
)
def test_errors_say_what_was_given_and_what_is_needed(params, words):
    for word in words:
        with pytest.raises(ValueError, match=word):
            GaussianPrior(**params).in_coordinates(K, D, True, DENSE)


def test_without_an_intercept_errors_do_not_speak_of_one():
    with pytest.raises(ValueError, match=r"\(3, 2\) is needed"):
        GaussianPrior(mean=np.zeros((K, D + 1))).in_coordinates(K, D, False, Coordinates())
    with pytest.raises(ValueError, match=r"matrix \(6, 6\), or a pair"):
        GaussianPrior(precision=spd(9)).in_coordinates(K, D, False, Coordinates())
    with pytest.raises(ValueError, match=r"\(3, 3\) and \(2, 2\) are needed"):
        GaussianPrior(precision=(spd(3), spd(3))).in_coordinates(K, D, False, Coordinates())


def test_parameters_by_name():
    prior = GaussianPrior(mean=1.0, precision=2.0, intercept_precision=3.0, autoscale=True)
    params = {
        "mean": 1.0,
        "precision": 2.0,
        "intercept_precision": 3.0,
        "autoscale": True,
        "blocks": None,
        "columns": None,
    }
    assert prior.get_params() == params
    assert clone(prior).get_params() == params
    assert prior.set_params(precision=5.0) is prior
    assert prior.precision == 5.0
    with pytest.raises(ValueError, match=r"'alpha'.*'mean', 'precision'"):
        prior.set_params(alpha=1.0)


# Point estimates


def test_the_penalty_of_a_point_estimate_in_any_units():
    alpha = np.random.default_rng(3).uniform(size=(K, D))
    penalty = RidgePenalty(alpha, 0.5)
    np.testing.assert_array_equal(penalty.precisions(K, D, True), np.c_[alpha, np.full(K, 0.5)])
    np.testing.assert_array_equal(penalty.precisions(K, D, False), alpha)
    scale = np.arange(1.0, D + 1)
    weights = np.random.default_rng(4).normal(size=(K, D))
    inner = Coordinates(scale=scale).inward(weights)
    np.testing.assert_allclose(penalty.precisions(K, D, False, scale) * inner**2, alpha * weights**2, rtol=1e-12)


@pytest.mark.parametrize(
    ("penalty", "has_intercept", "allowed"),
    [(RidgePenalty(1.0), True, True), (RidgePenalty(1.0), False, False), (RidgePenalty(1.0, True), True, False)],
)
def test_columns_may_be_moved_where_no_prior_holds_the_intercepts(penalty, has_intercept, allowed):
    assert penalty.coordinate_rule(has_intercept).shift_allowed == allowed


# A prior of one's own


class BlockPrior(SearchedPrior):
    """One precision for each of two blocks of columns: all that a new prior of this kind needs."""

    note = " (one per block, by evidence)"

    def __init__(self, first):
        self.first = first

    def groups(self, D):
        return (np.arange(D) >= self.first).astype(int)


@pytest.mark.parametrize("posterior", ["full", "diagonal"])
def test_a_prior_with_one_precision_per_block_of_columns_is_a_class_and_nothing_else(posterior):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 5))
    y = (2.0 * X[:, :2] @ rng.normal(size=(2, 3)) + rng.gumbel(size=(400, 3))).argmax(axis=1)
    model = BayesianSoftmaxRegression(BlockPrior(2), posterior=posterior, approximation="laplace").fit(X, y)
    precision = model.prior_.precision / X.var(axis=0)
    np.testing.assert_allclose(precision[:, :2], precision[0, 0], rtol=1e-6)
    np.testing.assert_allclose(precision[:, 2:], precision[0, 2], rtol=1e-6)
    assert precision[0, 2] > 10 * precision[0, 0]  # columns without effect are held back
    assert "one per block, by evidence" in str(model)
