"""Sites that couple the classes of a row, against Gaussians written out over all latents and noise, and sampling."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pytest
from scipy.special import ndtr

from posteriori.gp.coupled import CoupledSites, PairSites, SiteParameters, row_sites
from posteriori.gp.independent import independent_variances
from posteriori.maths.largest import largest_probabilities
from posteriori.threads import one_blas_thread

N, K, RATE = 5, 3, 0.02
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N, 2))
NEW = RNG.normal(size=(4, 2))
Y = np.array([0, 1, 2, 1, 0])
ONES = np.ones(N)
VARIANCES = np.array([1.5, 0.7, 2.3])


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """As fits have it: threads of BLAS fight over small matrices where cores are busy."""
    with one_blas_thread():
        yield


def gram(X, Z=None):
    """A smooth kernel and a constant one."""
    Z = X if Z is None else Z
    return np.exp(-0.5 * ((X[:, None] - Z) ** 2).sum(axis=2)) + 0.3


def random_sites(K=K, n=N, seed=1):
    """Sites as a sweep may leave them: of any precision, with shifts towards the label."""
    rng = np.random.default_rng(seed)
    return SiteParameters(rng.gamma(2.0, 0.3, (K, n)), rng.normal(0.5, 0.5, (K, n)))


def settled(sites, G, variances, damping=0.7, tol=1e-11):
    """The sites at their fixed point, and the last visit to them."""
    at = sites.start()
    for _ in range(1000):
        visit = sites.sweep(G, variances, at)
        if max(np.abs(a - b).max() for a, b in zip(at, visit.target, strict=True)) < tol:
            return at, visit
        at = at.towards(visit.target, damping)
    raise AssertionError("no fixed point")


def differences(moments):
    """Means and variances of f_k - f_l for all pairs of classes, (n, K, K) each."""
    mean, covariance = moments
    own = np.einsum("nkk->nk", covariance)
    return mean.T[:, :, None] - mean.T[:, None, :], own[:, :, None] + own[:, None, :] - 2.0 * covariance


# The Gaussian over all latents f and all noise u, as plainly as can be


@dataclass(frozen=True)
class Naive:
    """x = (f of class 0, ..., f of class K - 1, u) with one site exp(-alpha z^2/2 + beta z) for each row and rival."""

    prior: np.ndarray
    directions: np.ndarray
    """The vectors d of z = d^T x, (sites, dimensions)."""
    rate: float

    @classmethod
    def of(cls, G, variances, y, rate=RATE, shared=0.0):
        """The Gaussian before any site; a level that all classes share has the covariance `shared` times G."""
        n, K = len(y), len(variances)
        prior = np.zeros((n * (K + 1), n * (K + 1)))
        prior[: n * K, : n * K] = np.kron(np.diag(variances), G) + shared * np.kron(np.ones((K, K)), G)
        prior[n * K :, n * K :] = np.eye(n)
        directions = []
        for i in range(n):
            for j in range(K):
                if j != y[i]:
                    d = np.zeros(len(prior))
                    d[y[i] * n + i], d[j * n + i], d[K * n + i] = 1.0, -1.0, 1.0
                    directions.append(d)
        return cls(prior, np.array(directions), rate)

    @cached_property
    def inverse_prior(self):
        return np.linalg.inv(self.prior)

    def flat(self, sites, y):
        """The sites' parameters in the order of the directions."""
        K = len(sites.precision)
        return tuple(np.array([part[j, i] for i in range(len(y)) for j in range(K) if j != y[i]]) for part in sites)

    def posterior(self, alpha, beta):
        precision = self.inverse_prior + self.directions.T @ (alpha[:, None] * self.directions)
        covariance = np.linalg.inv(precision)
        return covariance @ (self.directions.T @ beta), covariance

    def numbers(self, alpha, beta):
        """Means and variances of all z under the posterior."""
        mean, covariance = self.posterior(alpha, beta)
        return self.directions @ mean, ((self.directions @ covariance) * self.directions).sum(axis=1)

    def tilted(self, m, w):
        """log E[rate + (1 - 2 rate) Phi(z)] and the moments of z under it, z ~ N(m, w), by a plain sum."""
        t = np.linspace(-8.5, 8.5, 121)
        z = m + np.sqrt(w) * t
        weight = np.exp(-0.5 * t * t) * (self.rate + (1 - 2 * self.rate) * ndtr(z))
        mean = weight @ z / weight.sum()
        norm = np.exp(-0.5 * t * t).sum()
        return np.log(weight.sum() / norm), mean, weight @ (z - mean) ** 2 / weight.sum()

    def energy(self, alpha, beta):
        """log of the integral over all sites, and for each site log Z + Phi(cavity) - Phi(marginal)."""
        mean, _ = self.posterior(alpha, beta)
        A = self.directions.T @ (alpha[:, None] * self.directions)
        total = -0.5 * np.linalg.slogdet(np.eye(len(A)) + self.prior @ A)[1]
        total += 0.5 * (self.directions.T @ beta) @ mean

        def phi(precision, shift):
            return -0.5 * np.log(precision) + shift**2 / (2 * precision)

        for a, b, m, w in zip(alpha, beta, *self.numbers(alpha, beta), strict=True):
            p, s = 1 / w - a, m / w - b
            total += self.tilted(s / p, 1 / p)[0] + phi(p, s) - phi(1 / w, m / w)
        return total

    def fixed_point(self):
        """Expectation propagation, one site after the other."""
        alpha, beta = np.zeros(len(self.directions)), np.zeros(len(self.directions))
        for _ in range(200):
            before = alpha.copy()
            for i in range(len(alpha)):
                m, w = (part[i] for part in self.numbers(alpha, beta))
                p, s = 1 / w - alpha[i], m / w - beta[i]
                _, mean, variance = self.tilted(s / p, 1 / p)
                alpha[i], beta[i] = 1 / variance - p, mean / variance - s
            if np.abs(alpha - before).max() < 1e-11:
                return alpha, beta
        raise AssertionError("no fixed point")


