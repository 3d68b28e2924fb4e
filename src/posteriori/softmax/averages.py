"""Sums over rows of softmax averaged over a Gaussian on the parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from posteriori.maths.integrals import Nodes, softmax_moments
from posteriori.rows.blocks import Sums, kernel
from posteriori.rows.products import contract, logits, packed_grams, quadratic_forms
from posteriori.softmax.pairs import reference_covariance

__all__ = ["averaged_moments"]


@kernel(reads_labels=False, jax_version="posteriori.softmax.jax_kernels:averaged_moments")
def averaged_moments(X: Any, Y: Any, c: np.ndarray | None, theta: np.ndarray, forms: np.ndarray, nodes: Nodes) -> Sums:
    """sum_n c_n E[log sum_k exp f_nk], E[P]^T diag(c) [X, 1] and sum_n c_n E[p_k p_l] x_n x_n^T for k < l.

    The logits are Gaussian about those of theta; `forms` are the covariances of w_k - w_l, (pairs, D', D'), as
    are the last of the results.
    """
    with_intercept = theta.shape[1] > X.shape[1]
    F = logits(X, theta)
    variances = np.maximum(quadratic_forms(X, forms, with_intercept), 0.0)
    moments = softmax_moments(F, reference_covariance(variances, len(theta)), nodes)
    log_partition, mean, products = moments.log_partition + F[-1], moments.mean, moments.products
    if c is not None:
        log_partition, mean, products = log_partition * c, mean * c, products * c
    return Sums((log_partition.sum(), contract(mean, X, with_intercept), packed_grams(X, products, with_intercept)))
