r"""Whitening and quadratic forms, with derivatives written out, so that one factorisation serves both ways.

The formulas are in docs/theory.md, section 6.1.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import solve_triangular

__all__ = ["inverse_factor", "quadratic", "whitened"]


def inverse_factor(P: Array) -> tuple[Array, Array]:
    """The inverse factor L^{-1} of P = L L^T, (..., M, M), and the diagonal of L."""
    L = jnp.linalg.cholesky(P)
    identity = jnp.broadcast_to(jnp.eye(P.shape[-1]), P.shape)
    return solve_triangular(L, identity, lower=True), jnp.diagonal(L, axis1=-2, axis2=-1)


@jax.custom_vjp
def whitened(K: Array, B: Array) -> Array:
    r"""The whitened columns A = L^{-1} B for K = L L^T.

    With G the cotangent of A: that of B is L^{-T} G, and that of K is L^{-T} Psi L^{-1}, where Psi is half the
    lower triangle of -G A^T and its transpose, the diagonal counted once.
    """
    return inverse_factor(K)[0] @ B


def _whitened_forward(K: Array, B: Array) -> tuple[Array, tuple[Array, Array]]:
    inverse, _ = inverse_factor(K)
    A = inverse @ B
    return A, (inverse, A)


def _whitened_backward(saved: tuple[Array, Array], G: Array) -> tuple[Array, Array]:
    inverse, A = saved
    lower = jnp.tril(-(G @ A.T))
    psi = 0.5 * (lower + lower.T - jnp.diag(jnp.diagonal(lower)))
    return inverse.T @ psi @ inverse, inverse.T @ G


whitened.defvjp(_whitened_forward, _whitened_backward)


@jax.custom_vjp
def quadratic(S: Array, A: Array) -> Array:
    """The quadratic forms a_n^T S_k a_n for symmetric S (K, M, M) and columns a_n of A (M, n): (K, n)."""
    return ((S @ A) * A).sum(1)


def _quadratic_forward(S: Array, A: Array) -> tuple[Array, tuple[Array, Array]]:
    SA = S @ A
    return (SA * A).sum(1), (SA, A)


def _quadratic_backward(saved: tuple[Array, Array], g: Array) -> tuple[Array, Array]:
    SA, A = saved
    return (A * g[:, None]) @ A.T, 2.0 * (SA * g[:, None]).sum(0)


quadratic.defvjp(_quadratic_forward, _quadratic_backward)
