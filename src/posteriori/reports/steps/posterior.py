"""The posterior: its covariance, the predictions that follow from it, and the evidence."""

from __future__ import annotations

import numpy as np

from posteriori.reports import by_hand
from posteriori.reports.by_hand import NewtonLine
from posteriori.reports.markup import (
    Content,
    Equations,
    Figures,
    Matrix,
    Paragraph,
    Table,
    Words,
    WrittenSum,
    equation,
    given,
    given_matrix,
)
from posteriori.reports.problem import HandProblem
from posteriori.reports.steps.optimum import hessian_blocks
from posteriori.reports.steps.step import Step, joined, named_blocks, numbers

__all__ = ["covariance", "evidence", "latent_logits", "monte_carlo", "plug_in"]


def covariance(problem: HandProblem, optimum: NewtonLine, Sigma: np.ndarray, show: Figures) -> Step:
    """The Laplace approximation: a Gaussian with the curvature of the optimum."""
    H = optimum.hessian
    P = by_hand.softmax(by_hand.logits(problem.X, optimum.W))
    K = problem.Y.shape[1]
    return Step(
        "covariance",
        "The Hessian at the MAP and the posterior covariance",
        equation(r"p(W | y, X)", r"\approx N(W; W_{\mathrm{MAP}}, \Sigma)")
        + equation(r"\Sigma", r"H(W_{\mathrm{MAP}})^{-1}"),
        (
            *hessian_blocks(problem, P, H, show),
            Paragraph(("All blocks together, inverted:",)),
            equation(r"\Sigma", show.matrix(Sigma)),
            Paragraph(
                ("To check an inverse, multiply: the first row of $H$ with the first column of $\\Sigma$ is 1.",)
            ),
            equation(r"(H \Sigma)_{11}", show.products(H[0], Sigma[:, 0]), show.number(float(H[0] @ Sigma[:, 0]))),
        ),
        {"H": H, **named_blocks(H, K), "Sigma": Sigma, **named_blocks(Sigma, K, "Sigma")},
    )


def latent_logits(
    problem: HandProblem,
    W: np.ndarray,
    Sigma: np.ndarray,
    mean: np.ndarray,
    cov: np.ndarray,
    L: np.ndarray,
    show: Figures,
) -> Step:
    """Mean and joint covariance of the logits of the new row, and the Cholesky factor of the latter."""
    K, D = W.shape
    x = problem.x_new
    blocks = Sigma.reshape(K, D, K, D)
    row, col = given_matrix(x[None]), given_matrix(x)
    means = [equation(f"m_{k + 1}", show.products(W[k], x, exact=True), show.number(mean[k])) for k in range(K)]
    entries = [
        equation(f"C_{{1{j + 1}}}", (row, show.matrix(blocks[0, :, j, :]), col, "=", show.number(float(cov[0, j]))))
        for j in range(2)
    ]
    return Step(
        "latent",
        "The logits of the new row: mean and joint covariance",
        equation("f^*", r"W x^*")
        + equation("m_k", r"w_k^{\top} x^*")
        + equation("C_{kl}", r"x^{*\top} \Sigma_{kl} x^*")
        + equation(r"L L^{\top}", "C"),
        (
            equation("x^*", row),
            joined(means),
            Paragraph(
                (
                    "The logits of different classes are correlated, so all blocks of $\\Sigma$ are needed, not only "
                    "those on its diagonal. Two of the entries:",
                )
            ),
            joined(entries),
            equation("C", show.matrix(cov)),
            Paragraph(("The Cholesky factor, entry by entry:",)),
            _cholesky(cov, L, show),
            equation("L", show.matrix(L)),
        ),
        {"x_new": x, "mean": mean, "cov": cov, "L": L},
    )


def _cholesky(C: np.ndarray, L: np.ndarray, show: Figures) -> Equations:
    """L_kk = sqrt(C_kk - sum_j L_kj^2) and L_kl = (C_kl - sum_j L_kj L_lj) / L_ll, j < l."""
    lines = []
    for k in range(len(C)):
        for j in range(k + 1):
            rest = show.number(float(C[k, j])) + "".join(
                rf" - {show.factor(a)} \cdot {show.factor(b)}" for a, b in zip(L[k, :j], L[j, :j], strict=True)
            )
            filled = rf"\sqrt{{{rest}}}" if j == k else f"{f'({rest})' if j else rest} / {show.number(float(L[j, j]))}"
            lines.append(equation(f"L_{{{k + 1}{j + 1}}}", f"{filled} = {show.number(float(L[k, j]))}"))
    return joined(lines)


