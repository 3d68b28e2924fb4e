"""Means, covariances and class frequencies: scikit-learn's, the formulas by hand, and the tops of the densities."""

import warnings

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.naive_bayes import GaussianNB
from tests.gaussian.naive_gaussian import as_matrices, is_tied, mode, n_free, shape

from posteriori import GaussianClassifier, NormalInverseWishartPrior, RidgePrior
from posteriori.gaussian.structures import STRUCTURES


def simulated(N=400, D=5, K=3, seed=0):
    """Correlated features in units of their own, classes of unequal size."""
    rng = np.random.default_rng(seed)
    y = rng.choice(K, N, p=np.arange(1, K + 1) / (K * (K + 1) / 2))
    Z = rng.normal(size=(N, D)) @ rng.normal(size=(D, D)) + 2.0 * rng.normal(size=(K, D))[y]
    return Z * np.geomspace(1e-2, 1e2, D) + np.linspace(-30, 50, D), y


DATA = {
    "iris": load_iris(return_X_y=True),
    "wine": load_wine(return_X_y=True),
    "breast cancer": load_breast_cancer(return_X_y=True),
    "simulated": simulated(),
}
data = pytest.mark.parametrize(("X", "y"), DATA.values(), ids=DATA.keys())
structures = pytest.mark.parametrize("structure", STRUCTURES)
X, Y = simulated(120, D=3)
K, D = 3, 3


def fitted(structure, estimate="mle", prior="predictive", X=X, y=Y, sample_weight=None, **options):
    return GaussianClassifier(structure, estimate=estimate, prior=prior, **options).fit(X, y, sample_weight)


def matrices(model):
    """The covariances of all classes as matrices, (K, D, D), whatever their structure."""
    return as_matrices(model.solution_.structure, model.covariances_, len(model.classes_), model.n_features_in_)


def assert_same_covariances(found, expected, rtol=1e-10):
    """Each entry within rtol of the product of two standard deviations."""
    spread = np.sqrt(np.diagonal(expected, axis1=-2, axis2=-1))
    error = np.abs(found - expected) / (spread[..., :, None] * spread[..., None, :])
    assert error.max() < rtol


def moments(X=X, y=Y):
    """n_k, means and scatter of each class."""
    groups = [X[y == k] for k in np.unique(y)]
    means = np.array([group.mean(axis=0) for group in groups])
    scatter = np.array([(g - m).T @ (g - m) for g, m in zip(groups, means, strict=True)])
    return np.bincount(y).astype(float), means, scatter


# Maximum likelihood


