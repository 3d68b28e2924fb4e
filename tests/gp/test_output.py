"""Output nodes in NumPy: probabilities from latents, their logarithms, and rows with a label at random."""

import numpy as np
import pytest
import scipy.special
from scipy.special import ndtr

from posteriori.gp.output import ArgmaxNode, SoftmaxNode

RNG = np.random.default_rng(0)


def latents(K, n=20):
    rng = np.random.default_rng(K)
    return 2.0 * rng.normal(size=(K, n)), rng.uniform(0.1, 4.0, size=(K, n))


NODES = {
    "argmax": ArgmaxNode(1.0, 0.0),
    "argmax, mislabelled rows": ArgmaxNode(1.0, 0.1),
    "argmax without noise": ArgmaxNode(0.0, 0.01),
    "argmax, other noise": ArgmaxNode(2.5, 1e-300),
    "softmax": SoftmaxNode(),
}
each_node = pytest.mark.parametrize("node", NODES.values(), ids=NODES)
sizes = pytest.mark.parametrize("K", [2, 3, 7])


@sizes
@each_node
def test_probabilities_sum_to_one(node, K):
    P = node.probabilities(*latents(K))
    assert P.shape == (K, 20)
    assert (P > 0.0).all()
    np.testing.assert_allclose(P.sum(axis=0), 1.0, rtol=1e-12)


@sizes
@each_node
def test_log_probabilities_are_logarithms_of_probabilities(node, K):
    np.testing.assert_allclose(node.log_probabilities(*latents(K)), np.log(node.probabilities(*latents(K))), atol=1e-9)


@sizes
@each_node
def test_known_latents_are_latents_of_no_variance(node, K):
    mean, _ = latents(K)
    at = node.at(mean)
    np.testing.assert_allclose(at.sum(axis=0), 1.0, rtol=1e-12)
    if isinstance(node, ArgmaxNode) and node.noise == 0.0:
        np.testing.assert_allclose(at, node.probabilities(mean, np.full(mean.shape, 1e-12)), atol=1e-9)
    else:
        np.testing.assert_allclose(at, node.probabilities(mean, np.zeros(mean.shape)), atol=1e-5)


@each_node
def test_probabilities_are_averages_over_latents(node):
    """Draws of the latents of one row."""
    mean, variance = latents(3)
    draws = mean[:, :1] + np.sqrt(variance[:, :1]) * RNG.normal(size=(3, 40_000))
    np.testing.assert_allclose(node.at(draws).mean(axis=1), node.probabilities(mean, variance)[:, 0], atol=0.008)


# The largest latent


def test_two_classes_are_a_probit():
    mean, variance = latents(2)
    Z = ndtr((mean[0] - mean[1]) / np.sqrt(variance.sum(axis=0) + 2 * 0.7))
    np.testing.assert_allclose(ArgmaxNode(0.7, 0.0).probabilities(mean, variance), [Z, 1 - Z], atol=1e-12)
    known = ndtr((mean[0] - mean[1]) / np.sqrt(2 * 0.7))
    np.testing.assert_allclose(ArgmaxNode(0.7, 0.0).at(mean), [known, 1 - known], atol=1e-12)


def test_noise_is_a_part_of_every_variance():
    mean, variance = latents(3)
    with_noise = ArgmaxNode(0.7, 0.05).probabilities(mean, variance)
    np.testing.assert_array_equal(with_noise, ArgmaxNode(0.0, 0.05).probabilities(mean, variance + 0.7))
    log_p = ArgmaxNode(0.7, 0.05).log_probabilities(mean, variance)
    np.testing.assert_array_equal(log_p, ArgmaxNode(0.0, 0.05).log_probabilities(mean, variance + 0.7))


@sizes
def test_mislabelled_rows_have_any_other_class(K):
    """Each class has the rows that are its own and rightly labelled, and its share of the wrong ones of all others."""
    mean, variance = latents(K)
    Z = ArgmaxNode(1.0, 0.0).probabilities(mean, variance)
    expected = [0.8 * Z[k] + sum(0.2 / (K - 1) * Z[j] for j in range(K) if j != k) for k in range(K)]
    np.testing.assert_allclose(ArgmaxNode(1.0, 0.2).probabilities(mean, variance), expected, rtol=1e-9)
    np.testing.assert_allclose(ArgmaxNode(1.0, 0.2).log_probabilities(mean, variance), np.log(expected), atol=1e-9)