def latents_of(naive, alpha, beta, n, K):
    """Means (K, n) and covariances (n, K, K) of the latents of all rows."""
    mean, covariance = naive.posterior(alpha, beta)
    C = covariance[: n * K, : n * K].reshape(K, n, K, n)
    return mean[: n * K].reshape(K, n), np.stack([C[:, i, :, i] for i in range(n)])


@pytest.fixture(scope="module")
def case():
    """Rows of three classes with random sites, in both forms."""
    sites, at = CoupledSites(Y, ONES, K, RATE), random_sites()
    naive = Naive.of(gram(X), VARIANCES, Y)
    return sites, at, naive, naive.flat(at, Y)


def test_the_posterior_of_any_sites_is_the_gaussian_over_latents_and_noise(case):
    sites, at, naive, flat = case
    q = sites.solve(gram(X), VARIANCES, at)
    mean, covariance = latents_of(naive, *flat, N, K)
    np.testing.assert_allclose(q.mean, mean, atol=1e-10)
    got = q.moments(gram(X), np.diag(gram(X)))
    np.testing.assert_allclose(got.mean, mean, atol=1e-10)
    np.testing.assert_allclose(got.covariance, covariance, atol=1e-10)


def test_Q_is_the_inverse_of_prior_plus_inverse_site_precisions(case):
    """(K + T^-1)^-1 = T - T (K^-1 + T)^-1 T, T being singular; its diagonal blocks are in the slopes."""
    sites, at, _, _ = case
    q = sites.solve(gram(X), VARIANCES, at)
    pi = np.where(np.arange(K)[:, None] == Y, 1.0, at.precision)
    T = np.zeros((K, N, K, N))
    for i in range(N):
        T[:, i, :, i] = np.diag(pi[:, i]) - np.outer(pi[:, i], pi[:, i]) / pi[:, i].sum()
    T = T.reshape(K * N, K * N)
    prior = np.kron(np.diag(VARIANCES), gram(X))
    Q = T - T @ np.linalg.inv(np.linalg.inv(prior) + T) @ T
    a = np.linalg.solve(prior, q.mean.ravel())
    np.testing.assert_allclose(q.a.ravel(), a, atol=1e-9)
    np.testing.assert_allclose(q.diagonal.ravel(), np.diag(Q), atol=1e-10)
    for k, slope in enumerate(q.slopes()):
        block = slice(k * N, (k + 1) * N)
        np.testing.assert_allclose(slope, 0.5 * (np.outer(a[block], a[block]) - Q[block, block]), atol=1e-9)


