"""The model: data, prior, and the posterior at the start of the search, W = 0."""

from __future__ import annotations

import numpy as np

from posteriori.reports import by_hand
from posteriori.reports.markup import (
    Figures,
    Paragraph,
    Table,
    Words,
    equation,
    given,
    given_matrix,
)
from posteriori.reports.problem import HandProblem
from posteriori.reports.steps.step import Step, numbered

__all__ = ["data", "posterior_at_zero", "prior", "probabilities_at_zero"]


def data(problem: HandProblem) -> Step:
    """X with its column of ones, Y one-hot."""
    X, Y = problem.X, problem.Y
    N, D = X.shape
    K = Y.shape[1]
    named = [f"$N = {N}$ rows, $D = {D}$ columns: $x_{{n1}} = 1$ for the intercept"]
    for d, name in enumerate(problem.features):
        named += [f", $x_{{n{d + 2}}}$ is ", Words(f'"{name}"')]
    named += [f". $K = {K}$ classes: ", *numbered(problem.classes)]
    table = Table(
        ("n", *(f"x_{{n{d + 1}}}" for d in range(D)), Words("class"), *(f"Y_{{n{k + 1}}}" for k in range(K))),
        tuple(
            (str(n + 1), *map(given, X[n]), Words(problem.classes[int(Y[n].argmax())]), *map(given, Y[n]))
            for n in range(N)
        ),
    )
    story = (Paragraph((problem.story,)),) if problem.story else ()
    return Step(
        "data",
        "The data and their one-hot targets",
        equation("x_n", r"(1, x_{n2}, \ldots, x_{nD})")
        + equation("Y_{nk}", "1 \\text{ if row n is of class k, else } 0"),
        (*story, Paragraph((*named, ".")), table),
        {"X": X, "Y": Y},
    )


def prior(problem: HandProblem, show: Figures) -> Step:
    """The density of all weights, its constant and its logarithm at W = 0."""
    K, D, alpha = problem.Y.shape[1], problem.X.shape[1], problem.alpha
    constant = by_hand.log_prior(np.zeros((K, D)), alpha)
    half = K * D / 2
    filled = equation(
        r"\log p(W)",
        rf"\tfrac{{{K} \cdot {D}}}{{2}} \log(\tfrac{{{given(alpha)}}}{{2 \pi}})"
        rf" - \tfrac{{{given(alpha)}}}{{2}} \sum_{{kd}} W_{{kd}}^2",
        rf"{given(half)} \cdot {show.factor(float(np.log(alpha / (2 * np.pi))))}"
        rf" - {given(alpha / 2)} \cdot \sum_{{kd}} W_{{kd}}^2",
        rf"{show.number(constant)} - {given(alpha / 2)} \cdot \sum_{{kd}} W_{{kd}}^2",
    ) + equation(r"\log p(W = 0)", show.number(constant))
    return Step(
        "prior",
        "The prior",
        equation(
            r"p(W_{kd})",
            r"N(W_{kd}; 0, \tfrac{1}{\alpha})",
            r"\sqrt{\tfrac{\alpha}{2 \pi}} \exp(-\tfrac{\alpha}{2} W_{kd}^2)",
        )
        + equation(r"\log p(W)", r"\tfrac{K D}{2} \log(\tfrac{\alpha}{2 \pi}) - \tfrac{\alpha}{2} \sum_{kd} W_{kd}^2"),
        (
            Paragraph(
                (
                    f"Every one of the $K D = {K * D}$ weights, the intercepts too, has mean 0 and precision "
                    f"$\\alpha = {given(alpha)}$, independently.",
                )
            ),
            filled,
        ),
        {"alpha": alpha, "log_prior_at_zero": constant},
    )


def probabilities_at_zero(problem: HandProblem, show: Figures) -> Step:
    """Logits and softmax at the start."""
    X, K = problem.X, problem.Y.shape[1]
    W = np.zeros((K, X.shape[1]))
    F = by_hand.logits(X, W)
    P = by_hand.softmax(F)
    ones = " + ".join([r"\exp(0)"] * K)
    return Step(
        "softmax",
        "Logits and probabilities at W = 0",
        equation("f_n", "W x_n") + equation("P_{nk}", r"\frac{\exp(f_{nk})}{\sum_{j} \exp(f_{nj})}"),
        (
            Paragraph(("The first row:",)),
            equation("f_1", (given_matrix(W), given_matrix(X[0]), "=", given_matrix(F[0])))
            + equation("P_{11}", rf"\exp(0) / ({ones})", f"1 / {K}", show.number(P[0, 0])),
            Paragraph((f"With no weights all logits are 0, whatever the row, and every $P_{{nk}} = 1/{K}$.",)),
        ),
        {"W": W, "logits": F, "P": P},
    )


def posterior_at_zero(problem: HandProblem, show: Figures) -> Step:
    """Log-likelihood, log posterior up to its constant, and J."""
    N, K = problem.Y.shape
    W = np.zeros((K, problem.X.shape[1]))
    log_likelihood = -by_hand.cross_entropy(W, problem.X, problem.Y)
    log_prior = by_hand.log_prior(W, problem.alpha)
    J = by_hand.objective(W, problem.X, problem.Y, problem.alpha)
    return Step(
        "posterior",
        "Log-likelihood and log posterior at W = 0",
        equation(r"\log p(y | X, W)", r"\sum_{n} \sum_{k} Y_{nk} \log P_{nk}", "-E(W)")
        + equation(r"\log p(W | y, X)", r"\log p(y | X, W) + \log p(W) - \log p(y | X)")
        + equation("J(W)", r"E(W) + \tfrac{\alpha}{2} \sum_{kd} W_{kd}^2"),
        (
            Paragraph(
                (
                    "In each row only the class that was seen counts, and its probability is "
                    f"$1/{K}$. The last term of the log posterior, the log evidence, does not depend on $W$ (its value "
                    "comes later). $J$ is minus the log posterior up to such constants: the MAP weights minimise it.",
                )
            ),
            equation(
                r"\log p(y | X, 0)",
                rf"{N} \cdot \log(1/{K})",
                rf"{N} \cdot {show.factor(-float(np.log(K)))}",
                show.number(log_likelihood),
            )
            + equation(
                r"\log p(y | X, 0) + \log p(0)",
                f"{show.number(log_likelihood)} + {show.factor(log_prior)}",
                show.number(log_likelihood + log_prior),
            )
            + equation("J(0)", f"{show.number(-log_likelihood)} + 0", show.number(J)),
        ),
        {
            "log_likelihood": log_likelihood,
            "log_prior": log_prior,
            "log_joint": log_likelihood + log_prior,
            "objective": J,
        },
    )
