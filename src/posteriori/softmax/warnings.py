"""Warnings about a Bayesian fit: what a user should know before trusting it."""

from __future__ import annotations

import warnings

import numpy as np

from posteriori.exceptions import ApproximationWarning, ConvergenceWarning
from posteriori.solvers.solution import BayesianSolution, Status

__all__ = ["warn_about"]

_WORSE, _WORSE_NATS = 0.02, 0.01
"""The excess of a posterior's left-out log-loss over its mode's, as a share and in nats, that gives a warning."""


def warn_about(solution: BayesianSolution, n_draws: int) -> None:
    """Warn about what went wrong or may mislead, with a class of warnings for each kind of trouble."""
    if solution.status is not Status.CONVERGED:
        warnings.warn(
            f"Not converged ({solution.status.value}): after {solution.n_iter} iterations J is about "
            f"{solution.gap:.2g} above its minimum. Raise max_iter, or use solver='auto'.",
            ConvergenceWarning,
            stacklevel=3,
        )
    if solution.evidence_converged is False:
        warnings.warn(
            "The search for the prior of largest evidence has not reached it: give the precision as a number, "
            "or look at solution_.evidence_path.",
            ConvergenceWarning,
            stacklevel=3,
        )
    if solution.approximation_converged is False:
        warnings.warn(
            "The variational posterior has not converged: compare solution_.bound with "
            "log_evidence_, or use a stronger prior.",
            ApproximationWarning,
            stacklevel=3,
        )
    if solution.scores:
        plugin, chosen = solution.scores["plugin"], solution.scores[solution.approximation]
        if chosen - plugin > max(_WORSE * plugin, _WORSE_NATS):
            warnings.warn(
                f"The {solution.approximation} posterior predicts left-out rows worse than its mode alone: "
                f"log-loss {chosen:.3g} against {plugin:.3g}. Classes are nearly separable; consider "
                "predictive='plugin' for probabilities, and distrust the intervals.",
                ApproximationWarning,
                stacklevel=3,
            )
    if solution.k_hat is not None and solution.k_hat > min(0.7, 1.0 - 1.0 / np.log10(n_draws)):
        warnings.warn(
            f"Importance weights are unreliable (k-hat {solution.k_hat:.2f}, worth "
            f"{solution.effective_sample_size:.0f} draws): use approximation='variational', or more draws.",
            ApproximationWarning,
            stacklevel=3,
        )