def test_new_rows_are_rows_of_the_same_gaussian(case):
    sites, at, _, _ = case
    every = np.concatenate([X, NEW])
    naive = Naive.of(gram(every), VARIANCES, np.concatenate([Y, np.zeros(len(NEW), dtype=int)]))
    alpha, beta = np.zeros(len(naive.directions)), np.zeros(len(naive.directions))
    alpha[: N * (K - 1)], beta[: N * (K - 1)] = naive.flat(at, Y)  # new rows have no sites
    mean, covariance = latents_of(naive, alpha, beta, len(every), K)
    got = sites.solve(gram(X), VARIANCES, at).moments(gram(X, NEW), np.diag(gram(NEW)))
    np.testing.assert_allclose(got.mean, mean[:, N:], atol=1e-10)
    np.testing.assert_allclose(got.covariance, covariance[N:], atol=1e-10)


def test_a_visit_finds_the_moments_of_every_condition(case):
    """Its targets are the sites that match the tilted moments of z under the cavity."""
    sites, at, naive, flat = case
    target = naive.flat(sites.sweep(gram(X), VARIANCES, at).target, Y)
    for a, b, m, w, alpha, beta in zip(*flat, *naive.numbers(*flat), *target, strict=True):
        p, s = 1 / w - a, m / w - b
        _, mean, variance = naive.tilted(s / p, 1 / p)
        assert alpha == pytest.approx(1 / variance - p, abs=1e-9)
        assert beta == pytest.approx(mean / variance - s, abs=1e-9)


def test_the_energy_of_any_sites_is_that_of_the_flat_sites(case):
    sites, at, naive, flat = case
    assert sites.sweep(gram(X), VARIANCES, at).energy == pytest.approx(naive.energy(*flat), abs=1e-9)


@pytest.mark.parametrize(("share", "weight"), [(1.0, 1.0), (0.5, 1.0), (0.5, 2.0)])
def test_a_row_left_out_is_the_gaussian_without_that_share_of_its_site(share, weight):
    sites, at = CoupledSites(Y, np.full(N, weight), K, RATE), random_sites()
    left = differences(sites.solve(gram(X), VARIANCES, at).left_out(np.full(N, share)))
    for i in range(N):
        c = np.full(N, weight)
        c[i] *= 1.0 - share
        kept = c > 0.0
        rest = CoupledSites(Y[kept], c[kept], K, RATE)
        without = rest.solve(gram(X[kept]), VARIANCES, SiteParameters(*(part[:, kept] for part in at)))
        expected = differences(without.moments(gram(X[kept], X[i : i + 1]), np.diag(gram(X[i : i + 1]))))
        for got, exact in zip(left, expected, strict=True):
            np.testing.assert_allclose(got[i], exact[0], atol=1e-9)


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_a_row_of_two_classes_left_out_is_the_gaussian_without_that_share_of_its_site(share):
    y = np.array([0, 1, 1, 0, 1])
    at = SiteParameters(*(part[:1] for part in random_sites()))
    left = differences(PairSites(y, ONES, RATE).solve(gram(X), VARIANCES[:2], at).left_out(np.full(N, share)))
    for i in range(N):
        t, s = at.precision[0].copy(), at.shift[0].copy()
        t[i], s[i] = (1.0 - share) * t[i], (1.0 - share) * s[i]
        covariance = np.linalg.inv(np.linalg.inv(VARIANCES[:2].sum() * gram(X)) + np.diag(t))
        assert left[0][i, 1, 0] == pytest.approx((covariance @ s)[i], abs=1e-9)
        assert left[1][i, 1, 0] == pytest.approx(covariance[i, i], abs=1e-9)


