"""Inducing inputs that are rows: how they are chosen, and their sites against dense ones, JAX, and all rows."""

from dataclasses import replace

import numpy as np
import pytest

import posteriori as po
from posteriori.gp import inducing
from posteriori.gp.all_rows import fit_all_rows
from posteriori.gp.choosing import LearningPlan, learn_kernel
from posteriori.gp.inducing import chosen_rows, fit_inducing
from posteriori.gp.inputs import LabelledRows
from posteriori.gp.kernels import RBF, Constant, Linear
from posteriori.gp.output import ArgmaxNode
from posteriori.gp.repeats import MergedRows
from posteriori.maths.largest import log_largest
from posteriori.threads import one_blas_thread

N, RATE, SCALE = 30, 0.01, 1.5
KERNEL = RBF(1.3) + Constant(0.5)
NODE = ArgmaxNode(1.0, RATE)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """As fits have it: threads of BLAS fight over small matrices where cores are busy."""
    with one_blas_thread():
        yield


def rows(n=N, K=3, seed=3):
    """Rows of classes that straight lines tell apart, up to noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    scores = np.stack([X[:, 0], X[:, 1], -X.sum(axis=1)])[:K]
    return LabelledRows(X, np.argmax(scores + 0.3 * rng.normal(size=(K, n)), axis=0), np.ones(n))


def distinct(given):
    return MergedRows(given, 0, np.ones(len(given.y), dtype=int))


def kernel_as_given(given, K=3, kernel=KERNEL, scale=SCALE):
    """A kernel of which nothing is learned."""
    plan = LearningPlan(tol=1e-3, max_iter=0, n_learning=None, seed=0)
    return learn_kernel({"as given": kernel}, given, K, RATE, scale, 1.0, plan)


def fit(given, M, K=3, node=NODE, kernel=KERNEL, scale=SCALE, merged=None, calibrate=False):
    chosen = kernel_as_given(given, K, kernel, scale)
    return fit_inducing(chosen, chosen.state, merged or distinct(given), node, M, 0, calibrate=calibrate)


def probabilities(fitted, X):
    mean, variance = fitted.latents(X)
    return fitted.node.probabilities(mean[0], variance[0])


NEW = np.random.default_rng(9).normal(size=(40, 2))


@pytest.fixture
def settled_tightly(monkeypatch):
    """Sites go all the way to their fixed point, and the diagonal of K_zz is hardly raised."""
    monkeypatch.setattr(inducing, "_ENOUGH", 1e-13)
    monkeypatch.setattr(inducing, "_MOST_SWEEPS", 300)
    monkeypatch.setattr(inducing, "_JITTER", 1e-10)


# The choice


def naive_choice(gram, most):
    """The row whose variance given all rows chosen so far is largest, again and again, by inverses."""
    chosen = []
    for _ in range(most):
        A = gram[np.ix_(chosen, chosen)]
        seen = gram[chosen].T @ np.linalg.solve(A, gram[chosen]) if chosen else np.zeros_like(gram)
        left = np.diag(gram - seen).copy()
        left[chosen] = -1.0
        chosen.append(int(left.argmax()))
    return chosen


@pytest.mark.parametrize("kernel", [RBF(0.8) + Linear(), RBF(0.5) * Constant(3.0) + Linear(2.0)], ids=["sum", "scaled"])
def test_rows_are_chosen_one_by_one_where_least_is_known(kernel):
    X = rows().X
    free = kernel.start(2, 1.0)
    got = chosen_rows(kernel, free, X, 12, seed=0)
    assert got.tolist() == naive_choice(kernel.gram(free, X, X), 12)


def test_chosen_rows_are_distinct_and_no_more_than_there_are():
    X = np.repeat(rows(10).X, 3, axis=0)
    kernel = RBF(0.5)
    got = chosen_rows(kernel, kernel.start(2, 1.0), X, 25, seed=0)
    assert len(got) == 10
    assert len(np.unique(X[got], axis=0)) == 10


def test_functions_of_few_dimensions_need_no_more_rows_than_these():
    kernel = Linear(1.0) + Constant(1.0)
    X = rows().X
    got = chosen_rows(kernel, kernel.start(2, 1.0), X, 20, seed=0)
    assert len(got) == 3


def test_very_many_rows_are_chosen_among_a_part_of_them(monkeypatch):
    monkeypatch.setattr(inducing, "_CANDIDATES", 50)
    X = np.random.default_rng(0).normal(size=(400, 2))
    kernel = RBF(0.3)
    got = chosen_rows(kernel, kernel.start(2, 1.0), X, 30, seed=0)
    assert len(np.unique(got)) == 30
    part = np.random.default_rng(0).choice(400, 50, replace=False)
    assert set(got) <= set(part)
    assert got.max() >= 50  # rows of the whole table, and not of the part


# The fixed point


def dense_ep(prior, y, node):
    """Sites of every class and row on the latents themselves, by inverses of n x n matrices; slopes by differences."""
    K, n = len(prior), len(y)
    t, s = np.full((K, n), 0.01), np.zeros((K, n))
    h = 1e-4

    def factor(mean, variance):
        z = np.exp(log_largest(mean, variance + node.noise, y))
        return np.log((1 - node.rate) * z + node.rate / (K - 1) * (1 - z))

    for _ in range(300):
        S = np.linalg.inv(np.linalg.inv(prior) + np.stack([np.diag(row) for row in t]))
        w, m = np.diagonal(S, axis1=1, axis2=2), (S @ s[:, :, None])[:, :, 0]
        w_c = 1 / (1 / w - t)
        m_c = w_c * (m / w - s)
        by_mean, by_variance = np.empty((K, n)), np.empty((K, n))
        for k, step in enumerate(h * np.eye(K)[:, :, None]):
            by_mean[k] = (factor(m_c + step, w_c) - factor(m_c - step, w_c)) / (2 * h)
            by_variance[k] = (factor(m_c, w_c + step) - factor(m_c, w_c - step)) / (2 * h)
        w_h, m_h = w_c + w_c**2 * (2 * by_variance - by_mean**2), m_c + w_c * by_mean
        move = 1 / w_h - 1 / w_c - t, m_h / w_h - m_c / w_c - s
        if max(np.abs(part).max() for part in move) < 1e-7:
            break
        t, s = t + 0.7 * move[0], s + 0.7 * move[1]
    energy = sum(-0.5 * np.linalg.slogdet(np.eye(n) + prior[k] * t[k])[1] + 0.5 * s[k] @ m[k] for k in range(K))
    energy += factor(m_c, w_c).sum()
    energy += (0.5 * np.log(w_c) + 0.5 * m_c**2 / w_c - 0.5 * np.log(w) - 0.5 * m**2 / w).sum()
    return m, w, energy


@pytest.mark.parametrize("K", [2, 3])
def test_all_rows_as_inducing_inputs_give_dense_sites(K, settled_tightly):
    given = rows(12, K)
    fitted = fit(given, 12, K)
    gram = KERNEL.gram(KERNEL.start(2, 1.0), given.X, given.X)
    mean, variance, energy = dense_ep(np.stack([SCALE**2 * gram] * K), given.y, NODE)
    got_mean, got_variance = fitted.latents(given.X)
    assert fitted.solution.settled
    assert fitted.solution.n_inducing == 12
    assert fitted.solution.energy == pytest.approx(energy, abs=1e-5)
    np.testing.assert_allclose(got_mean[0], mean, atol=1e-4)
    np.testing.assert_allclose(got_variance[0], variance, atol=1e-4)


def test_few_inducing_inputs_give_the_fixed_point_of_jax(settled_tightly):
    """The same kernel, inducing inputs and weights, with a scale for each class."""
    jax = pytest.importorskip("jax")
    given = replace(rows(), c=np.resize([1.0, 2.0, 1.5], N))
    chosen = kernel_as_given(given)
    state = replace(chosen.state, log_scale=np.log([1.0, 1.5, 2.2]))
    fitted = fit_inducing(chosen, state, distinct(given), NODE, 8, 0, calibrate=False)
    with jax.enable_x64(True):
        energy, mean, variance = settled_in_jax(jax, given, fitted.Z, state.log_scale)
    assert len(fitted.Z) == 8
    assert fitted.solution.settled
    assert fitted.solution.energy == pytest.approx(energy, abs=1e-6)
    got_mean, got_variance = fitted.latents(given.X)
    np.testing.assert_allclose(got_mean[0], mean, atol=1e-5)
    np.testing.assert_allclose(got_variance[0], variance, atol=1e-5)


def settled_in_jax(jax, given, Z, log_scale):
    """The energy, and the latents of all rows, where sites of `gp.ep` come to rest."""
    from posteriori.gp import ep
    from posteriori.gp.likelihoods import ArgmaxLikelihood
    from posteriori.gp.sparse import SparseGP

    K = len(log_scale)
    model = SparseGP(KERNEL, ArgmaxLikelihood(K, noise=NODE.noise, rate=RATE), K)
    free = jax.tree.map(jax.numpy.asarray, model.start(Z, 1.0) | {"log_scale": log_scale})
    X, y, c = (jax.numpy.asarray(part) for part in (given.X, given.y, given.c))

    @jax.jit
    def visited(sites):
        projection = ep.Projection(*model.project(free, X, 1e-10))
        q = ep.belief(*ep.site_sums(projection.A, sites, c))
        visit = ep.sweep(q, projection, sites, c, lambda m, w: model.expected(free, m, w, y, c, 1.0)[:3], 1.0)
        spread = ((q.covariance @ projection.A) * projection.A).sum(1)
        latents = model.functions(free, q.mean @ projection.A, projection.beyond + spread)
        return sites.towards(visit.target, 0.5), q.log_partition + visit.energy, *latents

    sites = ep.Sites(jax.numpy.zeros((K, len(given.y))), jax.numpy.zeros((K, len(given.y))))
    before = -np.inf
    for _ in range(500):
        sites, energy, mean, variance = visited(sites)
        if abs(float(energy) - before) < 1e-12:
            break
        before = float(energy)
    return float(energy), np.asarray(mean), np.asarray(variance)


def test_latents_have_no_common_level_at_the_fixed_point(settled_tightly):
    fitted = fit(rows(), 8)
    np.testing.assert_allclose(fitted.mean.sum(axis=0), 0.0, atol=1e-5)


def test_a_row_of_weight_two_is_a_row_seen_twice(settled_tightly):
    given = rows(15)
    c = np.resize([1.0, 2.0, 3.0], 15)
    again = np.repeat(np.arange(15), c.astype(int))
    weighted = fit(replace(given, c=c), 15)
    repeated = fit(LabelledRows(given.X[again], given.y[again], np.ones(len(again))), 15)
    assert weighted.solution.energy == pytest.approx(repeated.solution.energy, abs=1e-7)
    np.testing.assert_allclose(probabilities(weighted, NEW), probabilities(repeated, NEW), atol=1e-6)


def test_noise_is_the_unit_of_the_latents(settled_tightly):
    """Latents of twice the scale under noise of four times the variance are the same model."""
    given = rows(15)
    one, other = fit(given, 15), fit(given, 15, node=ArgmaxNode(4.0, RATE), scale=2.0 * SCALE)
    assert one.solution.energy == pytest.approx(other.solution.energy, abs=1e-9)
    np.testing.assert_allclose(probabilities(one, NEW), probabilities(other, NEW), atol=1e-8)
    np.testing.assert_allclose(other.latents(NEW)[0], 2.0 * one.latents(NEW)[0], atol=1e-7)


def test_a_row_at_which_functions_are_known_to_be_zero_says_nothing():
    given = LabelledRows(np.array([[-1.0, 0.5], [0.0, 0.0], [1.0, 1.0]]), np.array([0, 1, 2]), np.ones(3))
    fitted = fit(given, 3, kernel=Linear(1.0))
    np.testing.assert_allclose(probabilities(fitted, np.zeros((1, 2))), 1 / 3, atol=1e-9)


# Against sites that couple the classes


@pytest.mark.parametrize("K", [2, 3])
def test_probabilities_are_about_those_of_all_rows(K):
    """Sites of their own for every class make latents a little wider."""
    given = rows(K=K)
    chosen = kernel_as_given(given, K)
    everything = fit_all_rows(chosen, distinct(given), NODE, calibrate=False)
    P, expected = probabilities(fit(given, N, K), NEW), probabilities(everything, NEW)
    np.testing.assert_allclose(P, expected, atol=0.02)
    assert np.abs(P - expected).mean() < 0.01
    assert np.ptp(expected, axis=1).min() > 0.5  # there is something to predict


def test_probabilities_are_about_those_of_the_classifier():
    """The same rows in their own units, with all of them as inducing inputs."""
    given = rows()
    X = 10.0 + np.array([2.0, 300.0]) * given.X
    kernel = RBF((2.6, 390.0)) + Constant(0.5)
    model = po.GPClassifier(kernel, max_iter=0, scale=SCALE, mislabelling=RATE, calibrate=False).fit(X, given.y)
    units = model._standardised
    standardised = LabelledRows(units(X), given.y, given.c)
    fitted = fit(standardised, N, kernel=kernel.in_units(units.unit))
    new = 10.0 + np.array([2.0, 300.0]) * NEW
    np.testing.assert_allclose(probabilities(fitted, units(new)).T, model.predict_proba(new), atol=0.02)
    np.testing.assert_allclose(fitted.scale, model.scale_)
    learned = fitted.learned_kernel(units.unit)
    np.testing.assert_allclose(learned.lengthscales(), [2.6, 390.0], rtol=1e-9)


def test_more_inducing_inputs_are_nearer_to_all_rows():
    given = rows(60)
    exact = probabilities(fit(given, 60), NEW)
    few, many = (np.abs(probabilities(fit(given, M), NEW) - exact).max() for M in (3, 25))
    assert few > 0.05
    assert many < 0.1 * few


# Left-out rows


def test_rows_are_left_out_with_the_share_of_their_sites_that_is_one_row(monkeypatch, settled_tightly):
    """By hand: sites from the belief, and a posterior of all latents for each row, without one of its repeats."""
    seen = []
    monkeypatch.setattr(inducing, "left_out_spread", lambda fits, rows, rate: seen.append((fits, rows)) or 0.7)
    given, n = rows(10), 10
    counts = np.resize([1, 2, 3], n)
    merged = MergedRows(replace(given, c=1.2 * counts), 0, counts)
    kernel, node, scale = RBF(0.5) + Constant(0.2), ArgmaxNode(2.0, RATE), 3.0
    fitted = fit(merged.rows, n, node=node, kernel=kernel, scale=scale, merged=merged, calibrate=True)
    assert fitted.spread == 0.7
    ((((mean, variance),), judged),) = seen
    free = kernel.start(2, 1.0)
    gram = kernel.gram(free, given.X, given.X)
    back = np.linalg.inv(np.linalg.solve(fitted.factor, kernel.gram(free, fitted.Z, given.X)))
    for k in range(3):
        precision = np.linalg.inv(fitted.covariance[k])
        t = np.diag(back @ (precision - np.eye(n)) @ back.T)  # of all repeats together
        s = back @ (precision @ fitted.mean[k])
        for i, count in enumerate(counts):
            kept = np.ones(n)
            kept[i] -= 1.0 / count
            S = np.linalg.inv(np.linalg.inv(gram) + np.diag(kept * t))
            (at,) = np.flatnonzero((judged.X == given.X[i]).all(axis=1))
            assert mean[k, at] == pytest.approx(scale * (S @ (kept * s))[i] / np.sqrt(2.0), abs=1e-4)
            assert variance[k, at] == pytest.approx(scale**2 * S[i, i] / 2.0, rel=1e-4)


def test_the_spread_is_chosen_where_it_is_asked_for():
    given = rows(40)
    with_spread, plain = (fit(given, 10, calibrate=calibrate) for calibrate in (True, False))
    assert plain.spread == 1.0
    np.testing.assert_array_equal(with_spread.mean, plain.mean)
    in_other_units = fit(given, 10, calibrate=True, node=ArgmaxNode(4.0, RATE), scale=2.0 * SCALE)
    assert in_other_units.spread == pytest.approx(with_spread.spread, rel=1e-6)


def test_labels_surer_than_the_kernel_believes_make_predictions_surer():
    """Latents whose lengthscale is too short: rows left out are predicted right, and too timidly."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(300, 1))
    y = (X[:, 0] > 0.0).astype(int) + (X[:, 0] > 1.0)
    given = LabelledRows(X, y, np.ones(300))
    fitted = fit(given, 25, kernel=RBF(0.15), scale=8.0, calibrate=True)
    assert fitted.spread < 0.7


def test_the_record_says_what_was_done():
    given = rows()
    merged = MergedRows(given, 7, np.ones(N, dtype=int))
    fitted = fit(given, 9, merged=merged)
    assert fitted.solution.n_inducing == len(fitted.inducing) == 9
    assert fitted.solution.n_copies == 7
    assert fitted.solution.settled is True
    assert fitted.solution.jitter == 1e-6
    assert 1 < fitted.solution.n_passes <= 40
    assert fitted.mislabelling == RATE
    for row in fitted.inducing:
        assert (given.X == row).all(axis=1).any()
