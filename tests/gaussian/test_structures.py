"""Beliefs about Gaussian classes: against the textbook's formulas, scipy.stats, the chain rule and quadrature."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln, logsumexp
from tests.gaussian.naive_gaussian import (
    DIAGONAL,
    in_shape,
    is_tied,
    mode,
    n_free,
    naive_beliefs,
    naive_log_densities,
    shape,
    squares,
)

from posteriori.exceptions import SingularError
from posteriori.gaussian.densities import class_densities, log_joint
from posteriori.gaussian.niw import (
    NO_PRIOR,
    WishartPrior,
    inverse_cholesky,
    log_density,
    log_evidence,
    mode_divisor,
    prior_scale,
    updated,
)
from posteriori.gaussian.statistics import class_statistics
from posteriori.gaussian.structures import STRUCTURES

K, D = 4, 3
PSI = np.array([[2.0, 0.5, -0.3], [0.5, 1.0, 0.2], [-0.3, 0.2, 0.7]])
structures = pytest.mark.parametrize("structure", STRUCTURES)


def data(n=25, seed=0, missing=0.0, n_features=D):
    """Rows of all classes but the last."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, K - 1, n)
    X = 2.0 * rng.normal(size=(K, n_features))[y] + rng.normal(size=(n, n_features))
    X[rng.random(X.shape) < missing] = np.nan
    return X, y, rng.uniform(0.2, 2.0, n)


def prior_of(structure, pooled=0.0, kappa=0.7):
    return WishartPrior(kappa, 4.5, in_shape(structure, PSI), pooled)


def statistics_of(X, y, c, structure):
    return class_statistics(X, y, c, K, STRUCTURES[structure].scatter)


def sum_of_rows(X, y, prior, structure, concentration):
    """log p(X, y) by the chain rule: each row, then its class, from the rows before it."""
    total = 0.0
    for i in range(len(X)):
        before = (
            statistics_of(X[:i], y[:i], None, structure) if i else statistics_of(X[:1], y[:1], np.zeros(1), structure)
        )
        belief = updated(before, prior, STRUCTURES[structure])
        log_prior = np.log(before.counts + concentration) - np.log(i + K * concentration)
        densities = class_densities(belief, "bayes", log_prior, np.zeros(X.shape[1]), np.ones(X.shape[1]))
        total += log_joint(X[i : i + 1], densities)[y[i], 0]
    return total


# Beliefs


