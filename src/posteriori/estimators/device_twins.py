"""Twins in JAX of kernels that live above `maths`; importing this module registers them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteriori.estimators import standardising
from posteriori.estimators.predicting import plugin, quasi
from posteriori.inference.posterior import FullPosterior, Posterior
from posteriori.maths.device_kernels import (
    class_sums,
    expected_softmax,
    log_partition_and_softmax,
    logits,
    row_twin,
    twin,
)
from posteriori.models.class_statistics import ClassStatistics, Kind, class_statistics

__all__ = ["between", "class_statistics", "plugin", "quasi"]

between = standardising._between


def _statistics(found: tuple[np.ndarray, ...], n_classes: int, kind: Kind) -> ClassStatistics:
    counts, present, means, scatter = found
    if (present == counts[:, None]).all():
        present = counts[:, None]
    return ClassStatistics(kind, counts, present, means, scatter)


twin(class_statistics, static=("n_classes", "kind"), result=_statistics)(class_sums)


@twin(between)
def _between(X: jax.Array, Y: Any, c: jax.Array | None, columns: jax.Array, low: jax.Array, high: jax.Array) -> Any:
    values = X[:, columns]
    found = (values != low) & (values != high)
    return (found if c is None else found & (c > 0)[:, None]).sum(axis=0)


@row_twin(plugin, static=("log",))
def _plugin(X: jax.Array, theta: jax.Array, offset: jax.Array, log: bool) -> jax.Array:
    F = logits(X, theta) + offset[:, None]
    if not log:
        return log_partition_and_softmax(F)[1]
    F = F - F.max(axis=0)
    return F - jnp.log(jnp.exp(F).sum(axis=0))


def _quasi_arrays(posterior: Posterior, offset: np.ndarray, n_nodes: int, log: bool) -> tuple[Any, ...] | None:
    """What the twin needs of a full posterior; others have none."""
    if not (isinstance(posterior, FullPosterior) and posterior.gaussian):
        return None
    return posterior.mean, offset, posterior.packed_forms, posterior.nodes(n_nodes), log


row_twin(quasi, static=("log",), prepare=_quasi_arrays)(expected_softmax)