def test_sweeps_end_where_plain_expectation_propagation_ends():
    naive = Naive.of(gram(X), VARIANCES, Y)
    alpha, beta = naive.fixed_point()
    at, visit = settled(CoupledSites(Y, ONES, K, RATE), gram(X), VARIANCES)
    got = naive.flat(at, Y)
    np.testing.assert_allclose(got[0], alpha, atol=1e-8)
    np.testing.assert_allclose(got[1], beta, atol=1e-8)
    assert visit.energy == pytest.approx(naive.energy(alpha, beta), abs=1e-8)


# Two classes


@pytest.fixture(scope="module")
def pair():
    """The same rows of two classes: one latent, two latents, and the Gaussian written out."""
    y, variances = np.array([0, 1, 1, 0, 1]), VARIANCES[:2]
    one, two = PairSites(y, ONES, RATE), CoupledSites(y, ONES, 2, RATE)
    return settled(one, gram(X), variances), settled(two, gram(X), variances), Naive.of(gram(X), variances, y)


def test_two_classes_have_the_energy_of_the_general_sites(pair):
    (_, one), (_, two), naive = pair
    assert one.energy == pytest.approx(two.energy, abs=1e-9)
    assert one.energy == pytest.approx(naive.energy(*naive.fixed_point()), abs=1e-9)


def test_the_energy_of_two_classes_is_that_of_sites_on_the_difference(pair):
    """Of sites as they are at the start, in one dimension for each row."""
    y = np.array([0, 1, 1, 0, 1])
    at = SiteParameters(*(part[:1] for part in random_sites()))
    (t,), (s,) = at
    prior = VARIANCES[:2].sum() * gram(X)
    covariance = np.linalg.inv(np.linalg.inv(prior) + np.diag(t))
    mean = covariance @ s
    expected = -0.5 * np.linalg.slogdet(np.eye(N) + prior @ np.diag(t))[1] + 0.5 * s @ mean
    for i, sign in enumerate(2 * y - 1):
        w_c = 1 / (1 / covariance[i, i] - t[i])
        m_c = w_c * (mean[i] / covariance[i, i] - s[i])
        log_z = np.log(RATE + (1 - 2 * RATE) * ndtr(sign * m_c / np.sqrt(2.0 + w_c)))
        w, m = covariance[i, i], mean[i]
        expected += log_z + 0.5 * np.log(w_c) + 0.5 * m_c**2 / w_c - 0.5 * np.log(w) - 0.5 * m**2 / w
    assert PairSites(y, ONES, RATE).sweep(gram(X), VARIANCES[:2], at).energy == pytest.approx(expected, abs=1e-10)


def test_two_classes_have_the_differences_of_the_general_sites(pair):
    (_, one), (_, two), _ = pair
    ask = gram(X, NEW), np.diag(gram(NEW))
    for got, exact in zip(
        differences(one.solved.moments(*ask)), differences(two.solved.moments(*ask)), strict=True
    ):  # fmt: skip
        np.testing.assert_allclose(got, exact, atol=1e-9)
    for got, exact in zip(
        differences(one.solved.left_out(ONES)), differences(two.solved.left_out(ONES)), strict=True
    ):  # fmt: skip
        np.testing.assert_allclose(got, exact, atol=1e-9)


def test_two_classes_have_the_slopes_of_the_general_sites(pair):
    (_, one), (_, two), _ = pair
    for got, exact in zip(one.solved.slopes(), two.solved.slopes(), strict=True):
        np.testing.assert_allclose(got, exact, atol=1e-9)


def test_two_classes_are_one_latent_and_more_are_as_many():
    assert isinstance(row_sites(Y % 2, ONES, 2, RATE), PairSites)
    sites = row_sites(Y, ONES, 3, RATE)
    assert isinstance(sites, CoupledSites)
    assert sites.n_classes == 3


