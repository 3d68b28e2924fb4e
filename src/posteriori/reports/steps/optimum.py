"""The optimum: gradient, Hessian and Newton's method, from W = 0 to the MAP weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from posteriori.reports import by_hand
from posteriori.reports.by_hand import NewtonLine
from posteriori.reports.markup import (
    Content,
    Equations,
    Figures,
    Paragraph,
    Table,
    Words,
    WrittenSum,
    equation,
    given,
    given_matrix,
)
from posteriori.reports.problem import HandProblem
from posteriori.reports.steps.step import Step, joined, named_blocks, norm, numbers, small

__all__ = [
    "gradient_at_zero",
    "hessian_at_zero",
    "hessian_blocks",
    "newton_iterations",
    "newton_step",
    "optimal_weights",
]


def gradient_at_zero(problem: HandProblem, start: NewtonLine, show: Figures) -> Step:
    """Each row's share in the gradient of each class, and their sum."""
    X, Y = problem.X, problem.Y
    P = by_hand.softmax(by_hand.logits(X, start.W))
    shares = by_hand.contributions(P, X, Y)
    return Step(
        "gradient",
        "The gradient at W = 0",
        equation("g_k", r"\sum_{n} (P_{nk} - Y_{nk}) x_n + \alpha w_k") + equation("g", r"(P - Y)^{\top} X + \alpha W"),
        (
            Paragraph(("The first row adds to the gradient of each class:",)),
            _first_row(X, Y, P, shares, show),
            Paragraph(("All rows, their sum, and the prior, which adds nothing yet:",)),
            _shares_table(problem, start, shares, show),
        ),
        {"contributions": shares, "gradient": start.gradient},
    )


def _first_row(X: np.ndarray, Y: np.ndarray, P: np.ndarray, shares: np.ndarray, show: Figures) -> Equations:
    lines = [
        equation(
            rf"(P_{{1{k + 1}}} - Y_{{1{k + 1}}}) x_1",
            (
                rf"({show.number(P[0, k])} - {given(Y[0, k])}) \cdot",
                given_matrix(X[:1]),
                "=",
                show.matrix(shares[0, k][None]),
            ),
        )
        for k in range(Y.shape[1])
    ]
    return joined(lines)


def _shares_table(problem: HandProblem, at: NewtonLine, shares: np.ndarray, show: Figures) -> Table:
    """(P_nk - Y_nk) x_nd by row, their sum, alpha w_kd, and the gradient."""
    K, D = at.W.shape
    sums = shares.sum(axis=0)
    pull = problem.alpha * at.W
    # a gradient of 1e-16 at the optimum is the rounding error of its sum, and looks different on every machine
    clean = np.where(np.abs(at.gradient) <= 1e-12 * (1.0 + np.abs(shares).sum(axis=0)), 0.0, at.gradient)
    return Table(
        (Words("row"), *(f"g_{{{k + 1}{d + 1}}}" for k in range(K) for d in range(D))),
        (
            *((Words(f"{n + 1}"), *numbers(share, show)) for n, share in enumerate(shares)),
            (Words("sum of rows"), *numbers(sums, show)),
            (Words("prior"), *numbers(pull, show)),
            (Words("gradient"), *numbers(clean, show)),
        ),
    )


def hessian_at_zero(problem: HandProblem, start: NewtonLine, show: Figures) -> Step:
    """All distinct blocks of the Hessian."""
    P = by_hand.softmax(by_hand.logits(problem.X, start.W))
    return Step(
        "hessian",
        "The Hessian at W = 0",
        equation("H_{kl}", r"\sum_{n} P_{nk} (1[k=l] - P_{nl}) x_n x_n^{\top} + 1[k=l] \alpha I"),
        hessian_blocks(problem, P, start.hessian, show),
        {"H": start.hessian, **named_blocks(start.hessian, problem.Y.shape[1])},
    )


def hessian_blocks(problem: HandProblem, P: np.ndarray, H: np.ndarray, show: Figures) -> tuple[Content, ...]:
    """The weights of all rows, one row and one entry in full, then every block k <= l."""
    X, alpha = problem.X, problem.alpha
    (N, D), K = X.shape, P.shape[1]
    weights = by_hand.curvature_weights(P)
    pairs = [(k, j) for k in range(K) for j in range(k, K)]
    blocks = H.reshape(K, D, K, D)
    table = Table(
        (
            "n",
            *(f"P_{{n{k + 1}}}(1-P_{{n{k + 1}}})" if k == j else f"-P_{{n{k + 1}}}P_{{n{j + 1}}}" for k, j in pairs),
        ),
        tuple((str(n + 1), *(show.number(weights[n, k, j]) for k, j in pairs)) for n in range(N)),
    )
    outer = np.outer(X[0], X[0])
    first = equation(
        r"P_{11} (1 - P_{11}) x_1 x_1^{\top}",
        (
            rf"{show.number(P[0, 0])} \cdot (1 - {show.number(P[0, 0])}) \cdot",
            given_matrix(outer),
            "=",
            show.matrix(weights[0, 0, 0] * outer),
        ),
    )
    squares = show.products(weights[:, 0, 0], X[:, -1] ** 2, exact=True)
    entry = equation(
        rf"(H_{{11}})_{{{D}{D}}}",
        WrittenSum((*squares.terms, given(alpha))),
        show.number(float(blocks[0, -1, 0, -1])),
    )
    lines = []
    for k, j in pairs:
        block = blocks[k, :, j, :]
        right: tuple[Any, ...] = (show.matrix(block),)
        if k == j:
            likelihood = show.matrix(block - alpha * np.eye(D))
            right = (likelihood, "+", given_matrix(alpha * np.eye(D)), "=", *right)
        name = rf"H_{{{k + 1}{j + 1}}}" if k == j else rf"H_{{{k + 1}{j + 1}}} = H_{{{j + 1}{k + 1}}}"
        lines.append(equation(name, right))
    return (
        Paragraph(("The weight of $x_n x_n^{\\top}$ in each block, row by row:",)),
        table,
        Paragraph(("What the first row adds to $H_{11}$, and one entry summed over all rows:",)),
        first + entry,
        Paragraph(("In the same way all blocks; $H_{kl} = H_{lk}$, so those with $k \\le l$ say everything:",)),
        joined(lines),
    )


