"""Forty rows of three classes, and Gaussian processes so small that a few compilations serve all tests of them."""

import numpy as np

from posteriori import DeepGPClassifier, GPClassifier


def three_classes(N, D=2, noise=0.3, seed=0):
    """Whole numbers about 100, exact in every dtype, of classes that two straight lines nearly tell apart."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(N, D))
    latent = np.stack([Z[:, 0], Z[:, -1], -Z.sum(axis=1)]) + noise * rng.normal(size=(3, N))
    return (100 + 20 * Z).round(), latent.argmax(axis=0)


X, Y = three_classes(40)


def gp(**options):
    return GPClassifier(**{"n_inducing": 15, "max_iter": 40} | options)


def deep(**options):
    return DeepGPClassifier(**{"layers": (2,), "n_inducing": 15, "n_samples": 2, "max_iter": 40} | options)


class FittedOnce(dict):
    """Models fitted to these rows when they are first asked for, by `gp` and `deep`."""

    def __missing__(self, make):
        self[make] = make().fit(X, Y)
        return self[make]


def assert_probabilities(P, n, K=3):
    """One row a row, nothing negative, nothing missing, and everything adds up."""
    assert P.shape == (n, K)
    assert (P >= 0.0).all()
    np.testing.assert_allclose(P.sum(axis=1), 1.0, rtol=0, atol=1e-12)