@data
def test_diagonal_is_gaussian_naive_bayes(X, y):
    model, peer = fitted("diagonal", X=X, y=y), GaussianNB(var_smoothing=0).fit(X, y)
    np.testing.assert_allclose(model.means_, peer.theta_, rtol=1e-10)
    np.testing.assert_allclose(model.covariances_, peer.var_, rtol=1e-10)
    np.testing.assert_allclose(model.class_prior_, peer.class_prior_, rtol=1e-10)
    np.testing.assert_allclose(model.predict_log_proba(X), peer.predict_log_proba(X), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(model.predict_joint_log_proba(X), peer.predict_joint_log_proba(X), rtol=1e-9)


@data
def test_tied_is_linear_discriminant_analysis(X, y):
    model = fitted("tied", X=X, y=y)
    peer = LinearDiscriminantAnalysis(solver="lsqr", store_covariance=True).fit(X, y)
    np.testing.assert_allclose(model.means_, peer.means_, rtol=1e-10)
    assert_same_covariances(model.covariances_, peer.covariance_)
    np.testing.assert_allclose(model.class_prior_, peer.priors_, rtol=1e-10)
    # whatever the units: the peer solves for its coefficients at the condition number of the covariance
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    np.testing.assert_allclose(model.predict_proba(X), peer.fit(Z, y).predict_proba(Z), rtol=0, atol=1e-10)


@data
def test_full_is_quadratic_discriminant_analysis(X, y):
    model = fitted("full", X=X, y=y)
    peer = QuadraticDiscriminantAnalysis(store_covariance=True, tol=0.0).fit(X, y)  # its tol is in units of the data
    np.testing.assert_allclose(model.means_, peer.means_, rtol=1e-10)
    np.testing.assert_allclose(model.class_prior_, peer.priors_, rtol=1e-10)
    theirs, n = np.array(peer.covariance_), model.class_count_[:, None, None]
    first = X[y == 0, 0]
    unbiased = np.isclose(theirs[0, 0, 0], first.var(ddof=1), rtol=1e-6)  # scikit-learn before 1.8 divides by n - 1
    assert_same_covariances(model.covariances_, theirs * (n - 1) / n if unbiased else theirs)
    if not unbiased:
        Z = (X - X.mean(axis=0)) / X.std(axis=0)
        np.testing.assert_allclose(model.predict_proba(X), peer.fit(Z, y).predict_proba(Z), rtol=0, atol=1e-9)


@data
def test_other_structures_average_the_variances(X, y):
    """Over classes by their counts (tied diagonal), over features (spherical)."""
    n, _, S = moments(X, y)
    variances = np.diagonal(S, axis1=1, axis2=2)
    np.testing.assert_allclose(fitted("tied_diagonal", X=X, y=y).covariances_, variances.sum(0) / n.sum(), rtol=1e-10)
    np.testing.assert_allclose(fitted("spherical", X=X, y=y).covariances_, variances.mean(axis=1) / n, rtol=1e-10)


@structures
def test_probabilities_follow_from_the_parameters_by_bayes_rule(structure):
    model = fitted(structure)
    joint = np.column_stack(
        [
            np.log(p) + stats.multivariate_normal(m, S).logpdf(X)
            for p, m, S in zip(model.class_prior_, model.means_, matrices(model), strict=True)
        ]
    )
    np.testing.assert_allclose(model.predict_joint_log_proba(X), joint, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(model.predict_log_proba(X), joint - logsumexp(joint, axis=1)[:, None], rtol=0, atol=1e-9)


@structures
def test_the_evidence_of_maximum_likelihood_is_schwarz_s(structure):
    model = fitted(structure)
    log_likelihood = model.predict_joint_log_proba(X)[np.arange(len(Y)), Y].sum()
    bic = log_likelihood - 0.5 * (n_free(structure, K, D) + K * D + K - 1) * np.log(len(Y))
    assert model.log_evidence_ == pytest.approx(bic, abs=1e-8)
    assert model.prior_ is None


@structures
@pytest.mark.parametrize(
    ("estimate", "prior"),
    [
        ("mle", "predictive"),
        ("map", NormalInverseWishartPrior()),
        pytest.param("bayes", "predictive", marks=pytest.mark.slow),
    ],
)
def test_a_weight_is_a_number_of_repetitions(structure, estimate, prior):
    c = np.random.default_rng(1).integers(0, 4, len(Y))
    model = fitted(structure, estimate, prior, sample_weight=c)
    other = fitted(structure, estimate, prior, X=np.repeat(X, c, axis=0), y=np.repeat(Y, c))
    np.testing.assert_allclose(model.means_, other.means_, rtol=1e-9)
    assert_same_covariances(matrices(model), matrices(other), rtol=1e-8)
    np.testing.assert_allclose(model.class_prior_, other.class_prior_, rtol=1e-12)
    np.testing.assert_allclose(model.class_count_, np.bincount(Y, c))
    np.testing.assert_allclose(model.predict_log_proba(X), other.predict_log_proba(X), rtol=1e-8, atol=1e-8)
    assert model.log_evidence_ == pytest.approx(other.log_evidence_, abs=1e-6)


def test_weights_are_those_of_naive_bayes():
    c = np.random.default_rng(2).gamma(1.0, size=len(Y))
    model, peer = fitted("diagonal", sample_weight=c), GaussianNB(var_smoothing=0).fit(X, Y, c)
    np.testing.assert_allclose(model.means_, peer.theta_, rtol=1e-10)
    np.testing.assert_allclose(model.covariances_, peer.var_, rtol=1e-10)
    np.testing.assert_allclose(model.class_prior_, peer.class_prior_, rtol=1e-10)


# Maximum of the posterior density

PRIOR = NormalInverseWishartPrior(
    mean=[1.0, -2.0, 30.0], kappa=2.5, nu=6.5, scale=[0.02, 3.0, 400.0], concentration=2.0
)


def by_hand(structure, prior=PRIOR):
    """mu_n and the mode of Sigma by theory.md, section 5, class by class; one dimension at a time where diagonal."""
    n, xbar, S = moments()
    m, kappa, nu, Psi = np.asarray(prior.mean), prior.kappa, prior.nu, np.diag(prior.scale)
    means = (kappa * m + n[:, None] * xbar) / (kappa + n)[:, None]
    gaps = [kappa * n[k] / (kappa + n[k]) * np.outer(xbar[k] - m, xbar[k] - m) for k in range(K)]
    gathered = S + np.array(gaps)
    sharing = K if is_tied(structure) else 1
    extra = {"full": D + 1 + sharing, "diagonal": 2 + sharing, "spherical": 2 + D * sharing}[shape(structure)]
    scale = {"full": Psi, "diagonal": np.diag(Psi), "spherical": prior.scale[0]}[shape(structure)]
    return means, mode(structure, gathered, n, scale, nu, extra)


def prior_for(structure):
    return (
        PRIOR if shape(structure) != "spherical" else NormalInverseWishartPrior(**PRIOR.get_params() | {"scale": 0.02})
    )


@structures
def test_the_mode_of_a_given_prior_by_hand(structure):
    model = fitted(structure, "map", prior_for(structure))
    means, covariances = by_hand(structure)
    np.testing.assert_allclose(model.means_, means, rtol=1e-10)
    np.testing.assert_allclose(model.covariances_, covariances, rtol=1e-9, atol=1e-10 * np.abs(covariances).max())
    n = np.bincount(Y)
    np.testing.assert_allclose(model.class_prior_, (n + 1) / (n.sum() + K), rtol=1e-12)


def log_posterior(structure, means, covariances, prior):
    """log p(mu, Sigma | X, y) up to a constant, from scipy's densities; covariances as the estimator states them."""
    total = 0.0
    tied, matrix = is_tied(structure), shape(structure) == "full"
    psi = np.broadcast_to(prior.scale, D)
    for k in range(K):
        S = covariances if tied else covariances[k]
        full = S if matrix else np.diag(np.broadcast_to(S, D))
        total += stats.multivariate_normal(means[k], full).logpdf(X[Y == k]).sum()
        total += stats.multivariate_normal(prior.mean, full / prior.kappa).logpdf(means[k])
        if tied and k > 0:
            continue
        if matrix:
            total += stats.invwishart(prior.nu, np.diag(psi)).logpdf(S)
        else:
            inverse_gammas = stats.invgamma(prior.nu / 2, scale=(psi if S.ndim else psi[0]) / 2)
            total += inverse_gammas.logpdf(S).sum()
    return total


@structures
def test_no_parameters_near_the_mode_have_a_higher_posterior_density(structure):
    prior = prior_for(structure)
    model = fitted(structure, "map", prior)
    best = log_posterior(structure, model.means_, model.covariances_, prior)
    rng = np.random.default_rng(3)
    spread = np.sqrt(matrices(model).diagonal(axis1=1, axis2=2))
    for _ in range(8):
        means = model.means_ + 1e-3 * spread * rng.normal(size=(K, D))
        factor = 1e-3 * rng.normal(size=model.covariances_.shape)
        if shape(structure) == "full":
            A = np.eye(D) + factor
            covariances = A @ model.covariances_ @ np.swapaxes(A, -1, -2)
        else:
            covariances = model.covariances_ * np.exp(factor)
        assert log_posterior(structure, means, model.covariances_, prior) < best
        assert log_posterior(structure, model.means_, covariances, prior) < best
        assert log_posterior(structure, means, covariances, prior) < best


def test_bayes_reports_the_mode_too():
    for structure in STRUCTURES:
        prior = prior_for(structure)
        mode, belief = fitted(structure, "map", prior), fitted(structure, "bayes", prior)
        np.testing.assert_array_equal(belief.means_, mode.means_)
        np.testing.assert_array_equal(belief.covariances_, mode.covariances_)


def test_class_frequencies_have_a_dirichlet_prior():
    n, a = np.bincount(Y), 2.0
    for estimate, extra in (("mle", 0.0), ("map", a - 1), ("bayes", a)):
        prior = "predictive" if estimate == "mle" else PRIOR
        expected = (n + extra) / (n + extra).sum()
        np.testing.assert_allclose(fitted("full", estimate, prior).class_prior_, expected, rtol=1e-12)


@structures
def test_a_prior_left_to_its_defaults_expects_the_spread_of_all_rows(structure):
    prior = fitted(structure, "map", NormalInverseWishartPrior()).prior_
    np.testing.assert_allclose(prior.mean, X.mean(axis=0), rtol=1e-10)
    assert (prior.kappa, prior.concentration) == (1.0, 1.0)
    assert prior.nu == (D + 2 if shape(structure) == "full" else 3)
    variance = X.var(axis=0)
    expected = {"full": np.diag(variance), "diagonal": variance, "spherical": variance.mean()}[shape(structure)]
    np.testing.assert_allclose(prior.scale, expected, rtol=1e-9)


# The ridge prior on the means

NEAR = (X - X.mean(axis=0)) / X.std(axis=0) + 0.5


@structures
@pytest.mark.parametrize("strength", [0.3, 50.0])
def test_the_ridge_prior_reaches_the_source_s_fixed_point(structure, strength):
    """mu_k = (n_k I + 2 lambda Sigma_k)^{-1} sum_n x_n with Sigma_k the scatter about mu_k over n_k."""
    X, y, n = NEAR, Y, np.bincount(Y)
    model = fitted(structure, "map", RidgePrior(strength), X=X)
    scatter = np.array([(X[y == k] - m).T @ (X[y == k] - m) for k, m in enumerate(model.means_)])
    about = as_matrices(structure, mode(structure, scatter, n), K, D)
    assert_same_covariances(matrices(model), about, rtol=1e-9)
    for k, mean in enumerate(model.means_):
        fixed = np.linalg.solve(n[k] * np.eye(D) + 2 * strength * about[k], X[y == k].sum(axis=0))
        np.testing.assert_allclose(mean, fixed, rtol=1e-9, atol=1e-11)
    assert model.solution_.converged
    assert model.prior_ == RidgePrior(strength)
    assert (np.linalg.norm(model.means_, axis=1) < np.linalg.norm(moments(X, y)[1], axis=1)).all()


@structures
def test_no_ridge_is_maximum_likelihood(structure):
    model, other = fitted(structure, "map", RidgePrior(0.0)), fitted(structure, "mle")
    np.testing.assert_allclose(model.means_, other.means_, rtol=1e-12)
    np.testing.assert_allclose(model.covariances_, other.covariances_, rtol=1e-10)
    assert model.log_evidence_ == pytest.approx(other.log_evidence_, abs=1e-9)


def test_the_ridge_prior_is_stated_in_the_units_of_the_data():
    """Other units of all columns and lambda over their square: the same model."""
    model = fitted("full", "map", RidgePrior(0.7), X=NEAR)
    other = fitted("full", "map", RidgePrior(0.7e-6), X=1e3 * NEAR)
    np.testing.assert_allclose(other.means_, 1e3 * model.means_, rtol=1e-9)
    np.testing.assert_allclose(other.predict_log_proba(1e3 * NEAR), model.predict_log_proba(NEAR), rtol=1e-8, atol=1e-9)


# Accuracy


@structures
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_no_digits_are_lost_a_hundred_million_from_the_origin(structure, weighted):
    far = np.random.default_rng(5).normal(size=(900, 3)) + Y.repeat(8)[:900, None] + 1e8
    near, y = far - 1e8, Y.repeat(8)[:900]  # the subtraction is exact
    c = np.random.default_rng(6).uniform(0.5, 2.0, 900) if weighted else None
    model, other = (fitted(structure, X=A, y=y, sample_weight=c) for A in (far, near))
    np.testing.assert_allclose(model.means_ - 1e8, other.means_, rtol=0, atol=2e-8)  # to the last bit of 1e8
    assert_same_covariances(matrices(model), matrices(other), rtol=5e-9)
    np.testing.assert_allclose(model.predict_proba(far), other.predict_proba(near), rtol=0, atol=1e-7)


@structures
def test_single_precision_rows_are_summed_in_double(structure):
    y = Y.repeat(8)[:900]
    rows = (np.random.default_rng(7).normal(size=(900, 3)) + y[:, None] + 1e4).astype(np.float32)
    model = fitted(structure, X=rows, y=y)
    n, means, S = moments(rows.astype(np.float64), y)
    np.testing.assert_allclose(model.means_, means, rtol=1e-13)
    assert_same_covariances(matrices(model), as_matrices(structure, mode(structure, S, n), K, D))
    double = fitted(structure, X=rows.astype(np.float64), y=y)
    np.testing.assert_array_equal(model.covariances_, double.covariances_)
    np.testing.assert_allclose(
        model.predict_proba(rows), double.predict_proba(rows.astype(np.float64)), rtol=0, atol=1e-12
    )


@structures
def test_outliers_in_the_first_rows_cost_no_digits(structure):
    """The first rows are what others are measured from: it must not matter that they lie elsewhere."""
    rows, y = np.random.default_rng(8).normal(size=(600, 3)), Y.repeat(5)[:600]
    rows[y == 0] += 1e6
    last_first = np.argsort(y != 0, kind="stable")
    for order in (last_first, last_first[::-1]):
        model = fitted(structure, X=rows[order], y=y[order])
        near = np.where((y == 0)[:, None], rows - 1e6, rows)  # class by class the scatter is the same
        n, _, S = moments(near, y)
        np.testing.assert_allclose(model.covariances_, mode(structure, S, n), rtol=1e-8, atol=1e-8)


@structures
def test_rows_of_hardly_any_weight_at_the_front_cost_no_digits(structure):
    """They lie a million away, and all sums begin with them."""
    rows, y = np.random.default_rng(10).normal(size=(300, 3)), np.arange(300) % 3
    far, first = np.full((15, 3), 1e6), np.arange(15) % 3
    weights = np.append(np.full(15, 1e-24), np.ones(300))
    model = fitted(structure, X=np.vstack([far, rows]), y=np.append(first, y), sample_weight=weights)
    np.testing.assert_allclose(model.covariances_, fitted(structure, X=rows, y=y).covariances_, rtol=0, atol=1e-9)


@structures
@pytest.mark.parametrize("estimate", ["mle", "map", "bayes"])
def test_whole_numbers_are_judged_far_from_the_origin_as_near_it(structure, estimate):
    """Sixty-four rows of each of four classes: their means are exact, so that nothing is lost but by the arithmetic."""
    y = np.arange(256) % 4
    near = np.round(3.0 * np.random.default_rng(11).normal(size=(256, 3))) + y[:, None]
    prior = "predictive" if estimate == "mle" else NormalInverseWishartPrior()
    model, other = (fitted(structure, estimate, prior, X=A, y=y) for A in (near, near + 2.0**40))
    np.testing.assert_allclose(other.predict_proba(near + 2.0**40), model.predict_proba(near), rtol=0, atol=1e-11)


@structures
def test_threads_do_not_matter(structure):
    rows, y = np.random.default_rng(9).normal(size=(20_000, 8)), np.arange(20_000) % 3
    one, two = (fitted(structure, X=rows, y=y, n_jobs=n_jobs) for n_jobs in (1, 2))
    np.testing.assert_array_equal(one.covariances_, two.covariances_)
    np.testing.assert_array_equal(one.predict_log_proba(rows), two.predict_log_proba(rows))


def test_nothing_is_warned_of_on_ordinary_data():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for estimate in ("mle", "bayes"):
            fitted("auto", estimate, X=X[::2], y=Y[::2])