# Slopes


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_slopes_with_sites_held_are_those_of_the_evidence(n_classes, weighted):
    """Steps of the Gram matrix in a random direction, and of every variance, sites settled anew."""
    c = np.array([1.0, 2.0, 1.0, 1.5, 3.0]) if weighted else ONES
    sites, variances, G = row_sites(Y % n_classes, c, n_classes, RATE), VARIANCES[:n_classes], gram(X)
    slopes = settled(sites, G, variances)[1].solved.slopes()
    R = np.random.default_rng(2).normal(size=(N, N))
    R, h = R + R.T, 1e-5
    up, down = (settled(sites, G + step * R, variances)[1].energy for step in (h, -h))
    by_gram = sum(variance * slope for variance, slope in zip(variances, slopes, strict=True))
    assert np.vdot(by_gram, R) == pytest.approx((up - down) / (2 * h), rel=1e-6, abs=1e-7)
    for k in range(n_classes):
        step = h * np.eye(n_classes)[k]
        up, down = (settled(sites, G, variances + sign * step)[1].energy for sign in (1, -1))
        assert np.vdot(slopes[k], G) == pytest.approx((up - down) / (2 * h), rel=1e-6, abs=1e-7)


# Weights, permutations, levels


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_row_of_weight_two_is_a_row_seen_twice(n_classes):
    y, variances = Y % n_classes, VARIANCES[:n_classes]
    c = np.array([2.0, 1.0, 1.0, 3.0, 1.0])
    again = np.repeat(np.arange(N), c.astype(int))
    _, weighted = settled(row_sites(y, c, n_classes, RATE), gram(X), variances)
    _, repeated = settled(row_sites(y[again], np.ones(len(again)), n_classes, RATE), gram(X[again]), variances)
    assert weighted.energy == pytest.approx(repeated.energy, abs=1e-9)
    got = weighted.solved.moments(gram(X, NEW), np.diag(gram(NEW)))
    expected = repeated.solved.moments(gram(X[again], NEW), np.diag(gram(NEW)))
    np.testing.assert_allclose(got.mean, expected.mean, atol=1e-8)
    np.testing.assert_allclose(got.covariance, expected.covariance, atol=1e-8)
    one_less = differences(weighted.solved.left_out(1.0 / c))
    for a, b in zip(one_less, differences(repeated.solved.left_out(np.ones(len(again)))), strict=True):
        np.testing.assert_allclose(a[again], b, atol=1e-8)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_rows_of_fractional_weights_add_up(n_classes):
    """A row in two parts, of weights 1.2 and 0.8, is a row of weight two."""
    y, variances = Y % n_classes, VARIANCES[:n_classes]
    parts = np.array([0, 0, 1, 2, 3, 4])
    c = np.array([1.2, 0.8, 1.0, 1.0, 1.0, 1.0])
    _, split = settled(row_sites(y[parts], c, n_classes, RATE), gram(X[parts]), variances)
    _, whole = settled(row_sites(y, np.array([2.0, 1, 1, 1, 1]), n_classes, RATE), gram(X), variances)
    assert split.energy == pytest.approx(whole.energy, abs=1e-9)
    np.testing.assert_allclose(split.solved.mean[..., 1:], whole.solved.mean, atol=1e-8)


def test_permuting_the_classes_permutes_everything():
    order = np.array([2, 0, 1])
    at, got = settled(CoupledSites(Y, ONES, K, RATE), gram(X), VARIANCES)
    turned, other = settled(CoupledSites(np.argsort(order)[Y], ONES, K, RATE), gram(X), VARIANCES[order])
    assert other.energy == pytest.approx(got.energy, abs=1e-10)
    np.testing.assert_allclose(turned.precision, at.precision[order], atol=1e-9)
    np.testing.assert_allclose(turned.shift, at.shift[order], atol=1e-9)
    np.testing.assert_allclose(other.solved.mean, got.solved.mean[order], atol=1e-9)
    for slope, expected in zip(other.solved.slopes(), [got.solved.slopes()[k] for k in order], strict=True):
        np.testing.assert_allclose(slope, expected, atol=1e-9)


