"""The problems: a name and a function that returns ``(X, y)``, y as codes 0..K-1; random ones are seeded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import brentq
from scipy.special import softmax
from sklearn import datasets

Data = tuple[Any, np.ndarray]
"""X (N, D), dense or CSR, and y (N,)."""


def load(name: str, data: Path | None = None) -> Data | None:
    """Return the problem, or None where its file is not at hand."""
    if name in PROBLEMS:
        return PROBLEMS[name]()
    path = None if data is None else data / f"{name}.npz"
    if path is None or not path.exists():
        return None
    with np.load(path, allow_pickle=False) as file:
        X, labels = file["X"], file["y"]
        if name == "mnist":
            train = file["split"] == "train"
            X, labels = X[train], labels[train]
    return np.ascontiguousarray(X.reshape(len(X), -1)), np.unique(labels, return_inverse=True)[1]


def standardise(X: np.ndarray) -> np.ndarray:
    """Return the columns with mean zero and variance one; a constant column becomes zero."""
    scale = X.std(axis=0)
    return np.asarray((X - X.mean(axis=0)) / np.where(scale > 0, scale, 1.0))


def bundled(loader: Callable[..., Data], *, standardised: bool = False) -> Data:
    """Return one of scikit-learn's own data sets."""
    X, y = loader(return_X_y=True)
    return (standardise(X) if standardised else X), y


def draw_labels(logits: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw y_n ~ Categorical(softmax(logits_n)) by the Gumbel-max rule."""
    return np.asarray(np.argmax(logits + rng.gumbel(size=logits.shape), axis=1))


def synthetic(n_rows: int, n_features: int, n_classes: int, *, condition: float = 1.0, seed: int = 0) -> Data:
    r"""Return a draw from a softmax model: x ~ N(0, I_D), w_k ~ N(0, (4/D) I_D), so that logits are about ±2.

    With ``condition`` > 1 the labels and latent columns stay the same, and the features become ``X S Q``: S
    scales the columns log-uniformly over ``[condition^-1/2, condition^1/2]``, Q is a random rotation.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_rows, n_features))
    W = rng.standard_normal((n_classes, n_features)) * (2.0 / np.sqrt(n_features))
    y = draw_labels(X @ W.T, rng)
    if condition > 1.0:
        half = np.log10(condition) / 2
        Q, _ = np.linalg.qr(rng.standard_normal((n_features, n_features)))
        X = (X * np.logspace(-half, half, n_features)) @ Q
    return X, y


def text(n_rows: int, n_features: int, n_classes: int, *, words: int = 100, seed: int = 0) -> Data:
    """Return text-like data: ``words`` distinct columns a row, Zipf popularity, tf-idf values, unit rows.

    The classes differ in one word of fifty; the logits have a standard deviation of about 3.
    """
    rng = np.random.default_rng(seed)
    popularity = 1.0 / (np.arange(n_features) + 10.0)
    popularity /= popularity.sum()
    # Four draws a kept word leave enough distinct ones; the first `words` of them are the row.
    draws = np.searchsorted(np.cumsum(popularity)[:-1], rng.random((n_rows, 4 * words)))
    indices = np.empty((n_rows, words), dtype=np.int32)
    for row, drawn in enumerate(draws):
        _, first = np.unique(drawn, return_index=True)
        indices[row] = np.sort(drawn[np.sort(first)[:words]])
    values = (1.0 + np.log(rng.geometric(0.6, size=indices.shape))) * -np.log(popularity[indices])
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    X = sp.csr_array(
        (values.ravel(), indices.ravel(), np.arange(0, n_rows * words + 1, words, dtype=np.int32)),
        shape=(n_rows, n_features),
    )
    W = rng.standard_normal((n_classes, n_features)) * (rng.random((n_classes, n_features)) < 0.02)
    logits = X @ W.T
    return X, draw_labels(3.0 * logits / logits.std(), rng)


def gaussian_classes(n_rows: int, n_features: int, n_classes: int, *, seed: int = 0) -> Data:
    """Return Gaussian classes of about one size, each with a mean and a covariance of its own, that overlap."""
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n_rows)
    X = rng.standard_normal((n_rows, n_features))
    for k in range(n_classes):
        mean = rng.standard_normal(n_features) * (2.0 / np.sqrt(n_features))
        A = np.eye(n_features) + rng.standard_normal((n_features, n_features)) * (0.5 / np.sqrt(n_features))
        X[y == k] = X[y == k] @ A + mean
    return X, y


def curved(
    n_rows: int, n_features: int, n_classes: int, *, error: float = 0.1, waves: int = 1000, seed: int = 0
) -> Data:
    """Return classes with curved boundaries: x ~ N(0, I_D), y ~ softmax(a f(x)), K random smooth functions f.

    Each is a sum of cosines, nearly a draw from a Gaussian process with an RBF kernel of lengthscale D^1/2; all have
    mean 0 and variance 1. The number a is such that the best classifier there is would be wrong in a share ``error``.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_rows, n_features))
    V = rng.standard_normal((n_features, waves)) / np.sqrt(n_features)
    F = np.cos(X @ V + rng.uniform(0.0, 2.0 * np.pi, waves)) @ rng.standard_normal((waves, n_classes))
    F = standardise(F)

    def excess(log_a: float) -> float:
        return float(1.0 - softmax(np.exp(log_a) * F, axis=1).max(axis=1).mean()) - error

    return X, draw_labels(np.exp(brentq(excess, -5.0, 10.0)) * F, rng)


PROBLEMS: dict[str, Callable[[], Data]] = {
    "iris": lambda: bundled(datasets.load_iris),
    "iris-standardised": lambda: bundled(datasets.load_iris, standardised=True),
    "wine": lambda: bundled(datasets.load_wine),
    "wine-standardised": lambda: bundled(datasets.load_wine, standardised=True),
    "digits": lambda: bundled(datasets.load_digits),
    "digits-standardised": lambda: bundled(datasets.load_digits, standardised=True),
    "2k-20-5": lambda: synthetic(2_000, 20, 5),
    "100k-50-10": lambda: synthetic(100_000, 50, 10),
    "100k-50-10-ill": lambda: synthetic(100_000, 50, 10, condition=1e4),
    "1M-20-5": lambda: synthetic(1_000_000, 20, 5),
    "20k-784-10": lambda: synthetic(20_000, 784, 10),
    "50k-100-100": lambda: synthetic(50_000, 100, 100),
    "text-20k-50k-20": lambda: text(20_000, 50_000, 20),
}
"""Problems that need no file."""

GAUSSIAN: dict[str, Callable[[], Data]] = {
    "gaussian-2k-20-5": lambda: gaussian_classes(2_000, 20, 5),
    "gaussian-1M-20-5": lambda: gaussian_classes(1_000_000, 20, 5),
    "gaussian-100k-100-10": lambda: gaussian_classes(100_000, 100, 10),
}
"""Problems of Gaussian classes, for the times of Gaussian classifiers."""

FILES = ("letter", "mnist")
"""Problems read from ``NAME.npz`` (keys X, y, split) in the data folder."""

QUICK = ("iris", "wine", "2k-20-5")
"""Problems of ``--quick``."""

ALL = (*(name for name in PROBLEMS if name != "2k-20-5"), *FILES)
"""Problems of a full run."""
