"""What a Gaussian classifier predicts: Student t densities by hand, log-odds, new rows, and what must not matter."""

import warnings
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats
from scipy.special import gammaln, logsumexp
from sklearn.datasets import load_iris, load_wine
from tests.gaussian.naive_gaussian import DIAGONAL, TIED, as_matrices, is_tied, shape

from posteriori import GaussianClassifier, NormalInverseWishartPrior, SingularWarning, SoftmaxRegression
from posteriori.gaussian.structures import STRUCTURES

ESTIMATES = ("mle", "map", "bayes")
INVARIANT = [structure for structure in STRUCTURES if shape(structure) != "spherical"]
structures = pytest.mark.parametrize("structure", STRUCTURES)
estimates = pytest.mark.parametrize("estimate", ESTIMATES)
X, Y = load_iris(return_X_y=True)
X, Y = X[::2], Y[::2]
NEW = X[:40] + np.random.default_rng(0).normal(scale=0.7, size=(40, 4))
PRIOR = NormalInverseWishartPrior(mean=[5, 3, 4, 1], kappa=0.4, nu=7.5, scale=0.9, concentration=0.5)


DEFAULT = NormalInverseWishartPrior()


def refitted(names):
    """For tests that fit again: to seek a prior each time is slow, one structure alone stands for it."""
    cases = [(name, "mle", "predictive") for name in names] + [(name, "map", DEFAULT) for name in names]
    cases += [("tied", "bayes", "predictive")]
    cases += [pytest.param(name, "bayes", "predictive", marks=pytest.mark.slow) for name in names if name != "tied"]
    return pytest.mark.parametrize(("structure", "estimate", "prior"), cases)


def fitted(structure, estimate="bayes", prior="predictive", X=X, y=Y, **options):
    return GaussianClassifier(structure, estimate=estimate, prior=prior, **options).fit(X, y)


@cache
def shared(structure, estimate):
    """A fit to all rows, for tests that only predict with it; a prior is sought for "bayes" alone."""
    return fitted(structure, estimate, PRIOR if estimate == "map" else "predictive")


def student_classes(structure, prior, X=X, y=Y, K=3):
    """The classes with all parameters integrated out, by theory.md, section 5: Student t, one for each feature where
    covariances are diagonal."""
    N, D = X.shape
    m, Psi = np.broadcast_to(prior.mean, D), prior.scale * np.eye(D)
    n = np.bincount(y, minlength=K) if N else np.zeros(K)
    xbar = np.array([X[y == k].mean(axis=0) if n[k] else m for k in range(K)])
    kappa = prior.kappa + n
    means = (prior.kappa * m + n[:, None] * xbar) / kappa[:, None]
    scatter = [(X[y == k] - xbar[k]).T @ (X[y == k] - xbar[k]) for k in range(K)]
    gathered = [scatter[k] + prior.kappa * n[k] / kappa[k] * np.outer(xbar[k] - m, xbar[k] - m) for k in range(K)]
    tied = is_tied(structure)
    for k in range(K):
        nu, Psi_n = (prior.nu + N, Psi + sum(gathered)) if tied else (prior.nu + n[k], Psi + gathered[k])
        stretch = (kappa[k] + 1) / kappa[k]
        if shape(structure) == "full":
            yield stats.multivariate_t(means[k], Psi_n * stretch / (nu - D + 1), df=nu - D + 1)
        elif shape(structure) == "spherical":
            own = range(K) if tied else [k]
            nu, psi = prior.nu + n[own].sum() * D, prior.scale + sum(np.trace(gathered[j]) for j in own)
            yield stats.multivariate_t(means[k], psi * stretch / nu * np.eye(D), df=nu)
        else:
            yield stats.t(nu, means[k], np.sqrt(Psi_n.diagonal() * stretch / nu))


