"""The decision: the expected utility of every action, and the best of them."""

from __future__ import annotations

import numpy as np

from posteriori.reports.markup import (
    Figures,
    Paragraph,
    Table,
    Words,
    equation,
    given,
)
from posteriori.reports.problem import HandProblem
from posteriori.reports.steps.step import Step, joined, numbered

__all__ = ["decision", "expected_utilities"]


def expected_utilities(problem: HandProblem, p: np.ndarray, EU: np.ndarray, show: Figures) -> Step:
    """Expected utilities of all actions."""
    U = problem.utility
    table = Table(
        (Words("class"), Words("probability"), *map(Words, problem.actions)),
        tuple((Words(label), show.number(p[k]), *map(given, U[k])) for k, label in enumerate(problem.classes)),
    )
    lines = [
        equation(f"EU({a + 1})", show.products(p, U[:, a], exact=True), show.number(float(EU[a])))
        for a in range(len(EU))
    ]
    return Step(
        "utility",
        "Expected utilities",
        equation("EU(a)", r"\sum_{k} p(y^* = k) U_{ka}"),
        (
            Paragraph(("The utility of every action in every state, beside the Monte-Carlo probabilities:",)),
            table,
            Paragraph(("The expected utility of each action: ", *numbered(problem.actions), ".")),
            joined(lines),
        ),
        {"utility": U, "p": p, "expected_utility": EU},
    )


def decision(problem: HandProblem, EU: np.ndarray, show: Figures) -> Step:
    """The best action; a tie goes to the first."""
    best = int(EU.argmax())
    order = np.argsort(-EU, kind="stable")
    table = Table(
        (Words("action"), Words("expected utility")),
        tuple((Words(problem.actions[a]), show.number(float(EU[a]))) for a in order),
    )
    return Step(
        "decision",
        "The decision",
        equation("a^*", r"\mathrm{argmax}_a EU(a)"),
        (
            table,
            Paragraph(
                (
                    "The best action is ",
                    Words(f'"{problem.actions[best]}"'),
                    f", with ${show.number(float(EU[best]))}$.",
                )
            ),
        ),
        {"action": best, "expected_utility": float(EU[best])},
    )
