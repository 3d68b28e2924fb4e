"""Row-site EP against elliptical slice sampling of the exact posterior, kernel held.

EP's belief has no covariance between classes, so that two things about it are known beforehand. What all latents of a
row have in common is seen by no likelihood and keeps its prior variance in the posterior, but not in EP's belief: only
differences of latents are compared. And their variances, sums of two where the posterior would subtract a covariance,
are too large, by a quarter on average and by four fifths at most.
"""

import numpy as np
import pytest
from scipy.special import ndtr

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

from posteriori.gp.batches import Batches  # noqa: E402
from posteriori.gp.kernels import RBF, Constant  # noqa: E402
from posteriori.gp.likelihoods import ArgmaxLikelihood  # noqa: E402
from posteriori.gp.sparse import SparseGP  # noqa: E402
from posteriori.gp.training import RowSitePlan, final_belief, initial_row_sites, train_row_sites  # noqa: E402

pytestmark = pytest.mark.slow

N, K, RATE, SCALE, LENGTH = 45, 3, 0.01, 1.5, 1.3
N_CHAINS, BURN_IN, N_STEPS = 64, 100, 1000
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
Y = np.argmax(1.5 * np.stack([X[:, 0], X[:, 1], -X.sum(axis=1)]) + RNG.normal(size=(K, N)), axis=0)
PAIRS = np.array([[0, 1], [0, 2], [1, 2]]).T
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(16)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def probability(f, y):
    """p(y | f) of chains of latents (C, K, N): the noise of h_y at nodes, that of its rivals integrated."""
    of_y = np.take_along_axis(f, y[None, None], axis=1)
    rivals = np.take_along_axis(f, np.stack([(y + 1) % K, (y + 2) % K])[None], axis=1)
    wins = ndtr((of_y - rivals)[..., None] + NODES).prod(axis=1) @ WEIGHTS
    return (1 - RATE) * wins + RATE / (K - 1) * (1 - wins)


def log_likelihood(f):
    return np.log(probability(f, Y)).sum(axis=1)


def slice_step(f, level_of, prior_root, rng):
    """One step of elliptical slice sampling (Murray, Adams and MacKay, 2010) of every chain."""
    other = rng.normal(size=f.shape) @ prior_root.T
    height = level_of + np.log(rng.uniform(size=len(f)))
    angle = rng.uniform(0.0, 2 * np.pi, len(f))
    low, high = angle - 2 * np.pi, angle.copy()
    after, level = f.copy(), level_of.copy()
    open_chains = np.arange(len(f))
    while len(open_chains):
        a = angle[open_chains, None, None]
        proposal = f[open_chains] * np.cos(a) + other[open_chains] * np.sin(a)
        found = log_likelihood(proposal)
        good = found > height[open_chains]
        after[open_chains[good]], level[open_chains[good]] = proposal[good], found[good]
        open_chains = open_chains[~good]
        left = angle[open_chains] < 0.0
        low[open_chains[left]], high[open_chains[~left]] = angle[open_chains[left]], angle[open_chains[~left]]
        angle[open_chains] = rng.uniform(low[open_chains], high[open_chains])
    return after, level


@pytest.fixture(scope="module")
def sampled():
    """Means of every chain: of the differences of latents, of their squares, of the probabilities; (C, 3, N) each."""
    kernel = RBF(LENGTH) + Constant(0.5)
    gram = kernel.gram(kernel.start(2, 1.0), X, X)
    root = np.linalg.cholesky(SCALE**2 * gram + 1e-8 * np.eye(N))
    rng = np.random.default_rng(1)
    f = rng.normal(size=(N_CHAINS, K, N)) @ root.T
    level = log_likelihood(f)
    total = np.zeros((3, N_CHAINS, 3, N))
    for step in range(BURN_IN + N_STEPS):
        f, level = slice_step(f, level, root, rng)
        if step >= BURN_IN:
            d = f[:, PAIRS[0]] - f[:, PAIRS[1]]
            total += np.stack([d, d * d, np.stack([probability(f, np.full(N, k)) for k in range(K)], axis=1)])
    return total / N_STEPS


@pytest.fixture(scope="module")
def expected():
    """Means and variances of the latents by EP, and its probabilities."""
    with jax.enable_x64(True):
        likelihood = ArgmaxLikelihood(K, noise=1.0, rate=RATE)
        model = SparseGP(RBF(LENGTH) + Constant(0.5), likelihood, K, start_scale=SCALE)
        free = jax.tree.map(jnp.asarray, model.start(X, 1.0))
        batches = Batches(jnp.asarray(X[None]), jnp.asarray(Y[None]), jnp.ones((1, N)))
        still = RowSitePlan(jnp.zeros(200, int), jnp.zeros(200), jnp.full(200, 0.5), jnp.ones(200))
        state, _ = train_row_sites(
            model, free, initial_row_sites(free, batches, K, N), batches, still, jnp.float64(1e-8), 1.0
        )
        q = final_belief(state)
        A, beyond = model.project(free, jnp.asarray(X), 1e-8)
        mean, variance = model.functions(free, q.mean @ A, beyond + ((q.covariance @ A) * A).sum(1))
        mean, variance = np.asarray(mean), np.asarray(variance)
        return mean, variance, likelihood.node(likelihood.start()).probabilities(mean, variance)


def mean_and_error(chains):
    """Over independent chains, whose own means are as far apart as the error of each."""
    return chains.mean(axis=0), chains.std(axis=0, ddof=1) / np.sqrt(N_CHAINS)


def test_differences_of_latents_have_the_means_of_the_posterior(sampled, expected):
    centre, error = mean_and_error(sampled[0])
    sd = np.sqrt(sampled[1].mean(axis=0) - centre**2)
    mean = expected[0][PAIRS[0]] - expected[0][PAIRS[1]]
    assert (np.abs(mean - centre) < 0.1 * sd + 4 * error).all()
    assert error.max() < 0.1 * sd.max()  # or there would be nothing to compare with


def test_differences_of_latents_have_about_the_variances_of_the_posterior(sampled, expected):
    centre = sampled[0].mean(axis=0)
    square, error = mean_and_error(sampled[1] - 2 * centre * sampled[0] + centre**2)
    variance = expected[1][PAIRS[0]] + expected[1][PAIRS[1]]
    assert (variance > 0.95 * (square - 4 * error)).all()
    assert (variance < 1.8 * (square + 4 * error)).all()
    assert 1.0 < np.mean(variance / square) < 1.4


def test_probabilities_are_those_of_the_posterior(sampled, expected):
    P, error = mean_and_error(sampled[2])
    assert (np.abs(expected[2] - P) < 0.01 + 4 * error).all()
    assert np.abs(expected[2] - P).mean() < 0.01
