r"""The least value of a softmax objective, by an independent Newton method in extended precision.

.. math:: J(W, b) = -\sum_n c_n \sum_k Y_{nk} \log P_{nk} + \tfrac12 \sum_{kd} \alpha_{kd} W_{kd}^2
          + \tfrac{\beta}{2} \lVert b\rVert^2

Nothing here is shared with the package: every column is scaled to at most one, the Hessian is formed row by row, damped
until its factor exists, and a step is halved until J falls. Small problems alone: the loops are those of Python.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

LONG = np.longdouble
EXTENDED = bool(np.finfo(LONG).eps < 1e-18)
"""Whether this machine has more than float64."""


@dataclass(frozen=True)
class Objective:
    """J of one problem in extended precision; columns of X include the intercept's ones."""

    X: np.ndarray
    Y: np.ndarray
    c: np.ndarray
    precision: np.ndarray

    def value(self, theta: np.ndarray) -> Any:
        """Return J."""
        F = self.X @ theta.T
        F -= F.max(axis=1, keepdims=True)
        own = (self.Y * F).sum(axis=1)
        loss = np.log(np.exp(F).sum(axis=1)) - own
        sure = (self.Y.max(axis=1) == 1) & (own == 0)  # its own class is on top: all digits of a small loss
        others = np.where(self.Y == 1, 0, np.exp(F)).sum(axis=1)
        loss[sure] = np.log1p(others[sure])
        return (self.c * loss).sum() + 0.5 * (self.precision * theta * theta).sum()

    def gradient_hessian(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the slope (K D',) and the curvature (K D', K D')."""
        K, D = theta.shape
        F = self.X @ theta.T
        F -= F.max(axis=1, keepdims=True)
        P = np.exp(F)
        P /= P.sum(axis=1, keepdims=True)
        gradient = ((self.c[:, None] * (P - self.Y)).T @ self.X + self.precision * theta).ravel()
        H = np.zeros((K, D, K, D), dtype=LONG)
        for k in range(K):
            for m in range(K):
                weight = self.c * P[:, k] * ((k == m) - P[:, m])
                H[k, :, m, :] = (self.X * weight[:, None]).T @ self.X
        H = H.reshape(K * D, K * D)
        i = np.arange(K * D)
        H[i, i] += self.precision.ravel()
        return gradient, H

    def least(self, theta: np.ndarray | None = None, n_steps: int = 200) -> Any:
        """Return J*, or None where the steps did not reach it."""
        theta = np.zeros(self.precision.shape, dtype=LONG) if theta is None else theta
        value = self.value(theta)
        for _ in range(n_steps):
            gradient, H = self.gradient_hessian(theta)
            step = damped_solution(H, gradient)
            decrement = 0.5 * (gradient @ step)
            if decrement <= 1e-19 * abs(value):
                return value
            t = LONG(1)
            while True:
                moved = theta - t * step.reshape(theta.shape)
                found = self.value(moved)
                if found < value:
                    break
                t *= 0.5
                if t < 1e-12:
                    return value if decrement <= 1e-17 * abs(value) else None
            theta, value = moved, found
        return None


def damped_solution(H: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Return (H + little)^{-1} g, by a Cholesky factor of H scaled to a unit diagonal."""
    scale = 1 / np.sqrt(np.maximum(H.diagonal(), LONG("1e-4000")))
    unit = H * scale * scale[:, None]
    ridge = LONG(0)
    while (L := factor(unit, ridge)) is None:
        ridge = max(ridge * 100, LONG(1e-18))
    return scale * back(L, forward(L, scale * g))


def factor(M: np.ndarray, ridge: Any) -> np.ndarray | None:
    """Return the lower factor of M + ridge I, or None."""
    n = len(M)
    L = np.zeros_like(M)
    for j in range(n):
        rest = M[j:, j] - L[j:, :j] @ L[j, :j]
        rest[0] += ridge
        if not rest[0] > 1e-19 * M[j, j]:
            return None
        L[j:, j] = rest / np.sqrt(rest[0])
    return L


def forward(L: np.ndarray, r: np.ndarray) -> np.ndarray:
    """Return L^{-1} r."""
    out = np.zeros_like(r)
    for i in range(len(r)):
        out[i] = (r[i] - L[i, :i] @ out[:i]) / L[i, i]
    return out


def back(L: np.ndarray, r: np.ndarray) -> np.ndarray:
    """Return L^{-T} r."""
    out = np.zeros_like(r)
    for i in reversed(range(len(r))):
        out[i] = (r[i] - L[i + 1 :, i] @ out[i + 1 :]) / L[i, i]
    return out


def objective(X: np.ndarray, y: Any, weight: np.ndarray | None, model: Any) -> tuple[Objective, np.ndarray]:
    """Return J of a fitted SoftmaxRegression, and its coefficients, for columns of size one, centred if they may be."""
    classes = model.classes_
    Y = np.asarray(y, dtype=float) if np.ndim(y) == 2 else (np.asarray(y)[:, None] == classes).astype(float)
    Y, c = Y.astype(LONG), np.ones(len(Y), dtype=LONG) if weight is None else weight.astype(LONG)
    if np.ndim(y) == 2:
        total = Y.sum(axis=1)
        Y, c = Y / np.where(total > 0, total, 1)[:, None], c * total
    if model.class_weight == "balanced":
        sizes = (Y * c[:, None]).sum(axis=0)
        present = sizes > 0
        weighted = Y * np.where(present, c.sum() / (present.sum() * np.where(present, sizes, 1)), 0)
        total = weighted.sum(axis=1)
        Y, c = weighted / np.where(total > 0, total, 1)[:, None], c * total
    given = model.penalize_intercept if model.fit_intercept else None
    own = LONG(model.alpha if given is True else 0.0 if given is False or given is None else given)
    X = X.astype(LONG)
    shift = X.mean(axis=0) if model.fit_intercept and own == 0 else np.zeros(X.shape[1], dtype=LONG)
    columns = X - shift
    size = np.abs(columns).max(axis=0, initial=0)
    size = np.where(size > 0, size, 1)
    K, D = model.coef_.shape
    precision = np.full((K, D), LONG(model.alpha)) / size**2
    columns, theta = columns / size, model.coef_.astype(LONG) * size
    if model.fit_intercept:
        columns = np.column_stack([columns, np.ones(len(X), dtype=LONG)])
        precision = np.column_stack([precision, np.full(K, own)])
        theta = np.column_stack([theta, model.intercept_.astype(LONG) + model.coef_.astype(LONG) @ shift])
    return Objective(columns, Y, c, precision), theta


def true_gap(X: np.ndarray, y: Any, weight: np.ndarray | None, model: Any) -> float | None:
    """Return J - J* at the coefficients of a fitted SoftmaxRegression, or None where J* cannot be had."""
    if not EXTENDED:
        return None
    J, theta = objective(X, y, weight, model)
    found = [least for least in (J.least(), J.least(theta)) if least is not None]
    return float(J.value(theta) - min(found)) if found else None