def student(structure, prior, x, X=X, y=Y, K=3):
    """log p(x, k), (n, K), with frequencies of Dirichlet and multinomial."""
    classes = student_classes(structure, prior, X, y, K)
    densities = [np.reshape(known.logpdf(x), (len(x), -1)).sum(axis=1) for known in classes]
    frequencies = (np.bincount(y, minlength=K) if len(y) else np.zeros(K)) + prior.concentration
    return np.column_stack(densities) + np.log(frequencies / frequencies.sum())


def gaussian_classes(model):
    """The classes with the model's parameters."""
    covariances = as_matrices(model.solution_.structure, model.covariances_, *model.means_.shape)
    for mean, S in zip(model.means_, covariances, strict=True):
        yield stats.multivariate_normal(mean, S)


# Densities


@structures
def test_joint_probabilities_are_student_t(structure):
    model = fitted(structure, prior=PRIOR)
    expected = student(structure, PRIOR, NEW)
    np.testing.assert_allclose(model.predict_joint_log_proba(NEW), expected, rtol=1e-10, atol=1e-10)
    total = logsumexp(expected, axis=1)
    np.testing.assert_allclose(model.score_samples(NEW), total, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(model.predict_log_proba(NEW), expected - total[:, None], rtol=0, atol=1e-10)
    np.testing.assert_allclose(model.predict_proba(NEW), np.exp(expected - total[:, None]), rtol=0, atol=1e-12)


@structures
def test_the_evidence_is_the_product_of_predictions(structure):
    """p(X, y) = prod_n p(x_n, y_n | rows before), whatever the order of the rows."""
    rows = np.random.default_rng(1).permutation(len(Y))[:12]
    total = 0.0
    for i, row in enumerate(rows):
        before = rows[:i]
        total += student(structure, PRIOR, X[[row]], X[before], Y[before])[0, Y[row]]
    model = fitted(structure, prior=PRIOR, X=X[rows], y=Y[rows], classes=[0, 1, 2])
    assert model.log_evidence_ == pytest.approx(total, abs=1e-9)


@structures
def test_one_more_row_adds_its_joint_probability_to_the_evidence(structure):
    model = fitted(structure, prior=PRIOR)
    for k in range(3):
        longer = fitted(structure, prior=PRIOR, X=np.vstack([X, NEW[:1]]), y=np.append(Y, k))
        gain = longer.log_evidence_ - model.log_evidence_
        assert gain == pytest.approx(model.predict_joint_log_proba(NEW[:1])[0, k], abs=1e-9)


def test_given_class_probabilities_enter_the_evidence():
    free, given = fitted("tied", prior=PRIOR), fitted("tied", prior=PRIOR, class_prior=[0.2, 0.3, 0.5])
    n, a = np.bincount(Y), PRIOR.concentration
    classes = gammaln(3 * a) - gammaln(n.sum() + 3 * a) + (gammaln(n + a) - gammaln(a)).sum()
    difference = n @ np.log([0.2, 0.3, 0.5]) - classes
    assert given.log_evidence_ - free.log_evidence_ == pytest.approx(difference, abs=1e-9)
    shift = given.predict_joint_log_proba(NEW) - free.predict_joint_log_proba(NEW)
    np.testing.assert_allclose(
        shift, np.tile(np.log([0.2, 0.3, 0.5]) - np.log(free.class_prior_), (40, 1)), rtol=0, atol=1e-12
    )


@structures
@estimates
def test_outliers_have_the_lowest_densities(structure, estimate):
    model = shared(structure, estimate)
    far = np.vstack([X, X[:5] + 40.0])
    assert set(np.argsort(model.score_samples(far))[:5]) == set(range(len(X), len(X) + 5))


# Log-odds and decisions


@structures
@estimates
def test_log_odds_are_antisymmetric_differences_of_log_probabilities(structure, estimate):
    model = shared(structure, estimate)
    L = model.predict_log_proba(NEW)
    for i in range(3):
        for j in range(3):
            odds = model.log_odds(NEW, i, j)
            np.testing.assert_allclose(odds, L[:, i] - L[:, j], rtol=1e-9, atol=1e-9)
            np.testing.assert_array_equal(odds, -model.log_odds(NEW, j, i))


@refitted(STRUCTURES)
def test_methods_agree_with_each_other(structure, estimate, prior):
    names = np.array(["b", "c", "a"])  # labels whose order is another
    model = fitted(structure, estimate, prior, y=names[Y])
    assert model.classes_.tolist() == ["a", "b", "c"]
    P, L, J = model.predict_proba(NEW), model.predict_log_proba(NEW), model.predict_joint_log_proba(NEW)
    np.testing.assert_allclose(np.exp(L), P, rtol=0, atol=1e-12)
    np.testing.assert_allclose(logsumexp(L, axis=1), 0.0, rtol=0, atol=1e-12)
    np.testing.assert_allclose(P.sum(axis=1), 1.0, rtol=0, atol=1e-12)
    np.testing.assert_allclose(J - model.score_samples(NEW)[:, None], L, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(model.predict(NEW), model.classes_[P.argmax(axis=1)])
    np.testing.assert_allclose(model.decision_function(NEW), L, rtol=1e-9, atol=1e-9)
    assert model.score(X, names[Y]) == np.mean(model.predict(X) == names[Y])


@refitted(STRUCTURES)
def test_two_classes_have_one_decision_the_log_odds_of_the_second(structure, estimate, prior):
    model = fitted(structure, estimate, prior, X=X[Y > 0], y=Y[Y > 0])
    decisions = model.decision_function(NEW)
    assert decisions.shape == (40,)
    np.testing.assert_allclose(decisions, model.log_odds(NEW, 2, 1), rtol=1e-12)
    np.testing.assert_array_equal(model.predict(NEW), np.where(decisions > 0, 2, 1))


@pytest.mark.parametrize(("i", "j", "named"), [("x", 0, "i='x'"), (0, 7, "j=7")])
def test_log_odds_of_no_class_are_refused(i, j, named):
    with pytest.raises(ValueError, match=named):
        fitted("tied", prior=PRIOR).log_odds(NEW, i, j)


def test_a_class_that_is_impossible_has_odds_of_minus_infinity():
    model = fitted("tied", "mle", class_prior=[0.5, 0.5, 0.0])
    assert (model.log_odds(NEW, 2, 0) == -np.inf).all()
    assert (model.log_odds(NEW, 0, 2) == np.inf).all()
    np.testing.assert_array_equal(model.log_odds(NEW, 2, 2), 0.0)
    assert (model.predict_proba(NEW)[:, 2] == 0.0).all()
    assert (model.predict_log_proba(NEW)[:, 2] == -np.inf).all()
    np.testing.assert_allclose(model.predict_proba(NEW).sum(axis=1), 1.0, rtol=0, atol=1e-12)


# Far away


@structures
@estimates
def test_log_probabilities_are_finite_however_far_a_row_lies(structure, estimate):
    model = fitted(structure, estimate, prior="predictive" if estimate == "mle" else PRIOR)
    directions = np.vstack([np.eye(4), -np.eye(4), np.ones(4), [1, -1, 1, -1]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for distance in (1e3, 1e10, 1e100, 1e200):
            rows = np.vstack([X[0] + distance * directions, X[60] - distance * directions])
            L = model.predict_log_proba(rows)
            assert np.isfinite(L).all()
            np.testing.assert_allclose(logsumexp(L, axis=1), 0.0, rtol=0, atol=1e-12)
            np.testing.assert_allclose(model.predict_proba(rows).sum(axis=1), 1.0, rtol=0, atol=1e-12)
            assert np.isfinite(model.score_samples(rows)).all()
            assert np.isfinite(model.predict_joint_log_proba(rows)).all()
            assert np.isfinite(model.log_odds(rows, 0, 2)).all()


def test_far_away_a_student_t_doubts_more_than_a_gaussian():
    """Log-odds grow with the logarithm of the distance, not with its square."""
    rows = X[0] + np.outer([1e2, 1e4], np.ones(4))
    gaussian, t = (fitted("full", e, PRIOR).log_odds(rows, 0, 1) for e in ("map", "bayes"))
    assert abs(gaussian[1]) > 1e3 * abs(gaussian[0])
    assert abs(t[1]) < abs(t[0]) + 60


@pytest.mark.parametrize("structure", TIED)
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_where_log_odds_do_not_change_probabilities_do_not(structure, container):
    """Linear log-odds are constant along a direction: the squares that cancel must not be seen, however large."""
    model = fitted(structure, "map", PRIOR)
    coef = model.to_softmax().coef_
    direction = np.linalg.svd(coef - coef[0])[2][-1]
    rows = NEW[:6]
    np.testing.assert_allclose(
        model.predict_proba(container(rows + 1e9 * direction)), model.predict_proba(rows), rtol=0, atol=1e-5
    )


# New rows


@structures
@estimates
def test_draws_are_those_of_the_density(structure, estimate):
    """Frequencies, means, and the mean of -log p(x, k), which only draws from p bring to the entropy of p."""
    model = fitted(structure, estimate, prior="predictive" if estimate == "mle" else PRIOR, random_state=3)
    N = 20_000
    rows, labels = model.sample(N)
    frequencies = np.bincount(labels, minlength=3) / N
    np.testing.assert_allclose(frequencies, model.class_prior_, rtol=0, atol=5 * 0.5 / np.sqrt(N))
    for k in range(3):
        mine = rows[labels == k]
        error = mine.std(axis=0) / np.sqrt(len(mine))
        assert (np.abs(mine.mean(axis=0) - model.means_[k]) < 5 * error).all()
    surprise = -model.predict_joint_log_proba(rows)[np.arange(N), labels]
    classes = student_classes(structure, PRIOR) if estimate == "bayes" else gaussian_classes(model)
    entropy = sum(
        p * (np.sum(known.entropy()) - np.log(p)) for p, known in zip(model.class_prior_, classes, strict=True)
    )
    assert surprise.mean() == pytest.approx(entropy, abs=5 * surprise.std() / np.sqrt(N))


@pytest.mark.parametrize(("structure", "df"), [("full", 25 + 7.5 - 3), ("diagonal", 25 + 7.5), ("spherical", 107.5)])
def test_draws_of_a_feature_are_student_t(structure, df):
    """Kolmogorov and Smirnov's test of one feature of one class against its marginal distribution."""
    model = fitted(structure, prior=PRIOR, class_prior=[1.0, 0.0, 0.0])
    rows, labels = model.sample(4000, random_state=0)
    assert (labels == 0).all()
    z = (rows[:, 1] - model.means_[0, 1]) / rows[:, 1].std() * np.sqrt(df / (df - 2))
    assert stats.kstest(z, stats.t(df).cdf).pvalue > 1e-3


def test_draws_are_reproducible():
    model = fitted("tied", prior=PRIOR, random_state=5)
    first, again, other = model.sample(20), model.sample(20), model.sample(20, random_state=6)
    np.testing.assert_array_equal(first[0], again[0])
    np.testing.assert_array_equal(first[1], again[1])
    assert (first[0] != other[0]).any()
    assert first[0].shape == (20, 4)
    assert set(first[1]) <= set(model.classes_)
    with pytest.raises(ValueError, match="n_samples"):
        model.sample(0)
    with pytest.raises(ValueError, match="n_samples"):
        model.sample(2.5)


# As a softmax regression


@pytest.mark.parametrize("structure", TIED)
@pytest.mark.parametrize("estimate", ["mle", "map"])
@pytest.mark.parametrize("load", [load_iris, load_wine])
def test_a_tied_gaussian_is_a_softmax_regression(structure, estimate, load):
    X, y = load(return_X_y=True)
    model = fitted(structure, estimate, X=X, y=y)
    softmax = model.to_softmax()
    assert isinstance(softmax, SoftmaxRegression)
    np.testing.assert_allclose(softmax.predict_proba(X), model.predict_proba(X), rtol=0, atol=1e-12)
    np.testing.assert_allclose(softmax.predict_log_proba(X), model.predict_log_proba(X), rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(softmax.predict(X), model.predict(X))
    S = as_matrices(structure, model.covariances_, *model.means_.shape)
    coef = np.linalg.solve(S[0], model.means_.T).T
    intercept = np.log(model.class_prior_) - 0.5 * np.einsum("kd,kd->k", coef, model.means_)
    # equal up to what is common to all classes
    np.testing.assert_allclose(softmax.coef_ - softmax.coef_[0], coef - coef[0], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(
        softmax.intercept_ - softmax.intercept_[0], intercept - intercept[0], rtol=1e-7, atol=1e-7
    )


def test_the_softmax_regression_knows_columns_and_classes():
    import pandas as pd

    table = pd.DataFrame(X, columns=list("abcd")).assign(kind=np.array(["x", "y", "z"])[Y])
    softmax = GaussianClassifier("tied", estimate="map").fit(table, "kind").to_softmax()
    assert softmax.feature_names_in_.tolist() == list("abcd")
    assert softmax.classes_.tolist() == ["x", "y", "z"]
    assert softmax.score(table, "kind") > 0.9


def test_a_class_without_rows_stays_impossible_in_the_softmax_regression():
    model = fitted("tied", "mle", classes=[0, 1, 2, 3])
    softmax = model.to_softmax()
    np.testing.assert_allclose(softmax.predict_proba(NEW), model.predict_proba(NEW), rtol=0, atol=1e-12)
    assert (softmax.predict_proba(NEW)[:, 3] == 0.0).all()


@pytest.mark.parametrize("structure", [s for s in STRUCTURES if s not in TIED])
def test_quadratic_log_odds_have_no_softmax_regression(structure):
    with pytest.raises(ValueError, match=rf"{structure}.*quadratic.*covariance='tied'"):
        fitted(structure, "mle").to_softmax()


@pytest.mark.parametrize("structure", ["tied", "full"])
def test_student_t_log_odds_have_no_softmax_regression(structure):
    with pytest.raises(ValueError, match=r"bayes.*not linear.*estimate='map'"):
        fitted(structure, "bayes", PRIOR).to_softmax()


# What must not matter


@structures
@estimates
def test_a_row_is_judged_alone(structure, estimate):
    model = shared(structure, estimate)
    together, companions = model.predict_log_proba(NEW), np.vstack([NEW, X[0] + 1e5, X[0] + 1e200])
    for name, rows in {"alone": None, "reversed": NEW[::-1], "with far rows": companions}.items():
        if rows is None:
            found = np.vstack([model.predict_log_proba(NEW[i : i + 1]) for i in range(len(NEW))])
        else:
            found = model.predict_log_proba(rows)
            found = found[::-1] if name == "reversed" else found[: len(NEW)]
        np.testing.assert_allclose(np.exp(found), np.exp(together), rtol=0, atol=1e-12, err_msg=name)
        np.testing.assert_allclose(found, together, rtol=1e-12, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("companion", [np.full(8, 1e45), np.full(8, np.nan)], ids=["far", "missing"])
@pytest.mark.parametrize("structure", DIAGONAL)
def test_a_row_is_judged_alone_after_very_many_rows(structure, companion):
    """Degrees of freedom multiply what is lost in a logarithm: here they are some hundred thousand."""
    rows = np.random.default_rng(4).normal(size=(len(Y), 8)) + 0.2 * Y[:, None]
    model = GaussianClassifier(structure, prior=NormalInverseWishartPrior()).fit(rows, Y, np.full(len(Y), 1e4))
    together = model.predict_proba(np.vstack([rows, companion]))[:-1]
    np.testing.assert_allclose(together, model.predict_proba(rows), rtol=0, atol=1e-12)


@structures
@estimates
def test_sparse_rows_are_judged_like_dense_ones(structure, estimate):
    model = shared(structure, estimate)
    rows = sp.csr_array(NEW)
    np.testing.assert_allclose(model.predict_log_proba(rows), model.predict_log_proba(NEW), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(model.score_samples(rows), model.score_samples(NEW), rtol=1e-10, atol=1e-10)


@refitted(INVARIANT)
def test_units_and_origins_of_columns_do_not_matter(structure, estimate, prior):
    units, origins = np.array([1e-6, 3.0, 1e4, 0.1]), np.array([1e-3, -700.0, 1e7, 0.0])
    model, other = (fitted(structure, estimate, prior, X=rows) for rows in (X, X * units + origins))
    np.testing.assert_allclose(
        other.predict_log_proba(NEW * units + origins), model.predict_log_proba(NEW), rtol=1e-6, atol=1e-6
    )
    np.testing.assert_allclose(other.means_, model.means_ * units + origins, rtol=1e-7)
    jacobian = len(X) * np.log(units).sum()
    assert other.log_evidence_ + jacobian == pytest.approx(model.log_evidence_, abs=1e-4)


@refitted([*STRUCTURES, "auto"])
def test_the_order_of_rows_does_not_matter(structure, estimate, prior):
    order = np.random.default_rng(2).permutation(len(Y))
    model, other = (fitted(structure, estimate, prior, X=X[rows], y=Y[rows]) for rows in (slice(None), order))
    assert other.solution_.structure == model.solution_.structure
    np.testing.assert_allclose(other.means_, model.means_, rtol=1e-8)
    np.testing.assert_allclose(other.predict_log_proba(NEW), model.predict_log_proba(NEW), rtol=1e-8, atol=1e-8)


@refitted(STRUCTURES)
def test_names_of_classes_and_order_of_columns_do_not_matter(structure, estimate, prior):
    names, columns = np.array([2, 0, 1]), np.array([3, 0, 2, 1])
    model = fitted(structure, estimate, prior)
    relabelled = fitted(structure, estimate, prior, y=names[Y])
    np.testing.assert_allclose(
        relabelled.predict_log_proba(NEW)[:, names], model.predict_log_proba(NEW), rtol=1e-8, atol=1e-8
    )
    np.testing.assert_allclose(relabelled.means_[names], model.means_, rtol=1e-8)
    moved = fitted(structure, estimate, prior, X=X[:, columns])
    np.testing.assert_allclose(
        moved.predict_log_proba(NEW[:, columns]), model.predict_log_proba(NEW), rtol=1e-8, atol=1e-8
    )


@structures
def test_predicting_changes_nothing(structure):
    model = fitted(structure, prior=PRIOR)
    before = {name: np.copy(value) for name, value in vars(model).items() if isinstance(value, np.ndarray)}
    rows = NEW.copy()
    for method in ("predict", "predict_proba", "predict_log_proba", "score_samples", "decision_function"):
        getattr(model, method)(rows)
    model.sample(3)
    np.testing.assert_array_equal(rows, NEW)
    for name, value in before.items():
        np.testing.assert_array_equal(getattr(model, name), value)


def test_a_singular_class_is_judged_too():
    """Maximum likelihood of a class on a line: rows off the line are not of this class, and are told so finitely."""
    rows = X.copy()
    rows[Y == 0, 1] = 2.0 * rows[Y == 0, 0]
    with pytest.warns(SingularWarning):
        model = fitted("full", "mle", X=rows)
    L = model.predict_log_proba(rows)
    assert np.isfinite(L).all()
    assert (L[Y == 0, 0] > -1e-6).all()
    assert (L[Y != 0, 0] < -100).all()