def monte_carlo(
    problem: HandProblem, mean: np.ndarray, L: np.ndarray, F: np.ndarray, draws: np.ndarray, show: Figures
) -> Step:
    """The mean of the softmax over draws of the logits."""
    Z = problem.Z
    S, K = Z.shape
    p = draws.mean(axis=0)
    error = draws.std(axis=0, ddof=1) / np.sqrt(S) if S > 1 else np.full(K, np.nan)
    classes = range(1, K + 1)
    blank = ("",) * (2 * K)
    summary: list[tuple[str, ...]] = [(Words("mean"), *blank, *numbers(p, show))]
    accuracy: tuple[Content, ...] = ()
    if S > 1:
        summary.append((Words("standard error"), *blank, *numbers(error, show)))
        accuracy = (
            Paragraph(
                (
                    "So few draws show how it is done. The standard error, the standard deviation of a column (with "
                    "divisor $S - 1$) over $\\sqrt{S}$, tells how far its mean may be from the integral it estimates.",
                )
            ),
        )
    table = Table(
        (Words("s"), *(f"{letter}_{{s{k}}}" for letter in "zfp" for k in classes)),
        (
            *(
                (Words(str(s + 1)), *(f"{z:.2f}" for z in Z[s]), *numbers(F[s], show), *numbers(draws[s], show))
                for s in range(S)
            ),
            *summary,
        ),
    )
    exps = [rf"\exp({show.number(f)})" for f in F[0]]
    return Step(
        "monte_carlo",
        "Class probabilities by Monte Carlo",
        equation("f_s", r"m + L z_s, \quad z_s \text{ standard normal}")
        + equation("p_{sk}", r"\frac{\exp(f_{sk})}{\sum_{j} \exp(f_{sj})}")
        + equation(r"p(y^* = k)", r"\approx \tfrac{1}{S} \sum_{s} p_{sk}"),
        (
            Paragraph(
                (
                    f"$S = {S}$ draws, rounded to two decimals and used as printed. Drawing the logits is the same as "
                    "drawing all weights, as only $W x^*$ matters. The first draw:",
                )
            ),
            equation(
                "f_1",
                (
                    show.matrix(mean),
                    "+",
                    show.matrix(L),
                    Matrix(tuple((f"{z:.2f}",) for z in Z[0])),
                    "=",
                    show.matrix(F[0]),
                ),
            )
            + equation("p_{11}", f"{exps[0]} / ({' + '.join(exps)})", show.number(float(draws[0, 0]))),
            Paragraph(("All draws, and the mean of their probabilities:",)),
            table,
            *accuracy,
        ),
        {"Z": Z, "logits": F, "draws": draws, "p": p, "standard_error": error},
    )


def plug_in(mean: np.ndarray, p: np.ndarray, problem: HandProblem, show: Figures) -> Step:
    """The softmax of the mean logits: as if the weights were known."""
    plugged = by_hand.softmax(mean)
    exps = np.exp(mean)
    total = float(exps.sum())
    lines = [
        equation(rf"\exp(m_{k + 1})", rf"\exp({show.number(m)}) = {show.number(float(e))}")
        for k, (m, e) in enumerate(zip(mean, exps, strict=True))
    ]
    table = Table(
        (Words("class"), Words("plug-in"), Words("Monte Carlo")),
        tuple(
            (Words(label), show.number(a), show.number(b))
            for label, a, b in zip(problem.classes, plugged, p, strict=True)
        ),
    )
    return Step(
        "plug_in",
        "Plug-in probabilities, for comparison",
        equation(r"p(y^* = k | W_{\mathrm{MAP}})", r"\frac{\exp(m_k)}{\sum_{j} \exp(m_j)}"),
        (
            joined(lines)
            + equation(r"\sum_{j} \exp(m_j)", f"{' + '.join(map(show.number, exps))} = {show.number(total)}")
            + equation("p_1", f"{show.number(float(exps[0]))} / {show.number(total)}", show.number(float(plugged[0]))),
            Paragraph(("The plug-in takes the MAP weights for certain; averaging over the posterior does not.",)),
            table,
        ),
        {"p": plugged},
    )


def evidence(problem: HandProblem, optimum: NewtonLine, show: Figures) -> Step:
    """Laplace's approximation of the log evidence."""
    size, alpha = optimum.W.size, problem.alpha
    diagonal = np.linalg.cholesky(optimum.hessian).diagonal()
    log_det = by_hand.log_determinant(optimum.hessian)
    half_log_alpha = size / 2 * float(np.log(alpha))
    log_evidence = -optimum.objective + half_log_alpha - log_det / 2
    return Step(
        "evidence",
        "The log evidence",
        equation(
            r"\log p(y | X)",
            r"\approx -J(W_{\mathrm{MAP}}) + \tfrac{1}{2} \sum_{kd} \log \alpha - \tfrac{1}{2} \log \lvert H \rvert",
        ),
        (
            Paragraph(
                (
                    "The determinant is the squared product of the diagonal of the Cholesky factor $R$ of $H$ (at the "
                    "MAP): the same entry-by-entry recipe as for $L$.",
                )
            ),
            equation(r"R_{ii}", show.matrix(diagonal[None]))
            + equation(
                r"\log \lvert H \rvert",
                WrittenSum(tuple(rf"2 \log {show.number(float(r))}" for r in diagonal)),
                show.number(log_det),
            ),
            equation(
                r"\log p(y | X)",
                rf"\approx -{show.number(optimum.objective)} + \tfrac{{{size}}}{{2}} \log {given(alpha)}"
                rf" - \tfrac{{1}}{{2}} \cdot {show.factor(log_det)}",
                f"{show.number(-optimum.objective)} + {show.factor(half_log_alpha)} - {show.factor(log_det / 2)}",
                show.number(log_evidence),
            ),
        ),
        {"log_determinant": log_det, "cholesky_diagonal": diagonal, "log_evidence": log_evidence},
    )