def newton_step(start: NewtonLine, W: np.ndarray, show: Figures) -> Step:
    """H d = g, and the new weights."""
    H, g, d = start.hessian, start.gradient.ravel(), start.direction.ravel()
    i = int(np.abs(g).argmax())
    scale = given(start.scale)
    return Step(
        "newton",
        "The first Newton step",
        equation("H d", "g")
        + equation(r"W^{(1)}", r"W^{(0)} - s \, d")
        + equation("s", r"1, \text{ halved until } J \text{ falls}"),
        (
            Paragraph(
                (
                    f"$H$ is put together from its blocks, $d$ and $g$ list the weights class by class. The {d.size} "
                    "equations are solved by elimination; to check a solution, multiply.",
                )
            ),
            equation("H d", (show.matrix(H), show.matrix(d), "=", show.matrix(g))),
            Paragraph((f"Equation {i + 1} of these, as a check:",)),
            equation(f"(H d)_{{{i + 1}}}", show.products(H[i], d), show.number(float(H[i] @ d))),
            Paragraph(("The new weights, one row per class:",)),
            equation(
                "W^{(1)}",
                (show.matrix(start.W), rf"- {scale} \cdot", show.matrix(start.direction), "=", show.matrix(W)),
            ),
        ),
        {"direction": start.direction, "scale": start.scale, "W": W},
    )


def newton_iterations(iterates: list[NewtonLine], show: Figures) -> Step:
    """J, gradient and step, iteration by iteration, and the weights."""
    K, D = iterates[0].W.shape
    progress = Table(
        ("t", "J", Words("norm of g"), "s", Words("norm of s d")),
        tuple(
            (
                str(t),
                show.number(at.objective),
                small(norm(at.gradient), show),
                given(at.scale) if at.scale else "",
                small(at.scale * norm(at.direction), show) if at.scale else "",
            )
            for t, at in enumerate(iterates)
        ),
    )
    weights = Table(
        ("t", *(f"w_{{{k + 1}{d + 1}}}" for k in range(K) for d in range(D))),
        tuple((str(t), *numbers(at.W, show)) for t, at in enumerate(iterates)),
    )
    return Step(
        "iterations",
        "Newton's method to the end",
        equation("W^{(t+1)}", r"W^{(t)} - s \, d, \quad H(W^{(t)}) d = g(W^{(t)})"),
        (
            Paragraph(
                (
                    "The same again at the new weights: probabilities, gradient, Hessian, step. The number of right "
                    "digits doubles with each step once it is near; the last row has no step to take.",
                )
            ),
            progress,
            Paragraph(("The weights on the way:",)),
            weights,
        ),
        {
            "objective": np.array([at.objective for at in iterates]),
            "gradient_norm": np.array([norm(at.gradient) for at in iterates]),
            "scale": np.array([at.scale for at in iterates]),
            "step_norm": np.array([at.scale * norm(at.direction) for at in iterates]),
            "W": np.array([at.W for at in iterates]),
        },
    )


def optimal_weights(problem: HandProblem, optimum: NewtonLine, show: Figures) -> Step:
    """The MAP, its probabilities, and its gradient, which is zero."""
    X, Y, W = problem.X, problem.Y, optimum.W
    F = by_hand.logits(X, W)
    P = by_hand.softmax(F)
    losses = -(Y * by_hand.log_softmax(F)).sum(axis=1)
    shares = by_hand.contributions(P, X, Y)
    N, K = Y.shape
    table = Table(
        ("n", *(f"f_{{n{k + 1}}}" for k in range(K)), *(f"P_{{n{k + 1}}}" for k in range(K)), r"-\log P_{ny}"),
        tuple((str(n + 1), *numbers(F[n], show), *numbers(P[n], show), show.number(losses[n])) for n in range(N)),
    )
    cross_entropy = by_hand.cross_entropy(W, X, Y)
    squares = float((W**2).sum())
    return Step(
        "map",
        "The MAP weights and the gradient there",
        equation(r"W_{\mathrm{MAP}}", r"\mathrm{argmin}_W J(W)") + equation(r"g(W_{\mathrm{MAP}})", "0"),
        (
            equation(r"W_{\mathrm{MAP}}", show.matrix(W)),
            Paragraph(("Logits, probabilities and loss of every row (the loss is that of its own class):",)),
            table,
            equation(
                "J",
                rf"{show.number(cross_entropy)} + {given(problem.alpha / 2)} \cdot {show.number(squares)}",
                show.number(optimum.objective),
            ),
            Paragraph(
                ("At the optimum the data pull as hard as the prior holds: in every column the two sum to zero.",)
            ),
            _shares_table(problem, optimum, shares, show),
        ),
        {
            "W": W,
            "logits": F,
            "P": P,
            "cross_entropy": cross_entropy,
            "objective": optimum.objective,
            "gradient": optimum.gradient,
        },
    )
