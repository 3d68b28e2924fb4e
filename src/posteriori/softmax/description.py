"""A fitted Bayesian model in a few lines, as text and as HTML."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from posteriori.softmax.bayesian import BayesianSoftmaxRegression

__all__ = ["as_html", "as_text"]

_MOST_ROWS = 40
"""Coefficients shown; summary() has them all."""


def facts(model: BayesianSoftmaxRegression) -> dict[str, str]:
    """What was fitted, under which prior, how well."""
    K, D = model.coef_.shape
    solution = model.solution_
    told = {
        "classes": f"{K}: {_few(model.classes_)}",
        "features": f"{D}",
        "prior": _prior(model),
        "posterior": f"{solution.approximation}, {solution.structure} ({solution.approximation_reason})",
        "log evidence": "none: the prior is improper" if model.log_evidence_ is None else f"{model.log_evidence_:.2f}",
        "mode": f"{solution.status.name.lower().replace('_', ' ')}, gap {solution.gap:.1e} of {solution.objective:.4g}",
    }
    if solution.scores:
        scores = ", ".join(f"{name} {score:.4f}" for name, score in solution.scores.items())
        told["left-out log-loss"] = scores
    if model.label_noise_ > 0:
        told["label noise"] = f"{model.label_noise_:.3f}"
    return told


def as_text(model: BayesianSoftmaxRegression) -> str:
    """The facts, and the coefficients about their mean over classes."""
    told = facts(model)
    width = max(map(len, told))
    lines = ["Bayesian softmax regression", *(f"  {name:<{width}}  {value}" for name, value in told.items()), ""]
    table = model.summary("sum")
    lines.append(table.head(_MOST_ROWS).to_string(index=False, float_format=lambda x: f"{x:.4g}"))
    if len(table) > _MOST_ROWS:
        lines.append(f"... {len(table) - _MOST_ROWS} more: see summary()")
    return "\n".join(lines)


def as_html(model: BayesianSoftmaxRegression) -> str:
    """The same for a notebook."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th><td style='text-align:left'>{escape(value)}</td></tr>"
        for name, value in facts(model).items()
    )
    table = model.summary("sum")
    shown = table.head(_MOST_ROWS).to_html(index=False, border=0, float_format=lambda x: f"{x:.4g}")
    more = len(table) - _MOST_ROWS
    rest = f"<p>{more} more: see <code>summary()</code></p>" if more > 0 else ""
    return f"<div><strong>Bayesian softmax regression</strong><table>{rows}</table>{shown}{rest}</div>"


def _prior(model: BayesianSoftmaxRegression) -> str:
    """The prior in words."""
    prior = model.prior_
    if prior is None:
        return "Jeffreys"
    precision = prior.precision
    how = {"evidence": " (by evidence)", "ard": " (one per feature, by evidence)"}.get(str(model.prior), "")
    if isinstance(precision, float):
        return f"Gaussian, precision {precision:.3g} on every weight{how}"
    if isinstance(precision, np.ndarray) and precision.shape == model.coef_.shape:
        return f"Gaussian, precisions from {precision.min():.3g} to {precision.max():.3g} in the data's units{how}"
    return "Gaussian with a full precision matrix"


def _few(labels: np.ndarray, most: int = 6) -> str:
    shown = ", ".join(str(label) for label in labels[:most])
    return shown if len(labels) <= most else f"{shown}, ..."