@structures
@pytest.mark.parametrize("pooled", [0.0, 0.3])
@pytest.mark.parametrize("detail", ["full", "least"])
def test_beliefs_are_moved_as_the_textbook_says(structure, pooled, detail):
    X, y, c = data()
    prior = prior_of(structure, pooled)
    found = updated(
        class_statistics(X, y, c, K, "full" if detail == "full" else STRUCTURES[structure].scatter),
        prior,
        STRUCTURES[structure],
    )
    assert len(found.Psi) == (1 if is_tied(structure) else K)
    for k, expected in enumerate(naive_beliefs(X, y, c, K, prior, structure)):
        j = 0 if is_tied(structure) else k
        np.testing.assert_allclose(found.kappa[k], expected.kappa[:1], rtol=1e-13)
        np.testing.assert_allclose(found.means[k], expected.mean, rtol=1e-12)
        np.testing.assert_allclose(found.nu[j], expected.nu[:1], rtol=1e-13)
        np.testing.assert_allclose(found.Psi[j], np.atleast_1d(expected.Psi), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("structure", DIAGONAL)
def test_beliefs_about_features_with_missing_values(structure):
    X, y, c = data(missing=0.4)
    X[y == 1, 0] = np.nan
    prior = prior_of(structure, pooled=0.3)
    found = updated(statistics_of(X, y, c, structure), prior, STRUCTURES[structure])
    for k, expected in enumerate(naive_beliefs(X, y, c, K, prior, structure)):
        j = 0 if is_tied(structure) else k
        for a, b in zip((found.kappa[k], found.means[k], found.nu[j], found.Psi[j]), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-11)


@structures
def test_a_class_without_rows_is_believed_to_be_as_before(structure):
    X, y, c = data()
    prior = prior_of(structure)
    found = updated(statistics_of(X, y, c, structure), prior, STRUCTURES[structure])
    assert found.kappa[-1, 0] == prior.kappa
    np.testing.assert_array_equal(found.means[-1], 0.0)
    if not is_tied(structure):
        assert found.nu[-1, 0] == prior.nu
        np.testing.assert_array_equal(found.Psi[-1], prior.scale)


@structures
def test_no_prior_is_maximum_likelihood(structure):
    """n_k, the class means, and covariances that are averages of squares."""
    X, y, _ = data()
    found = updated(statistics_of(X, y, None, structure), NO_PRIOR, STRUCTURES[structure])
    means = np.array([X[y == k].mean(axis=0) for k in range(K - 1)])
    np.testing.assert_allclose(found.means[:-1], means, rtol=1e-13)
    residuals = [(X - means[y])[y == k] for k in range(K - 1)]
    covariances = mode(structure, np.array([E.T @ E for E in residuals]), [len(E) for E in residuals])
    for j, expected in enumerate([covariances] if is_tied(structure) else covariances):
        div = mode_divisor(STRUCTURES[structure], "mle", found.nu[j], K, D)
        np.testing.assert_allclose(found.Psi[j] / div, expected, rtol=1e-12, atol=1e-14)


@structures
def test_yesterday_s_belief_is_today_s_prior(structure):
    """One class, moved by half of the rows twice, about the mean that was believed in."""
    X, _, c = data()
    y = np.zeros(len(X), dtype=int)
    prior = prior_of(structure)
    once = updated(class_statistics(X, y, c, 1, "full"), prior, STRUCTURES[structure])
    first = updated(class_statistics(X[:12], y[:12], c[:12], 1, "full"), prior, STRUCTURES[structure])
    Psi = first.Psi[0, 0] if shape(structure) == "spherical" else first.Psi[0]
    second = updated(
        class_statistics(X[12:] - first.means[0], y[12:], c[12:], 1, "full"),
        WishartPrior(first.kappa[0, 0], first.nu[0, 0], Psi),
        STRUCTURES[structure],
    )
    np.testing.assert_allclose(second.means + first.means, once.means, rtol=1e-12)
    for name in ("kappa", "nu", "Psi"):
        np.testing.assert_allclose(getattr(second, name), getattr(once, name), rtol=1e-12)


@structures
def test_the_prior_may_be_drawn_to_what_all_classes_have_in_common(structure):
    X, y, c = data()
    W = sum(squares(X, c * (y == k))[2] for k in range(K))
    found = prior_scale(class_statistics(X, y, c, K, "full"), prior_of(structure, pooled=0.25), STRUCTURES[structure])
    np.testing.assert_allclose(found, in_shape(structure, PSI + 0.25 * W), rtol=1e-12)
    assert np.shape(found) == {"full": (D, D), "diagonal": (D,), "spherical": ()}[shape(structure)]


# The mode


def log_posterior(means, Sigma, X, y, prior, structure):
    """Likelihood and prior density of all means and covariances, by scipy.stats; Sigma in the structure's shape."""
    total = 0.0
    for j, S in enumerate(Sigma):
        if shape(structure) == "full":
            total += stats.invwishart(prior.nu, prior.scale).logpdf(S)
        else:
            total += np.sum(stats.invgamma(prior.nu / 2, scale=prior.scale / 2).logpdf(S))
        C = S if shape(structure) == "full" else np.diag(np.broadcast_to(S, D))
        for k in range(K) if is_tied(structure) else (j,):
            total += stats.multivariate_normal(np.zeros(D), C / prior.kappa).logpdf(means[k])
            total += stats.multivariate_normal(means[k], C).logpdf(X[y == k]).sum()
    return total


@structures
def test_psi_over_the_divisor_is_the_mode(structure):
    """No step from it, in means or covariances, is upwards; nor is any uphill to first order."""
    X, y, _ = data()
    prior = prior_of(structure)
    belief = updated(statistics_of(X, y, None, structure), prior, STRUCTURES[structure])
    div = mode_divisor(STRUCTURES[structure], "map", belief.nu, K, D)
    Sigma = belief.Psi / (div[:, :, None] if shape(structure) == "full" else div)
    top = log_posterior(belief.means, Sigma, X, y, prior, structure)
    rng = np.random.default_rng(1)
    for _ in range(8):
        step, turn = rng.normal(size=(K, D)), rng.normal(size=Sigma.shape)
        if shape(structure) == "full":
            turn = turn + np.swapaxes(turn, 1, 2)
        up, down = (
            log_posterior(belief.means + h * step, Sigma + h * turn, X, y, prior, structure) for h in (1e-5, -1e-5)
        )
        assert max(up, down) < top
        assert abs(up - down) < 1e-2 * (2 * top - up - down)


# Densities


@structures
@pytest.mark.parametrize("estimate", ["bayes", "map", "mle"])
def test_densities_are_those_of_scipy(structure, estimate):
    X, y, c = data()
    prior = prior_of(structure)
    belief = updated(statistics_of(X, y, c, structure), prior, STRUCTURES[structure])
    expected = naive_log_densities(X, naive_beliefs(X, y, c, K, prior, structure), structure, estimate)
    for k in range(K):
        j = 0 if is_tied(structure) else k
        Z = X - belief.means[k]
        kappa, nu, Psi = belief.kappa[k], belief.nu[j], belief.Psi[j]
        width = 1 if shape(structure) == "diagonal" else D
        div = None if estimate == "bayes" else mode_divisor(STRUCTURES[structure], estimate, nu, K, D)
        if shape(structure) == "full":
            q, log_det = np.sum(Z * np.linalg.solve(Psi, Z.T).T, axis=1), np.linalg.slogdet(Psi)[1]
        elif shape(structure) == "diagonal":
            q, log_det = Z**2 / Psi, np.log(Psi)
        else:
            q, log_det = (Z**2).sum(axis=1) / Psi, D * np.log(Psi)
        found = log_density(q, log_det, kappa, nu - STRUCTURES[structure].dimension(D) + 1, width, divisor=div)
        found = found.sum(axis=1) if shape(structure) == "diagonal" else found
        np.testing.assert_allclose(found, expected[:, k], rtol=1e-11)


def test_a_student_t_of_many_rows_is_a_gaussian():
    """Their difference is of the order of one over the rows."""
    q = np.linspace(0.0, 10.0, 5)
    gaps = []
    for n in (1e3, 1e4, 1e5):
        t = log_density(q / n, D * np.log(n), n, n, D, divisor=None)
        gaps.append(np.abs(t - log_density(q / n, D * np.log(n), n, n, D, divisor=n)).max() * n)
    np.testing.assert_allclose(gaps, gaps[-1], rtol=0.05)
    assert 1 < gaps[-1] < 100


# Evidence


@structures
@pytest.mark.parametrize("concentration", [0.5, 2.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_evidence_is_the_product_of_predictions_of_each_row_from_those_before(structure, concentration, seed):
    """In any order: so densities, beliefs and evidence belong to one and the same model."""
    X, y, _ = data(n=12, seed=seed)
    order = np.random.default_rng(seed).permutation(len(X)) if seed else np.arange(len(X))
    found = log_evidence(
        statistics_of(X, y, None, structure), prior_of(structure), STRUCTURES[structure], concentration
    )
    by_rows = sum_of_rows(X[order], y[order], prior_of(structure), structure, concentration)
    assert found == pytest.approx(by_rows, rel=1e-12)


@pytest.mark.parametrize("structure", DIAGONAL)
def test_the_evidence_is_the_product_of_predictions_with_missing_values(structure):
    X, y, _ = data(n=14, missing=0.4)
    found = log_evidence(statistics_of(X, y, None, structure), prior_of(structure), STRUCTURES[structure], 1.0)
    assert found == pytest.approx(sum_of_rows(X, y, prior_of(structure), structure, 1.0), rel=1e-12)


def integral(grid, log_values):
    """The logarithm of the integral over an even grid, beyond the ends of which nothing is left."""
    assert (log_values[..., [0, -1]].max(axis=-1) < log_values.max(axis=-1) - 30).all()
    return logsumexp(log_values, axis=-1) + np.log(grid[1] - grid[0])


def log_given_variance(x, variances, kappa):
    """The logarithm of the integral over mu of N(mu; 0, v / kappa) prod_n N(x_n; mu, v), for each v."""
    sd = np.sqrt(variances)[:, None]
    t = np.linspace(-12.0, 12.0, 400)  # of mu about the mean, in units of sd
    mu = x.mean() + sd * t
    log_prior = stats.norm.logpdf(mu, 0.0, sd / np.sqrt(kappa)) + np.log(sd)
    return integral(t, log_prior + sum(stats.norm.logpdf(value, mu, sd) for value in x))


def log_integral(columns, prior):
    """Over a variance that several columns share and a mean for each of them."""
    logs = np.linspace(-4.0, 12.0, 400)
    v = np.exp(logs)
    log_prior = stats.invgamma(prior.nu / 2, scale=prior.scale / 2).logpdf(v) + logs
    return integral(logs, log_prior + sum(log_given_variance(x, v, prior.kappa) for x in columns))


def by_quadrature(X, y, prior, structure):
    """One feature, or two with one variance: the columns of values that share a variance."""
    classes = [X[y == k].T for k in range(2)]
    if is_tied(structure):
        return log_integral([x for columns in classes for x in columns], prior)
    return sum(log_integral(columns, prior) for columns in classes)


@pytest.mark.parametrize(
    ("structure", "width"), [*((s, 1) for s in STRUCTURES), ("spherical", 2)], ids=[*STRUCTURES, "spherical, two"]
)
def test_the_evidence_is_the_integral_over_means_and_variances(structure, width):
    rng = np.random.default_rng(3)
    y = np.array([0, 0, 0, 1, 1, 1, 1])
    X = rng.normal(size=(7, width)) * 2.0 + y[:, None]
    prior = WishartPrior(0.6, 6.0, np.array(5.0))
    in_one = prior._replace(scale=np.full({"full": (1, 1), "diagonal": (1,), "spherical": ()}[shape(structure)], 5.0))
    found = log_evidence(class_statistics(X, y, None, 2, "full"), in_one, STRUCTURES[structure], None)
    assert found == pytest.approx(by_quadrature(X, y, prior, structure), rel=1e-9)


@structures
def test_whole_weights_are_repeated_rows(structure):
    X, y, _ = data()
    c = np.random.default_rng(1).integers(0, 4, len(X))
    weighted = log_evidence(
        statistics_of(X, y, c.astype(float), structure), prior_of(structure, 0.1), STRUCTURES[structure], 1.5
    )
    repeated = statistics_of(np.repeat(X, c, axis=0), np.repeat(y, c), None, structure)
    assert weighted == pytest.approx(
        log_evidence(repeated, prior_of(structure, 0.1), STRUCTURES[structure], 1.5), rel=1e-12
    )


@structures
def test_known_class_probabilities_are_those_of_independent_rows(structure):
    X, y, c = data()
    found = statistics_of(X, y, c, structure)
    p = np.array([0.5, 0.2, 0.3, 0.0])  # the class that is impossible has no rows
    gap = log_evidence(found, prior_of(structure), STRUCTURES[structure], p) - log_evidence(
        found, prior_of(structure), STRUCTURES[structure], None
    )
    assert gap == pytest.approx(c @ np.log(p[y]), rel=1e-10)


def test_an_impossible_class_with_rows_has_no_evidence():
    X, y, c = data()
    found = statistics_of(X, y, c, "tied")
    assert log_evidence(found, prior_of("tied"), STRUCTURES["tied"], np.array([0.5, 0.5, 0.0, 0.0])) == -np.inf


@structures
def test_the_classes_add_the_evidence_of_a_dirichlet_multinomial(structure):
    X, y, _ = data()
    found = statistics_of(X, y, None, structure)
    counts = np.bincount(y, minlength=K)
    gap = log_evidence(found, prior_of(structure), STRUCTURES[structure], 0.8) - log_evidence(
        found, prior_of(structure), STRUCTURES[structure], None
    )
    arrangements = gammaln(len(y) + 1) - gammaln(counts + 1).sum()  # scipy's counts the orders of the rows as one
    expected = stats.dirichlet_multinomial(np.full(K, 0.8), len(y)).logpmf(counts) - arrangements
    assert gap == pytest.approx(expected, rel=1e-10)


@structures
def test_other_units_change_the_evidence_by_their_volume(structure):
    X, y, c = data()
    prior = prior_of(structure)
    found = log_evidence(statistics_of(X, y, c, structure), prior, STRUCTURES[structure], None)
    metres = log_evidence(
        statistics_of(X * 100.0, y, c, structure), prior._replace(scale=prior.scale * 1e4), STRUCTURES[structure], None
    )
    assert metres == pytest.approx(found - c.sum() * D * np.log(100.0), rel=1e-11)


# Sizes and factors


@structures
def test_parameters_are_counted(structure):
    expected = n_free(structure, K, D)
    assert STRUCTURES[structure].n_parameters(K, D) == expected
    X, y, _ = data()
    Psi = updated(statistics_of(X, y, None, structure), prior_of(structure), STRUCTURES[structure]).Psi
    assert (len(Psi) * len(np.triu_indices(D)[0]) if Psi.ndim == 3 else Psi.size) == expected


def test_inverse_factors_and_determinants():
    matrices = np.stack([PSI, np.diag([1e-200, 1.0, 1e200]), 1e-8 * np.eye(D) + 1.0])
    inverses, log_dets = inverse_cholesky(matrices)
    for M, A, log_det in zip(matrices, inverses, log_dets, strict=True):
        np.testing.assert_allclose(A @ M @ A.T, np.eye(D), atol=1e-7)
        assert log_det == pytest.approx(np.linalg.slogdet(M)[1], abs=1e-7)
    with pytest.raises(SingularError, match="no inverse"):
        inverse_cholesky(np.stack([PSI, np.diag([1.0, 0.0, 1.0])]))
