"""The steps of the calculation: for each the formula, the formula with its numbers, and the numbers themselves."""

from __future__ import annotations

import numpy as np

from posteriori.reports import by_hand
from posteriori.reports.markup import Figures
from posteriori.reports.problem import HandProblem
from posteriori.reports.steps.decision import decision, expected_utilities
from posteriori.reports.steps.model import data, posterior_at_zero, prior, probabilities_at_zero
from posteriori.reports.steps.optimum import (
    gradient_at_zero,
    hessian_at_zero,
    newton_iterations,
    newton_step,
    optimal_weights,
)
from posteriori.reports.steps.posterior import covariance, evidence, latent_logits, monte_carlo, plug_in
from posteriori.reports.steps.step import Step

__all__ = ["Step", "all_steps"]


def all_steps(problem: HandProblem, digits: int) -> tuple[Step, ...]:
    """All steps of the calculation, from the data to the decision."""
    show = Figures(digits)
    iterates = by_hand.newton(problem.X, problem.Y, problem.alpha)
    start, optimum = iterates[0], iterates[-1]
    Sigma = by_hand.covariance(optimum.hessian, problem.alpha, len(optimum.W))
    mean, cov = by_hand.latent(optimum.W, Sigma, problem.x_new)
    L = np.linalg.cholesky(cov)
    F = mean + problem.Z @ L.T
    draws = by_hand.softmax(F)
    p = draws.mean(axis=0)
    EU = by_hand.expected_utility(p, problem.utility)
    return (
        data(problem),
        prior(problem, show),
        probabilities_at_zero(problem, show),
        posterior_at_zero(problem, show),
        gradient_at_zero(problem, start, show),
        hessian_at_zero(problem, start, show),
        newton_step(start, iterates[1].W, show),
        newton_iterations(iterates, show),
        optimal_weights(problem, optimum, show),
        covariance(problem, optimum, Sigma, show),
        latent_logits(problem, optimum.W, Sigma, mean, cov, L, show),
        monte_carlo(problem, mean, L, F, draws, show),
        plug_in(mean, p, problem, show),
        evidence(problem, optimum, show),
        expected_utilities(problem, p, EU, show),
        decision(problem, EU, show),
    )