def test_the_rate_of_mislabelled_rows_bounds_probabilities():
    sure = np.array([[50.0], [0.0], [0.0]])
    node = ArgmaxNode(1.0, 0.03)
    np.testing.assert_allclose(node.probabilities(sure, np.zeros((3, 1)))[:, 0], [0.97, 0.015, 0.015], rtol=1e-12)
    np.testing.assert_allclose(node.at(sure)[:, 0], [0.97, 0.015, 0.015], rtol=1e-9)
    np.testing.assert_allclose(np.exp(node.log_probabilities(sure, np.zeros((3, 1))))[:, 0], [0.97, 0.015, 0.015])


@pytest.mark.parametrize("rate", [0.0, 1e-300])
def test_without_mislabelled_rows_logarithms_have_no_bound(rate):
    """Three classes, one 300 behind: the log-probability that it wins over two is about -300^2/3, not -inf."""
    mean = np.array([[-300.0], [0.0], [0.0]])
    log_p = ArgmaxNode(1.0, rate).log_probabilities(mean, np.zeros((3, 1)))
    assert log_p[0, 0] == pytest.approx(-(300.0**2) / 3, rel=1e-3)
    np.testing.assert_allclose(log_p[1:, 0], np.log(0.5), atol=1e-12)


def test_leaving_mislabelling_out_leaves_the_noise():
    node = ArgmaxNode(0.7, 0.2)
    assert node.without_mislabelling() == ArgmaxNode(0.7, 0.0)
    assert node == ArgmaxNode(0.7, 0.2)
    mean, variance = latents(3)
    P = node.without_mislabelling().probabilities(mean, variance)
    np.testing.assert_allclose(0.8 * P + 0.1 * (1 - P), node.probabilities(mean, variance), rtol=1e-12)


def test_known_latents_without_noise_have_one_class():
    latent = np.array([[1.0, -1.0], [0.5, 2.0], [0.9, 0.0]])
    np.testing.assert_array_equal(ArgmaxNode(0.0, 0.0).at(latent), [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    np.testing.assert_allclose(ArgmaxNode(0.0, 0.2).at(latent), [[0.8, 0.1], [0.1, 0.8], [0.1, 0.1]])


# Softmax


def test_known_latents_are_the_softmax():
    mean, _ = latents(4)
    expected = np.exp(mean) / np.exp(mean).sum(axis=0)
    np.testing.assert_allclose(SoftmaxNode().at(mean), expected, rtol=1e-12)
    np.testing.assert_allclose(SoftmaxNode().probabilities(mean, np.zeros_like(mean)), expected, rtol=1e-12)


def test_the_softmax_of_two_latents_is_a_logistic_average():
    mean, variance = latents(2)
    x, w = np.polynomial.hermite_e.hermegauss(60)
    sd = np.sqrt(variance.sum(axis=0))
    expected = scipy.special.expit((mean[0] - mean[1])[:, None] + sd[:, None] * x) @ w / w.sum()
    np.testing.assert_allclose(SoftmaxNode(1024).probabilities(mean, variance)[0], expected, atol=0.01)


def test_more_nodes_are_nearer():
    mean, variance = latents(3)
    exact = SoftmaxNode(1 << 14).probabilities(mean, variance)
    few, many = (np.abs(SoftmaxNode(n).probabilities(mean, variance) - exact).max() for n in (16, 1024))
    assert many < 0.3 * few


def test_small_probabilities_of_softmax_have_finite_logarithms():
    mean = np.array([[-2000.0], [0.0], [0.0]])
    log_p = SoftmaxNode().log_probabilities(mean, np.zeros((3, 1)))
    np.testing.assert_allclose(log_p[:, 0], [-2000.0 - np.log(2), -np.log(2), -np.log(2)], rtol=1e-12)


def test_softmax_has_no_mislabelled_rows_to_leave_out():
    node = SoftmaxNode(64)
    assert node.without_mislabelling() is node