def test_swapping_two_classes_swaps_their_latents():
    y = Y % 2
    _, got = settled(PairSites(y, ONES, RATE), gram(X), VARIANCES[:2])
    _, other = settled(PairSites(1 - y, ONES, RATE), gram(X), VARIANCES[1::-1])
    assert other.energy == pytest.approx(got.energy, abs=1e-10)
    np.testing.assert_allclose(other.solved.mean, -got.solved.mean, atol=1e-9)


def test_permuting_the_rows_permutes_everything():
    order = np.array([3, 0, 4, 2, 1])
    _, got = settled(CoupledSites(Y, ONES, K, RATE), gram(X), VARIANCES)
    _, other = settled(CoupledSites(Y[order], ONES, K, RATE), gram(X[order]), VARIANCES)
    assert other.energy == pytest.approx(got.energy, abs=1e-10)
    np.testing.assert_allclose(other.solved.mean, got.solved.mean[:, order], atol=1e-9)


def test_a_level_added_to_all_latents_is_ignored(case):
    """With a function of variance 9 that all classes share, energy and differences are what they are without it."""
    sites, at, _, _ = case
    naive = Naive.of(gram(X), VARIANCES, Y, shared=9.0)
    flat = naive.flat(at, Y)
    visit = sites.sweep(gram(X), VARIANCES, at)
    assert visit.energy == pytest.approx(naive.energy(*flat), abs=1e-9)
    expected = differences(latents_of(naive, *flat, N, K))
    for got, exact in zip(
        differences(visit.solved.moments(gram(X), np.diag(gram(X)))), expected, strict=True
    ):  # fmt: skip
        np.testing.assert_allclose(got, exact, atol=1e-9)
    np.testing.assert_allclose(visit.solved.nu.sum(axis=0), 0.0, atol=1e-12)


def test_without_rows_nearby_the_prior_is_what_is_known(case):
    sites, at, _, _ = case
    far = sites.solve(gram(X), VARIANCES, at).moments(np.zeros((N, 1)), np.array([1.3]))
    np.testing.assert_array_equal(far.mean, 0.0)
    np.testing.assert_allclose(far.covariance[0], 1.3 * np.diag(VARIANCES), atol=1e-14)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_row_at_which_functions_are_known_to_be_zero_says_nothing(n_classes):
    """As a linear kernel has at the centre: its class has the probability 1/K, and other rows are as without it."""
    x, y = np.array([-1.0, 0.0, 1.0]), np.array([0, 1, 1])
    variances = np.ones(n_classes)
    _, visit = settled(row_sites(y, np.ones(3), n_classes, 0.0), np.outer(x, x), variances)
    _, rest = settled(row_sites(y[::2], np.ones(2), n_classes, 0.0), np.outer(x[::2], x[::2]), variances)
    assert visit.energy == pytest.approx(rest.energy - np.log(n_classes), abs=2e-3)
    np.testing.assert_allclose(visit.solved.mean[..., ::2], rest.solved.mean, atol=1e-8)


def test_classes_without_rows_have_rivals_sites_alone():
    """The fourth class of three: its latent is pushed below the others wherever there are rows."""
    variances = np.full(4, 2.0)
    _, visit = settled(CoupledSites(Y, ONES, 4, RATE), gram(X), variances)
    P = predicted(visit.solved.moments(gram(X), np.diag(gram(X))))
    assert (P[3] < 0.2).all()
    assert (P[3] < P[Y, np.arange(N)]).all()


