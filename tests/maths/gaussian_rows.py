"""Rows of independent Gaussians, and the log-probability that one of them is the largest, by plain sums."""

import numpy as np
import scipy.special


def log_integrand(t, mean, variance, y):
    """Of one row, at many t."""
    d = (t[:, None] - mean) / np.sqrt(variance)
    terms = scipy.special.log_ndtr(d)
    terms[:, y] = -0.5 * d[:, y] ** 2 - 0.5 * np.log(2 * np.pi * variance[y])
    return terms.sum(axis=1)


def where_it_matters(mean, variance, y):
    """Where the log-integrand is within 60 of its top, by looking closer and closer."""
    sd = np.sqrt(variance)
    low, high = min((mean - 45 * sd).min(), mean[y] - 60 * sd[y]), (mean + 45 * sd).max()
    for _ in range(8):
        t = np.linspace(low, high, 401)
        f = log_integrand(t, mean, variance, y)
        high_enough = np.flatnonzero(f > f.max() - 60)
        low, high = t[max(high_enough[0] - 1, 0)], t[min(high_enough[-1] + 1, 400)]
    return low, high


def naive_row(mean, variance, y, size=4001):
    """Log Z of one row: equal weights at many equally spaced t, which of smooth functions converges at once."""
    t, step = np.linspace(*where_it_matters(mean, variance, y), size, retstep=True)
    return scipy.special.logsumexp(log_integrand(t, mean, variance, y)) + np.log(step)


def naive(mean, variance, y, size=4001):
    """Log Z of many rows."""
    return np.array([naive_row(*row, size) for row in zip(mean.T, variance.T, y, strict=True)])


def rows(K, n, ratio, seed=0):
    """Rows of every kind, sure and unsure, whose standard deviations differ by factors up to `ratio`."""
    rng = np.random.default_rng([seed, K, ratio])
    sd = np.exp(rng.uniform(0.0, np.log(ratio), (K, n))) if ratio > 1 else np.ones((K, n))
    sd[0], sd[-1] = 1.0, ratio
    mean = rng.normal(size=(K, n)) * rng.choice([0.3, 1.0, 3.0, 10.0], n) * rng.choice([1.0, ratio], n)
    return mean, sd**2, rng.integers(0, K, n)
