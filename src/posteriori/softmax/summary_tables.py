"""Tables for people: coefficients, contrasts and average marginal effects, each with its uncertainty."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtr, ndtri

from posteriori.softmax import predictive as predicting
from posteriori.threads import one_blas_thread

if TYPE_CHECKING:
    import pandas as pd

    from posteriori.softmax.bayesian import BayesianSoftmaxRegression

__all__ = ["contrast", "marginal_effects", "summary"]

_EFFECT_DRAWS = 400


def summary(model: BayesianSoftmaxRegression, coding: str, level: float, reference: Any) -> pd.DataFrame:
    """One row per class and feature, in a coding of the classes."""
    K = len(model.classes_)
    if coding == "symmetric":
        C = np.eye(K)
    elif coding == "sum":
        C = np.eye(K) - 1.0 / K
    elif coding == "reference":
        base = 0 if reference is None else _index(model, reference)
        C = np.delete(np.eye(K) - np.eye(K)[base], base, axis=0)
    else:
        raise ValueError(f"coding={coding!r} is unknown: use 'symmetric', 'reference' or 'sum'.")
    classes = model.classes_ if len(C) == K else np.delete(model.classes_, base)
    return _coefficients(model, C, list(classes), level)


def contrast(model: BayesianSoftmaxRegression, first: Any, second: Any, level: float) -> pd.DataFrame:
    """Coefficients of log p(first) / p(second)."""
    i, j = _index(model, first), _index(model, second)
    if i == j:
        raise ValueError(f"Both classes are {first!r}: a contrast needs two.")
    K = len(model.classes_)
    table = _coefficients(model, (np.eye(K)[i] - np.eye(K)[j])[None], [f"{first} - {second}"], level)
    return table.rename(columns={"class": "contrast"})


def _coefficients(model: BayesianSoftmaxRegression, C: np.ndarray, classes: list[Any], level: float) -> pd.DataFrame:
    """Of the class combinations C (m, K), for every feature and the intercept, in the units of the data.

    A coefficient in those units is a logit at a row of the change of coordinates, so its covariance over classes is
    that of a logit.
    """
    import pandas as pd

    width = model._mode.shape[1]
    M = model._coordinates.outward_matrix(width)
    theta = model._coordinates.outward(model._posterior.mean)
    if width > model.n_features_in_:
        theta[:, -1] += model._offset
    covariance = model._posterior.latent_covariance(M)  # (D', K, K)
    mean = C @ theta
    sd = np.sqrt(np.maximum(np.einsum("mk,dkl,ml->md", C, covariance, C), 0.0))
    half = ndtri(0.5 * (1.0 + level)) * sd
    sure = np.divide(np.abs(mean), sd, out=np.full_like(mean, np.inf), where=sd > 0)
    names = _feature_names(model) + (["(intercept)"] if width > model.n_features_in_ else [])
    return pd.DataFrame(
        {
            "class": np.repeat(np.array(classes, dtype=object), width),
            "feature": names * len(classes),
            "mean": mean.ravel(),
            "sd": sd.ravel(),
            "lower": (mean - half).ravel(),
            "upper": (mean + half).ravel(),
            "probability_of_sign": np.where(mean == 0, 0.5, ndtr(sure)).ravel(),
        }
    )


def marginal_effects(model: BayesianSoftmaxRegression, X: Any, level: float) -> pd.DataFrame:
    """Mean over rows of d p_k / d x_d = p_k (w_kd - sum_j p_j w_jd), over draws from the posterior."""
    import pandas as pd

    K, D = model.coef_.shape
    thetas = model._posterior.draws(_EFFECT_DRAWS, np.random.default_rng(0))
    blocks = model._blocks(X, K)
    with one_blas_thread():
        moments = blocks.map_sum(predicting.drawn_moments, thetas, model._offset) / blocks.n_rows
    W = np.stack([model._coordinates.outward(theta)[:, :D] for theta in thetas])
    effects = moments[:, :, :1] * W - moments[:, :, 1:] @ W
    effects *= 1.0 - model.label_noise_
    tail = 0.5 * (1.0 - level)
    mean = effects.mean(axis=0)
    return pd.DataFrame(
        {
            "class": np.repeat(np.asarray(model.classes_, dtype=object), D),
            "feature": _feature_names(model) * K,
            "mean": mean.ravel(),
            "sd": effects.std(axis=0).ravel(),
            "lower": np.quantile(effects, tail, axis=0).ravel(),
            "upper": np.quantile(effects, 1.0 - tail, axis=0).ravel(),
            "probability_of_sign": (np.sign(effects) == np.sign(mean)).mean(axis=0).ravel(),
        }
    )


def _feature_names(model: BayesianSoftmaxRegression) -> list[str]:
    names = getattr(model, "feature_names_in_", None)
    return [f"x{d}" for d in range(model.n_features_in_)] if names is None else list(names)


def _index(model: BayesianSoftmaxRegression, label: Any) -> int:
    found = np.flatnonzero(model.classes_ == label)
    if found.size != 1:
        raise ValueError(f"{label!r} is no class of this model: there are {model.classes_.tolist()}.")
    return int(found[0])
