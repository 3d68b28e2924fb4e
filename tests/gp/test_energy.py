"""The energy of tied sites in moments, against its exact form in natural parameters."""

import numpy as np
import pytest
from scipy.special import ndtr

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

from posteriori.gp.energy import averaged_energy, cavity, tied_energy  # noqa: E402
from posteriori.gp.ep import belief  # noqa: E402

M, H = 5, 2
SIZES = np.array([50, 100, 200, 400, 1000])
RNG = np.random.default_rng(0)
R = RNG.normal(size=(H, M, M))
LAM, ETA = R @ np.swapaxes(R, 1, 2), 2.0 * RNG.normal(size=(H, M))
COVARIANCE = np.linalg.inv(np.eye(M) + LAM)
MEAN = (COVARIANCE @ ETA[:, :, None])[:, :, 0]
ROOT = np.linalg.cholesky(COVARIANCE)
powers = pytest.mark.parametrize("power", [1.0, 0.5])


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def phi(P, r):
    return -0.5 * np.linalg.slogdet(P)[1] + 0.5 * r @ np.linalg.solve(P, r)


def exact_cavity(power, N):
    """N identical sites, a share of one left out: P_c = I + b Lam, r_c = b eta."""
    b = (N - power) / N
    S = np.linalg.inv(np.eye(M) + b * LAM)
    return b * (S @ ETA[:, :, None])[:, :, 0], S


def exact_energy(power, N):
    """Phi(q) + N/alpha [Phi(cavity) - Phi(q)], summed over nodes: what moments only approximate."""
    b = (N - power) / N
    q = sum(phi(np.eye(M) + LAM[h], ETA[h]) for h in range(H))
    without = sum(phi(np.eye(M) + b * LAM[h], b * ETA[h]) for h in range(H))
    return q + N / power * (without - q)


def minus_kl(mean, covariance):
    """To N(0, I), node by node."""
    return sum(0.5 * (np.linalg.slogdet(S)[1] + M - np.trace(S) - m @ m) for m, S in zip(mean, covariance, strict=True))


def energy_of(mean, root, delta):
    return float(tied_energy(mean, root, delta, cavity(mean, root, delta)))


def order(errors):
    """The power of 1/N with which errors fall."""
    return -np.polyfit(np.log(SIZES), np.log(np.abs(errors)), 1)[0]


@powers
def test_cavities_are_exact_to_the_third_order(power):
    without = [cavity(MEAN, ROOT, power / N) for N in SIZES]
    exact = [exact_cavity(power, N) for N in SIZES]
    for moment in range(2):
        errors = np.array([np.abs(a[moment] - b[moment]).max() for a, b in zip(without, exact, strict=True)])
        assert (errors < 1.0 * (power / SIZES) ** 3).all()
        assert order(errors) == pytest.approx(3.0, abs=0.1)


@powers
def test_the_energy_is_exact_to_the_second_order(power):
    """What is left out is delta^2/6 tr((I - S)^3), and no more."""
    delta = power / SIZES
    errors = np.array([energy_of(MEAN, ROOT, d) - exact_energy(power, N) for d, N in zip(delta, SIZES, strict=True)])
    left_out = sum(np.trace(np.linalg.matrix_power(np.eye(M) - S, 3)) for S in COVARIANCE) / 6
    np.testing.assert_allclose(errors / delta**2, -left_out, rtol=0.05)
    assert np.abs(errors[SIZES == 1000]) < 1e-6


def test_without_a_cavity_it_is_minus_the_divergence_from_the_prior():
    assert energy_of(MEAN, ROOT, 0.0) == pytest.approx(minus_kl(MEAN, COVARIANCE), rel=1e-12)
    mean, S = cavity(MEAN, ROOT, 0.0)
    np.testing.assert_allclose(mean, MEAN, rtol=1e-15)
    np.testing.assert_allclose(S, COVARIANCE, rtol=1e-12, atol=1e-15)
    assert energy_of(np.zeros((H, M)), np.tile(np.eye(M), (H, 1, 1)), 0.01) == 0.0  # the prior costs nothing


def test_what_is_above_the_diagonal_of_a_root_does_not_count():
    """Training moves all entries of a root: only the lower triangle is one."""
    moved = ROOT + np.triu(RNG.normal(size=(M, M)), 1)
    assert energy_of(MEAN, moved, 0.01) == pytest.approx(energy_of(MEAN, ROOT, 0.01), rel=1e-12)


def test_signs_of_a_root_do_not_count():
    assert energy_of(MEAN, ROOT * np.array([1, -1, 1, -1, -1]), 0.01) == pytest.approx(energy_of(MEAN, ROOT, 0.01))


def test_the_energy_of_averaged_sites_is_minus_the_divergence_from_the_prior():
    q = belief(jnp.asarray(LAM), jnp.asarray(ETA))
    assert averaged_energy(q, ETA) == pytest.approx(minus_kl(MEAN, COVARIANCE), rel=1e-12)
    errors = [float(averaged_energy(q, ETA)) - exact_energy(1.0, N) for N in SIZES]
    assert order(errors) == pytest.approx(1.0, abs=0.05)


def test_the_whole_energy_falls_to_the_variational_bound_with_the_power():
    """Two classes, whose rows' factors have a closed form: what remains is proportional to the power."""
    N, rate = 30, 0.01
    A, beyond = 0.4 * RNG.normal(size=(M, N)), RNG.uniform(0.0, 0.5, N)

    def wins(mean, covariance):
        """Probability that the first of two nodes is the larger, row by row."""
        m = mean @ A
        v = np.stack([beyond + np.einsum("in,ij,jn->n", A, S, A) for S in covariance])
        return ndtr((m[0] - m[1]) / np.sqrt(v.sum(axis=0)))

    def energy(power):
        without = cavity(MEAN, ROOT, power / N)
        Z = wins(*(np.asarray(a) for a in without))
        rows = np.log(Z * (1 - rate) ** power + (1 - Z) * rate**power) / power
        return float(tied_energy(MEAN, ROOT, power / N, without)) + rows.sum()

    Z = wins(MEAN, COVARIANCE)
    bound = minus_kl(MEAN, COVARIANCE) + (Z * np.log(1 - rate) + (1 - Z) * np.log(rate)).sum()
    above = np.array([energy(power) - bound for power in (1e-3, 1e-4)])
    assert 0.0 < above[1] < 0.05
    assert above[0] / above[1] == pytest.approx(10.0, rel=0.01)
