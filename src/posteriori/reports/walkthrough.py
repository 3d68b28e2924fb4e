"""The complete hand calculation of Bayesian multiclass classification, every step with its numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from posteriori.reports.markup import Paragraph
from posteriori.reports.problem import check_digits, read_problem
from posteriori.reports.steps import Step, all_steps

__all__ = ["Step", "Walkthrough", "walkthrough"]

_FORMATS = ("markdown", "latex")
_TITLE = "Bayesian multiclass classification, by hand"

_DOCUMENT = r"""\documentclass[a4paper]{article}
\usepackage[utf8]{inputenc}
\usepackage[T1]{fontenc}
\usepackage{amsmath}
\usepackage{graphicx}
\usepackage[margin=15mm]{geometry}
\setcounter{MaxMatrixCols}{40}
\allowdisplaybreaks
\setlength{\parindent}{0pt}
\setlength{\parskip}{6pt}
\begin{document}
%s
\end{document}
"""


@dataclass(frozen=True, eq=False)
class Walkthrough:
    """A calculation in steps: print it, show it in a notebook, or take its numbers.

    Attributes
    ----------
    steps : tuple of Step
    format : {"markdown", "latex"}
        The format of ``str`` and ``print``.
    digits : int
        Decimals shown.
    """

    steps: tuple[Step, ...]
    format: str
    digits: int

    def __getitem__(self, name: str) -> Step:
        for step in self.steps:
            if name in (step.key, step.title):
                return step
        raise KeyError(f"no step is called {name!r}; there are {', '.join(step.key for step in self.steps)}")

    def to_markdown(self) -> str:
        """Markdown, legible as plain text too."""
        sections = [f"## {i}. {step.title}\n\n{step.to_markdown()}" for i, step in enumerate(self.steps, start=1)]
        return "\n\n".join([f"# {_TITLE}", self._introduction.to_markdown(), *sections]) + "\n"

    def to_latex(self, document: bool = False) -> str:
        """Sections for a document that loads amsmath and graphicx; or, on request, the whole document."""
        sections = [
            f"\\subsection*{{{i}. {step.title}}}\n\n{step.to_latex()}" for i, step in enumerate(self.steps, start=1)
        ]
        body = "\n\n".join([f"\\section*{{{_TITLE}}}", self._introduction.to_latex(), *sections])
        return _DOCUMENT % body if document else body + "\n"

    @property
    def _introduction(self) -> Paragraph:
        return Paragraph(
            (
                "Every number below can be checked with a pocket calculator. Given numbers are shown in full, all "
                f"others with {self.digits} decimals; the calculation itself uses full precision, so a check with the "
                "numbers as shown may differ in the last decimals. Rows, columns and classes are counted from 1, "
                "logarithms are natural. The weights $W$ have one row per class and one column per feature; listed as "
                "one vector they go class by class.",
            )
        )

    def _repr_markdown_(self) -> str:
        return self.to_markdown()

    def __str__(self) -> str:
        return self.to_latex() if self.format == "latex" else self.to_markdown()

    def __repr__(self) -> str:
        return f"Walkthrough({', '.join(step.key for step in self.steps)})"


def walkthrough(
    X: Any = None,
    y: Any = None,
    *,
    alpha: float = 1.0,
    x_new: Any = None,
    utility: Any = None,
    n_draws: int = 8,
    random_state: Any = 0,
    format: str = "markdown",
    digits: int = 4,
) -> Walkthrough:
    r"""Bayesian softmax regression with every number written out, from the data to a decision.

    Prior, likelihood, gradient, Hessian, Newton's method, the Laplace approximation

    .. math:: p(W | y, X) \approx N(W_{MAP}, H^{-1}),\qquad
              H_{kl} = \sum_n P_{nk}(1[k=l] - P_{nl})\,x_n x_n^\top + 1[k=l]\,\alpha I,

    its predictions by Monte Carlo, the log evidence and the action of highest expected utility.

    Parameters
    ----------
    X : array or table (N, D - 1), optional
        At most 50 rows and 5 columns; a column of ones is put in front. Without X and y: a built-in example, three
        kinds of weather foretold by a barometer.
    y : labels (N,), or the name of a column of X
        Labels of two to five classes, which are sorted.
    alpha : float, default 1.0
        Precision of the Gaussian prior on every weight, the intercepts too.
    x_new : D - 1 numbers, or a table of one row, optional
        The row to be classified; the mean of X if left out.
    utility : array or table (K, A), optional
        One row per class, in sorted order (a pandas table may name them instead), one column per action. Without it
        a right answer is worth 1, a wrong one nothing.
    n_draws : int, default 8
        Monte-Carlo draws, all of them printed; at most 50.
    random_state : int, numpy.random.Generator or None, default 0
        The seed of the draws.
    format : {"markdown", "latex"}, default "markdown"
        What ``print`` shows.
    digits : int, default 4
        Decimals shown, 2 to 10; the calculation uses full precision.

    Returns
    -------
    Walkthrough

    Raises
    ------
    ValueError
        If the data are too many to be read, or an argument is not as described.

    Examples
    --------
    >>> by_hand = walkthrough()
    >>> by_hand  # print(by_hand) shows all of it
    Walkthrough(data, prior, softmax, posterior, gradient, hessian, newton, iterations, map, covariance, latent,
    monte_carlo, plug_in, evidence, utility, decision)
    >>> by_hand["map"].values["W"].round(4)
    array([[ 0.0384, -0.5988],
           [ 0.1458, -0.1074],
           [-0.1843,  0.7062]])
    >>> print(by_hand["decision"].to_markdown())  # doctest: -NORMALIZE_WHITESPACE
    In general:
    <BLANKLINE>
    ```text
    a* = argmax_a EU(a)
    ```
    <BLANKLINE>
    With numbers:
    <BLANKLINE>
    | action   | expected utility |
    | :------- | ---------------: |
    | bus      |           3.8896 |
    | stay     |           2.0000 |
    | umbrella |          -0.0387 |
    | walk     |          -6.2871 |
    <BLANKLINE>
    The best action is "bus", with `3.8896`.
    """
    if format not in _FORMATS:
        raise ValueError(f"format must be 'markdown' or 'latex', got {format!r}.")
    digits = check_digits(digits)
    problem = read_problem(X, y, alpha=alpha, x_new=x_new, utility=utility, n_draws=n_draws, random_state=random_state)
    try:
        with np.errstate(all="ignore"):  # what overflows ends in the message below, not in a warning
            steps = all_steps(problem, digits)
    except np.linalg.LinAlgError:
        raise ValueError(
            "The Hessian could not be inverted in double precision: bring the columns of X to a similar scale, "
            "for example by dividing each by its standard deviation, or raise alpha."
        ) from None
    return Walkthrough(steps, format, digits)
