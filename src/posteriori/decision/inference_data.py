r"""Draws from a posterior in the groups that ArviZ reads: a DataTree with ArviZ 1, an InferenceData before.

.. math:: \ell_{sn} = c_n \log p(y_n \mid x_n, \theta_s), \qquad \tilde y_{sn} \sim p(\cdot \mid x_n, \theta_s)

Weights c_n of rows multiply log-likelihoods. Draws are independent of each other, so that they are one chain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from posteriori.decision.replication import replicated_labels, require_one_each

__all__ = ["Draws", "ObservedRows", "inference_data", "require_arviz"]

Variables = Mapping[str, tuple[tuple[str, ...], np.ndarray]]
"""Arrays by name, each with the names of its dimensions."""


@dataclass(frozen=True)
class Draws:
    """Draws from a posterior.

    Attributes
    ----------
    parameters : dict of str to (names of dimensions, ndarray (S, ...))
        Dimensions without that of the draws; "class", "feature" and "row" have coordinates.
    log_proba : ndarray (S, n, K)
        Logarithms of the class probabilities of the rows under each draw.
    """

    parameters: Variables
    log_proba: np.ndarray


@dataclass(frozen=True)
class ObservedRows:
    """The rows whose labels were observed.

    Attributes
    ----------
    X : ndarray (n, D)
    features : sequence of D names
    codes : ndarray of int (n,)
        Places of the labels among the classes.
    classes : sequence of K labels
    weights : ndarray (n,) or None
    """

    X: np.ndarray
    features: Any
    codes: np.ndarray
    classes: Any
    weights: np.ndarray | None


def require_arviz() -> Any:
    """The module `arviz`; raises with the command that installs it where it is missing."""
    try:
        import arviz
    except ImportError:
        raise ImportError("to_arviz needs ArviZ: pip install 'posteriori[arviz]'.") from None
    return arviz


def inference_data(draws: Draws, rows: ObservedRows, rng: np.random.Generator) -> Any:
    """The groups posterior, log_likelihood, posterior_predictive, observed_data and constant_data."""
    arviz = require_arviz()
    import xarray as xr

    n = draws.log_proba.shape[1]
    require_one_each(rows.codes, n)
    own = draws.log_proba[:, np.arange(n), rows.codes]
    observed: dict[str, Any] = {"X": (("row", "feature"), rows.X)}
    if rows.weights is not None:
        own = own * rows.weights
        observed["weight"] = (("row",), rows.weights)
    labels = replicated_labels(np.exp(draws.log_proba), rng)
    groups: dict[str, Variables] = {
        "posterior": {name: _in_one_chain(*each) for name, each in draws.parameters.items()},
        "log_likelihood": {"label": _in_one_chain(("row",), own)},
        "posterior_predictive": {"label": _in_one_chain(("row",), labels)},
        "observed_data": {"label": (("row",), rows.codes)},
        "constant_data": observed,
    }
    coordinates = {
        "chain": np.arange(1),
        "draw": np.arange(len(own)),
        "class": np.asarray(rows.classes),
        "feature": np.asarray(rows.features),
        "other_feature": np.asarray(rows.features),
        "row": np.arange(n),
    }

    def data_set(variables: Variables) -> Any:
        used = {dimension for dimensions, _ in variables.values() for dimension in dimensions}
        return xr.Dataset(variables, {name: values for name, values in coordinates.items() if name in used})

    found = {name: data_set(variables) for name, variables in groups.items()}
    major = int(arviz.__version__.partition(".")[0])
    return xr.DataTree.from_dict(found) if major >= 1 else arviz.InferenceData(**found)


def _in_one_chain(dimensions: tuple[str, ...], values: np.ndarray) -> tuple[tuple[str, ...], np.ndarray]:
    """Draws (S, ...) as those of one chain, (1, S, ...)."""
    return ("chain", "draw", *dimensions), values[None]