def test_many_rows_over_threads_give_what_few_give(monkeypatch):
    """Two hundred and sixty rows are enough for threads: nothing depends on them."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(260, 2)), rng.integers(0, K, 260)
    sites, at = CoupledSites(y, np.ones(260), K, RATE), random_sites(n=260)
    many = sites.sweep(gram(X), VARIANCES, at)
    monkeypatch.setattr("posteriori.gp.coupled._LARGE", 1000)
    one = sites.sweep(gram(X), VARIANCES, at)
    assert many.energy == pytest.approx(one.energy, rel=1e-12)
    np.testing.assert_allclose(many.target.shift, one.target.shift, rtol=1e-9, atol=1e-12)


def test_a_matrix_that_is_not_positive_definite_is_said():
    at = CoupledSites(Y, ONES, K, RATE).start()
    with pytest.raises(FloatingPointError, match="could not be factored"):
        CoupledSites(Y, ONES, K, RATE).solve(gram(X) - 100.0, VARIANCES, at)


# The exact posterior


SPREAD_OUT = np.random.default_rng(8).normal(size=(6, 2))
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(12)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def probabilities(f):
    """p(y | f) of every class, f of shape (K, ...): the noise of one class at nodes, that of its rivals integrated."""
    return np.stack(
        [
            np.prod([ndtr((f[k] - f[j])[..., None] + NODES) for j in range(len(f)) if j != k], axis=0) @ WEIGHTS
            for k in range(len(f))
        ]
    )


def predicted(moments):
    """Probabilities of classes, (K, n), from moments of their latents."""
    return largest_probabilities(moments.mean, independent_variances(*moments, 1.0) + 1.0)


def weighted_draws(X, y, new, variances, n_draws):
    """Draws from the prior of the latents of rows and new rows, with the likelihood of the labels as weights."""
    every, S = np.concatenate([X, new]), n_draws
    root = np.linalg.cholesky(gram(every) + 1e-10 * np.eye(len(every)))
    z = np.random.default_rng(0).normal(size=(len(variances), len(every), S // 2))
    z = np.concatenate([z, -z], axis=2)
    f = np.sqrt(variances)[:, None, None] * np.einsum("ij,kjs->kis", root, z)
    n = len(y)
    likelihood = np.ones(S)
    for i in range(n):
        of_row = np.concatenate([f[y[i] : y[i] + 1, i], np.delete(f[:, i], y[i], axis=0)])
        likelihood *= np.prod([ndtr((of_row[0] - rival)[:, None] + NODES) for rival in of_row[1:]], axis=0) @ WEIGHTS
    return f[:, n:], likelihood


def test_the_evidence_of_a_tiny_problem_is_nearly_exact():
    """Four rows, three classes, latents of scale about one: a hundredth of a nat for each row."""
    X, y, variances = SPREAD_OUT[:4], np.array([0, 1, 2, 0]), np.array([1.0, 0.6, 1.4])
    _, likelihood = weighted_draws(X, y, X[:1], variances, 100_000)
    error = likelihood.std() / likelihood.mean() / np.sqrt(len(likelihood))
    assert error < 0.01
    _, visit = settled(CoupledSites(y, np.ones(4), K, 0.0), gram(X), variances)
    assert visit.energy == pytest.approx(np.log(likelihood.mean()), abs=0.02 + 3 * error)


def test_the_evidence_of_one_row_is_exact():
    """A row sees a single latent of each class: among equals, its class has probability 1/K."""
    for n_classes, tolerance in ((2, 1e-10), (3, 2e-3), (4, 5e-3)):
        sites = row_sites(np.zeros(1, dtype=int), np.ones(1), n_classes, 0.0)
        _, visit = settled(sites, np.ones((1, 1)), np.full(n_classes, 0.8))
        assert visit.energy == pytest.approx(-np.log(n_classes), abs=tolerance)


def test_predictions_of_a_small_problem_are_those_of_the_posterior():
    """Six rows that agree with their neighbours, sampled from the prior and weighted by their likelihood."""
    X, variances = SPREAD_OUT[:6], np.array([2.0, 1.5, 2.5])
    y = np.argmax([X[:, 0], X[:, 1], -X.sum(axis=1)], axis=0)
    f, weight = weighted_draws(X, y, NEW, variances, 60_000)
    assert weight.sum() ** 2 / (weight**2).sum() > 1000  # enough draws count
    exact = probabilities(f) @ weight / weight.sum()
    _, visit = settled(CoupledSites(y, np.ones(6), K, 0.0), gram(X), variances)
    got = predicted(visit.solved.moments(gram(X, NEW), np.diag(gram(NEW))))
    assert np.ptp(exact, axis=1).max() > 0.2  # new rows differ
    np.testing.assert_allclose(got, exact, atol=0.02)
